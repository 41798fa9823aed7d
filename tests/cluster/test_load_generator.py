"""The load generator against a real server: it measures what it says, and refuses what it should."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tools.kube import building, programs
from tools.kube.control_plane import RealCluster

NAMESPACE = "load-generator"


@pytest.fixture(scope="module")
def load(real_cluster: RealCluster) -> list[str]:
    building.ensure(["load"])
    if not real_cluster.kubectl("get", "namespace", NAMESPACE, "--ignore-not-found"):
        real_cluster.kubectl("create", "namespace", NAMESPACE)
        own = ("configmap/kube-root-ca.crt", "--for=create", "--timeout=180s")
        real_cluster.kubectl("-n", NAMESPACE, "wait", *own)
    pki = real_cluster.pki
    identity = ["-cert", str(pki / "admin.crt"), "-key", str(pki / "admin.key")]
    access = ["-server", real_cluster.server, "-ca", str(pki / "ca.crt"), *identity]
    bounds = ["-duration", "500ms", "-warmup", "50ms", "-objects", "8", "-timeout", "180s"]
    return [*access, *bounds, "-namespace", NAMESPACE]


def run(work: str, arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    program = str(programs.path_of("load"))
    return subprocess.run(
        [program, work, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment,
    )


def result(work: str, arguments: list[str]) -> Any:
    done = run(work, arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def measured(work: str, arguments: list[str], of: str = "count") -> Any:
    """Measure, and for longer if in so short a time a busy machine came to nothing."""
    for duration in ("500ms", "10s", "100s"):
        done = run(work, [*arguments, "-duration", duration])
        told = json.loads(done.stdout) if done.returncode == 0 else {}
        if told.get(of) or (done.returncode and "nothing was written" not in done.stderr):
            break
    assert told.get(of), done
    return told


@pytest.mark.parametrize("protocol", ["http1", "http2"])
@pytest.mark.parametrize("work", ["patch", "get"])
def test_counts_and_times_requests(load: list[str], work: str, protocol: str) -> None:
    result("fill", load)

    told = measured(work, [*load, "-protocol", protocol, "-clients", "4"])

    assert told["errors"] == 0
    assert 0 < told["p50_ms"] <= told["p99_ms"] <= told["max_ms"]


def test_a_list_counts_only_when_it_is_whole(load: list[str]) -> None:
    result("fill", load)

    told = measured("list", load, of="errors")

    # Kubernetes puts a ConfigMap of its own into every namespace, so there is one more than was said.
    assert told["count"] == 0
    assert told["first_error"] == "a list of 8 objects holds 9"
    assert measured("list", [*load, "-objects", "9"])["errors"] == 0


def test_every_watcher_sees_every_write(load: list[str]) -> None:
    result("fill", load)

    told = measured("watch", [*load, "-clients", "5", "-writers", "3"], of="writes")

    assert told["count"] == told["writes"] * 5


def test_a_refused_request_is_an_error_and_not_a_measure(load: list[str]) -> None:
    told = measured("get", [*load, "-namespace", "no-such-namespace"], of="errors")

    assert told["count"] == 0
    assert " 404 " in told["first_error"]


def reader(cluster: RealCluster) -> str:
    """Return the token of an account that may read, once the server knows that it may."""
    here, name = f"--namespace={NAMESPACE}", f"system:serviceaccount:{NAMESPACE}:reader"
    account = f"--serviceaccount={NAMESPACE}:reader"
    cluster.kubectl("create", here, "serviceaccount", "reader")
    cluster.kubectl("create", here, "rolebinding", "reader", "--clusterrole=view", account)
    deadline = time.monotonic() + 180
    while not may_read(cluster, here, f"--as={name}"):
        assert time.monotonic() < deadline, "the account may not read"
        time.sleep(0.1)
    return cluster.kubectl("create", here, "token", "reader").strip()


def may_read(cluster: RealCluster, *who: str) -> bool:
    try:
        return cluster.kubectl("auth", "can-i", "get", "configmaps", *who).strip() == "yes"
    except RuntimeError:
        return False  # it says no with its code


def test_a_token_comes_from_a_file_or_the_environment(
    load: list[str], real_cluster: RealCluster, tmp_path: Path
) -> None:
    result("fill", load)
    token = reader(real_cluster)
    (tmp_path / "token").write_text(f"{token}\n")
    start = load.index("-cert")
    nameless = [*load[:start], *load[start + 4 :]]

    by_file = measured("get", [*nameless, "-token-file", str(tmp_path / "token")])
    by_environment = json.loads(run("get", nameless, LOAD_TOKEN=token).stdout)
    without = measured("get", nameless, of="errors")

    assert (by_file["errors"], by_environment["errors"]) == (0, 0)
    assert (without["count"], " 403 " in without["first_error"]) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-server", "https://192.0.2.1:6443"], "not on loopback"),
        (["-server", "http://127.0.0.1:1"], "no https address"),
        (["-duration", "1h"], "together at most"),
        (["-clients", "0"], "go from 1 to"),
        (["-protocol", "http3"], "neither http1 nor http2"),
    ],
)
def test_refuses_what_could_do_harm(load: list[str], arguments: list[str], reason: str) -> None:
    done = run("get", [*load, *arguments])

    assert done.returncode == 1
    assert reason in done.stderr
