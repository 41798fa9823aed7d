"""The load generator measures a real server correctly and refuses dangerous arguments."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.programs import run_program
from tools.kube import go_build, programs
from tools.kube.control_plane import RealCluster

NAMESPACE = "load-generator"


@pytest.fixture(scope="module")
def load(real_cluster: RealCluster) -> list[str]:
    go_build.ensure(["load"])
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
    return run_program([program, work, *arguments], timeout=300, env=environment)


def result(work: str, arguments: list[str]) -> Any:
    done = run(work, arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def measured(work: str, arguments: list[str], of: str = "count") -> Any:
    """Measure, and again for longer if a busy machine completed no request in that time."""
    for duration in ("500ms", "10s", "100s"):
        done = run(work, [*arguments, "-duration", duration])
        found = json.loads(done.stdout) if done.returncode == 0 else {}
        if found.get(of) or (done.returncode and "nothing was written" not in done.stderr):
            break
    assert found.get(of), done
    return found


@pytest.mark.parametrize("protocol", ["http1", "http2"])
@pytest.mark.parametrize("work", ["patch", "get"])
def test_counts_and_times_requests(load: list[str], work: str, protocol: str) -> None:
    result("fill", load)

    found = measured(work, [*load, "-protocol", protocol, "-clients", "4"])

    assert found["errors"] == 0
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]


def test_incomplete_list_is_not_counted(load: list[str]) -> None:
    result("fill", load)

    found = measured("list", load, of="errors")

    # Kubernetes creates a ConfigMap in every namespace, so there is one more than requested.
    assert found["count"] == 0
    assert found["first_error"] == "a list of 8 objects holds 9"
    assert measured("list", [*load, "-objects", "9"])["errors"] == 0


def test_every_watcher_sees_every_write(load: list[str]) -> None:
    result("fill", load)

    found = measured("watch", [*load, "-clients", "5", "-writers", "3"], of="writes")

    assert found["count"] == found["writes"] * 5


def test_refused_request_is_counted_as_an_error_only(load: list[str]) -> None:
    found = measured("get", [*load, "-namespace", "no-such-namespace"], of="errors")

    assert found["count"] == 0
    assert " 404 " in found["first_error"]


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
        return False  # kubectl reports "no" by its exit code


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
def test_dangerous_arguments_are_refused(
    load: list[str], arguments: list[str], reason: str
) -> None:
    done = run("get", [*load, *arguments])

    assert done.returncode == 1
    assert reason in done.stderr
