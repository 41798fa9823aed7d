"""`bramley up` with simulated Macs: they join, run Pods, and leave nothing behind, however it ends."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from bramley.app import macs, pools, sample_images
from bramley.sim.mac.folder import MacFolder
from tests.process.macs.jobs import job_state, queue_job
from tests.process.serving.processes import TIMEOUT_SECONDS, Bramley, running, until
from tests.process.threaded import in_a_thread

PODS = "/api/v1/namespaces/default/pods"
POOL = f"/apis/tuist.dev/v1alpha1/namespaces/default/runnerpools/{pools.SAMPLE_NAME}"
EXAMPLE = Path(__file__).parents[3] / "examples/pod.yaml"


@contextmanager
def up(place: Path, *, macs: int) -> Iterator[Bramley]:
    """Run it until the Macs are Ready or have failed."""
    try:
        with running(place, "--macs", str(macs), command="up") as server:
            until(lambda: "Ctrl-C" in server.out.read_text())
            yield server
    finally:
        for pid in left(place):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def left(place: Path) -> list[int]:
    """Return the processes of all Macs of a start."""
    macs = (place / "data" / "macs").glob("mac-*")
    return [pid for mac in macs if mac.is_dir() for pid in MacFolder(mac).processes()]


def a_pod(name: str, *, work: int = 600, code: int = 0, **spec: Any) -> dict[str, Any]:
    """Return the example Pod with another name and behaviour; it is small enough to fit beside runners."""
    body: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    (container,) = body["spec"]["containers"]
    script = {"BRAMLEY_SIM_WORK": str(work), "BRAMLEY_SIM_CODE": str(code)}
    container["env"] = [{"name": key, "value": value} for key, value in script.items()]
    container["resources"] = {"limits": {"cpu": "2", "memory": "4Gi"}}
    body["metadata"] = {"name": name}
    body["spec"] |= {"terminationGracePeriodSeconds": 5, **spec}
    return body


def pod(server: Bramley, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.request("GET", f"{PODS}/{name}")[1]
    return found


def phase(server: Bramley, name: str) -> str:
    found = pod(server, name)
    return str(found["status"].get("phase", "")) if found["kind"] == "Pod" else ""


def pool(server: Bramley) -> dict[str, Any]:
    """Return the status of the sample pool."""
    found: dict[str, Any] = server.request("GET", POOL)[1]
    status: dict[str, Any] = found.get("status", {}) if found["kind"] == "RunnerPool" else {}
    return status


def set_image(server: Bramley, image: str) -> int:
    """Replace the pool by one with another image and return the status code; the controller may have changed it meanwhile."""
    body = server.request("GET", POOL)[1]
    body["spec"]["image"] = image
    return server.request("PUT", POOL, body)[0]


def has_runners(server: Bramley, count: int) -> bool:
    return bool(pool(server).get("readyReplicas", 0) == count)


def start_pod(server: Bramley, name: str) -> None:
    """Start a Pod whose VM does not end with a job, as that of a runner does, nor with GitHub, which `up` simulates."""
    assert server.request("POST", PODS, a_pod(name))[0] == 201
    until(lambda: phase(server, name) == "Running")


def nodes(server: Bramley) -> list[str]:
    items = server.request("GET", "/api/v1/nodes")[1]["items"]
    return [node["metadata"]["name"] for node in items]


@in_a_thread
def test_macs_join_and_run_a_pool_that_is_rolled_and_other_pods_to_their_end(
    tmp_path: Path,
) -> None:
    with up(tmp_path, macs=2) as server:
        printed = server.out.read_text()
        assert printed.count("Ready after") == 2
        assert nodes(server) == ["mac-1", "mac-2"]
        kubeconfig = tmp_path / "data" / "macs" / "mac-1" / "kubeconfig"
        assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600

        until(lambda: has_runners(server, 2))
        assert server.request("POST", PODS, a_pod("mine", work=1, code=3))[0] == 201
        until(lambda: phase(server, "mine") == "Failed")
        ended = pod(server, "mine")["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (3, "Error")
        server.request("DELETE", f"{PODS}/mine")

        until(lambda: set_image(server, sample_images.SECOND) == 200)
        until(lambda: pool(server).get("lastGoodImage") == sample_images.SECOND)

        server.request("DELETE", POOL)
        until(lambda: server.request("GET", PODS)[1]["items"] == [])
        assert list((tmp_path / "data" / "macs").glob("mac-*/tart/vms/default-*")) == []


@in_a_thread
def test_deleted_sample_pool_stays_deleted(tmp_path: Path) -> None:
    with up(tmp_path, macs=1) as server:
        until(lambda: has_runners(server, 1))
        server.request("DELETE", POOL)
        until(lambda: server.request("GET", POOL)[0] == 404)

    with up(tmp_path, macs=1) as server:
        assert server.request("POST", PODS, a_pod("mine", work=1))[0] == 201
        until(lambda: phase(server, "mine") == "Succeeded")
        assert server.request("GET", POOL)[0] == 404


@in_a_thread
def test_signal_ends_macs_and_vms_before_the_server(tmp_path: Path) -> None:
    with up(tmp_path, macs=1) as server:
        start_pod(server, "other")
        assert len(left(tmp_path)) >= 4

        assert server.stop(signal.SIGINT) == 0

        assert left(tmp_path) == []


@in_a_thread
def test_processes_of_a_killed_start_do_not_block_the_next_one(tmp_path: Path) -> None:
    with up(tmp_path, macs=1) as server:
        start_pod(server, "other")
        server.stop(signal.SIGKILL)
        orphans = left(tmp_path)
        assert len(orphans) >= 4

        with up(tmp_path, macs=1) as again:
            assert "Ready after" in again.out.read_text()
            assert set(orphans) & set(left(tmp_path)) == set()
            # The runner whose VM was killed is replaced.
            assert again.request("POST", PODS, a_pod("mine"))[0] == 201
            until(lambda: phase(again, "mine") == "Running")
            until(lambda: has_runners(again, 1))


@in_a_thread
def test_jobs_end_after_a_stop_with_a_job_on_a_runner_and_another_start(tmp_path: Path) -> None:
    with up(tmp_path, macs=1) as server:
        # The first one occupies the only runner.
        running, queued = queue_job(server, seconds=600), queue_job(server, seconds=1)
        until(lambda: job_state(server, running) == "running")

        assert server.stop(signal.SIGINT) == 0

        assert "Traceback" not in server.err.read_text()

    with up(tmp_path, macs=1) as again:
        until(lambda: job_state(again, queued) == "completed")
        until(lambda: job_state(again, running) == "cancelled")


@in_a_thread
def test_failed_mac_is_reported_and_the_others_start(tmp_path: Path) -> None:
    place = tmp_path / "data" / "macs"
    place.mkdir(parents=True, mode=0o700)
    (tmp_path / "data").chmod(0o700)
    (place / "mac-1").write_text("no folder")

    with up(tmp_path, macs=2) as server:
        printed = server.out.read_text()

    assert "mac-1       failed to start: " in printed
    assert "mac-2       Ready after" in printed
    assert "kubectl get nodes" in printed


@in_a_thread
def test_agent_that_exits_is_logged_and_restarted(tmp_path: Path) -> None:
    with up(tmp_path, macs=1) as server:
        mac = MacFolder(tmp_path / "data" / "macs" / "mac-1")
        first = until(lambda: only(mac.agents()))

        os.kill(first, signal.SIGKILL)

        until(lambda: "Agent exited" in server.err.read_text())
        until(lambda: set(mac.agents()) - {first})


def only(pids: list[int]) -> int:
    """Return the one process; none while it begins another, which has its command line for a moment."""
    return pids[0] if len(pids) == 1 else 0


@in_a_thread
def test_fewer_macs_than_before_leave_no_node_and_no_pod_behind(tmp_path: Path) -> None:
    with up(tmp_path, macs=2) as server:
        assert nodes(server) == ["mac-1", "mac-2"]
        bound = a_pod("bound", nodeName="mac-2")
        assert server.request("POST", PODS, bound)[0] == 201
        until(lambda: phase(server, "bound") == "Running")

    with up(tmp_path, macs=1) as server:
        until(lambda: nodes(server) == ["mac-1"])
        assert server.request("GET", f"{PODS}/bound")[0] == 404
        until(lambda: has_runners(server, 2))


@in_a_thread
def test_bare_macs_replace_those_of_an_earlier_start(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "macs"
    with up(tmp_path, macs=0) as server:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mac-9"}}
        assert server.request("POST", "/api/v1/nodes", node)[0] == 201
    for name in ("mac-1", "mac-9"):
        (folder / name).mkdir(parents=True)
    # As a start that was killed leaves it.
    words = ("-c", "import time; time.sleep(600)", "--state-dir", str(folder / "mac-1" / "state"))
    with subprocess.Popen([sys.executable, *words]) as agent:
        try:
            with running(tmp_path, "--macs", "1", "--bootstrap", command="up") as server:
                # Not until there is none: the one that begins bare becomes one.
                until(lambda: "mac-9" not in nodes(server))
                assert agent.wait(TIMEOUT_SECONDS) == -signal.SIGTERM
        finally:
            agent.kill()


@in_a_thread
def test_zero_macs_create_no_folder(tmp_path: Path) -> None:
    with up(tmp_path, macs=0) as server:
        printed = server.out.read_text()

        assert nodes(server) == []
        until(lambda: server.request("GET", POOL.rpartition("/")[0])[0] == 200)
        assert server.request("GET", POOL)[0] == 404
    assert not (tmp_path / "data" / "macs").exists()
    assert pools.SAMPLE_NAME not in printed


@in_a_thread
def test_agent_imports_nothing_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("raise SystemExit(9)")

    command = [*macs.agent_command(MacFolder(tmp_path / "mac-1")), "--version"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=180)

    assert (ended.returncode, ended.stderr) == (0, b"")
