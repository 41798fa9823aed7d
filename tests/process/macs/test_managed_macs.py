"""`bramley up --bootstrap` rents simulated Macs and a builder, and `bramley up --mac` manages a Mac that a user owns."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry

from bramley.api.names import secrets
from bramley.base.clock import SystemClock
from bramley.github.app import GitHubApp
from bramley.github.app_keys import AppCredentials, load
from bramley.github.client import GitHubClient
from bramley.github.http import HttpTransport
from bramley.github.owners import Organisation
from bramley.sim.ssh import tart_bundle
from tests.process.macs.jobs import dispatch_url, job_state, queue_job
from tests.process.serving.processes import (
    BRAMLEY,
    TIMEOUT_SECONDS,
    Bramley,
    clean_environment,
    held_port,
    running,
    until,
)
from tests.process.threaded import in_a_thread
from tests.programs import run_program
from tools.agent_bundle import linux

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is Linux's")
CORE = "/apis/cluster.x-k8s.io/v1beta1/namespaces/default"
MACHINES = (
    "/apis/infrastructure.cluster.x-k8s.io/v1alpha1/namespaces/default/scalewayapplesiliconmachines"
)
MAC_HOSTS = "/apis/tuist.dev/v1alpha1/namespaces/default/machosts"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
# Two Macs are bootstrapped on a busy machine.
SECONDS = 2 * TIMEOUT_SECONDS


def items(server: Bramley, path: str) -> list[dict[str, Any]]:
    """Return the objects; none before their definition is installed."""
    status, body = server.request("GET", path)
    return list(body["items"]) if status == 200 else []


def names(server: Bramley, path: str) -> list[str]:
    return [each["metadata"]["name"] for each in items(server, path)]


def true_conditions(obj: dict[str, Any]) -> set[str]:
    conditions = obj.get("status", {}).get("conditions", ())
    return {each["type"] for each in conditions if each["status"] == "True"}


def are_ready(server: Bramley, path: str, count: int) -> bool:
    """Return whether there are so many Macs, proven, with a Node that is Ready and without a taint of a new one."""
    nodes = {each["metadata"]["name"]: each for each in items(server, "/api/v1/nodes")}
    found = items(server, path)
    return len(found) == count and all(
        {"Ready", "Proven"} <= true_conditions(each)
        and "Ready" in true_conditions(nodes.get(each["metadata"]["name"], {}))
        and "unproven" not in json.dumps(nodes[each["metadata"]["name"]]["spec"])
        for each in found
    )


def scaleway(server: Bramley) -> list[dict[str, Any]]:
    """Return the servers of the simulated Scaleway of this start."""
    found = re.search(r"Scaleway at (\S+)", server.out.read_text())
    assert found
    with urlopen(f"{found[1]}/sim/state", timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 - ours
        servers: list[dict[str, Any]] = json.load(response)["servers"]
    return servers


def hosts(server: Bramley) -> dict[str, str]:
    """Return the hosts of the machines."""
    return {
        each["metadata"]["name"]: each["status"]["serverID"] for each in items(server, MACHINES)
    }


async def runners(server: Bramley) -> list[tuple[str, bool]]:
    """Return the runners of the organisation at the simulated GitHub, and whether they are online."""
    values = server.request("GET", "/api/v1/namespaces/default/secrets/github-app")[1]["data"]
    app_id, installation, key = (
        base64.b64decode(values[each])
        for each in (secrets.APP_ID, secrets.INSTALLATION_ID, secrets.PRIVATE_KEY)
    )
    async with HttpTransport(dispatch_url(server, "github-url")) as transport:
        client = GitHubClient(transport, clock=SystemClock(), registry=CollectorRegistry())
        app = GitHubApp(AppCredentials(app_id.decode(), load(key)), client, clock=SystemClock())
        found = await app.installation(int(installation)).runners(Organisation("acme"))
    return [(each.name, each.is_online) for each in found]


@contextmanager
def up(place: Path, port: int, *arguments: str) -> Iterator[Bramley]:
    listen = f"127.0.0.1:{port}"
    with running(place, "--listen", listen, *arguments, command="up") as server:
        yield server


@in_a_thread
def test_rented_macs_survive_a_kill_and_are_released_by_a_scale_down(tmp_path: Path) -> None:
    arguments = ("--bootstrap", "--macs", "1")
    with held_port() as port:
        with up(tmp_path, port, *arguments) as server:
            until(lambda: "tart (" in server.out.read_text(), seconds=SECONDS)
            # In the middle of the bootstraps.
            server.stop(signal.SIGKILL)

        with up(tmp_path, port, *arguments) as server:
            until(lambda: are_ready(server, MACHINES, 2), seconds=SECONDS)
            before = hosts(server)
            assert len({*before.values()}) == 2
            until(lambda: "(2 of 2)" in server.out.read_text())
            job = queue_job(server, seconds=1)
            until(lambda: job_state(server, job) == "completed")
            server.stop(signal.SIGKILL)

        with up(tmp_path, port, *arguments) as server:
            until(lambda: "(2 of 2)" in server.out.read_text(), seconds=SECONDS)
            assert hosts(server) == before
            [builder] = [name for name in before if name.startswith("builders")]
            # Registered once: it is online again with that registration.
            until(lambda: (builder, True) in asyncio.run(runners(server)))

            scale = server.request("GET", f"{CORE}/machinedeployments/macs/scale")[1]
            scale["spec"]["replicas"] = 0
            assert server.request("PUT", f"{CORE}/machinedeployments/macs/scale", scale)[0] == 200
            until(lambda: names(server, MACHINES) == [builder], seconds=SECONDS)
            until(lambda: names(server, "/api/v1/nodes") == [builder])
            [released] = [each for each in scaleway(server) if each["id"] != before[builder]]
            assert released["name"].startswith("tuist-pool-")
            leases = [name for name in names(server, LEASES) if name.startswith("mac-host-")]
            assert leases == [f"mac-host-{before[builder]}"]

            assert server.stop(signal.SIGINT) == 0
            assert "Traceback" not in server.err.read_text()


@contextmanager
def bare_mac(folder: Path) -> Iterator[str]:
    """Run a bare Mac in a process of its own, and yield user@host:port."""
    command = [str(BRAMLEY), "sim", "mac", "--root", str(folder), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--boot-seconds", "1"], stdout=subprocess.PIPE, env=clean_environment()
    )
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, b"")
        login = next(found for line in lines if (found := re.search(rb"ssh -p (\d+) (\S+)", line)))
        yield f"{login[2].decode()}:{login[1].decode()}"
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)
        process.stdout.close()


@in_a_thread
def test_own_mac_joins_and_leaves(tmp_path: Path) -> None:
    tart, archives = tmp_path / "tart.tar.gz", linux.cached()
    tart.write_bytes(tart_bundle.archive())
    with bare_mac(tmp_path / "mac") as target, held_port() as port:
        arguments = [
            *("--mac", target, "--tart-tarball-path", str(tart)),
            *("--tartkubelet-archive-path", str(archives.code.path)),
            *("--tartkubelet-interpreter-path", str(archives.interpreter.path)),
        ]
        password = ("--password-file", str(tmp_path / "mac/.mac/password"))
        with up(tmp_path / "up", port, *arguments, *password) as server:
            until(lambda: are_ready(server, MAC_HOSTS, 1), seconds=SECONDS)
            [name] = names(server, MAC_HOSTS)
            assert f"{name}  Ready after" in until(lambda: "(1 of 1)" in (text := server.out.read_text()) and text)  # fmt: skip
            # No simulated Macs unless they are requested.
            assert names(server, "/api/v1/nodes") == [name]
            server.stop(signal.SIGKILL)

        # The login is stored.
        with up(tmp_path / "up", port, *arguments) as server:
            until(lambda: "(1 of 1)" in server.out.read_text(), seconds=SECONDS)
            assert names(server, MAC_HOSTS) == [name]

            assert server.request("DELETE", f"{MAC_HOSTS}/{name}")[0] == 200
            until(lambda: not names(server, MAC_HOSTS), seconds=SECONDS)
            assert names(server, "/api/v1/nodes") == []
            assert not (tmp_path / "mac/opt/tart-kubelet").exists()
            assert server.stop(signal.SIGINT) == 0


REFUSED = [
    pytest.param(
        ["--mac", "m1@10.0.0.5"],
        "the agent on 10.0.0.5 must reach the API server, and --listen 127.0.0.1:0",
        id="loopback",
    ),
    pytest.param(
        ["--mac", "m1@10.0.0.5", "--listen", "0.0.0.0:0"], "names no address", id="any address"
    ),
    pytest.param(["--mac", "m1@127.0.0.1"], "--mac needs --tart-tarball-path", id="files"),
    pytest.param(["--mac", "m1@127.0.0.1", "--bootstrap"], "different archives", id="both"),
    pytest.param(["--mac", "m1@"], "is not of the form user@host", id="target"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_own_mac_that_cannot_work_is_refused_before_anything_starts(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    data = tmp_path / "data"
    command = [str(BRAMLEY), "up", "--data-dir", str(data), "--listen", "127.0.0.1:0", *arguments]

    result = run_program(command, env=clean_environment())

    assert result.returncode == 2
    assert message in result.stderr
    assert not data.exists()
