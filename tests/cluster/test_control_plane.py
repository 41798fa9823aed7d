"""The real control plane that other tests use works, and stops without leaving anything."""

from __future__ import annotations

import base64
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.process.threaded import in_a_thread
from tools.kube import control_plane, probe, processes, programs
from tools.kube.control_plane import RealCluster
from tools.kube.flags import Options
from tools.kube.instance import Instance, fresh_name

ROOT = Path(__file__).parents[2]
SMALL = Options(controller_manager=False, scheduler=False, durable=False)


def eventually(condition: Callable[[], Any], *, seconds: float = 180) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.1)
    return answer


def found(cluster: RealCluster, *arguments: str) -> Any:
    output = cluster.kubectl("get", *arguments, "--ignore-not-found", "-o", "json")
    return json.loads(output) if output else None


# Pending Pods of other tests must not occupy the Node.
OURS = {"key": "test", "value": "ours", "effect": "NoSchedule"}


def a_node(name: str) -> str:
    metadata = {"name": name, "labels": {"test": name}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": [OURS]}}
    return json.dumps(node)


def heartbeat(cluster: RealCluster, node: str) -> None:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    details = {"reason": "Test", "message": "set by the test", "lastHeartbeatTime": now}
    ready = {"type": "Ready", "status": "True", **details}
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "2"}
    status = {"conditions": [ready], "capacity": capacity, "allocatable": capacity}
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    cluster.kubectl("patch", "node", node, *patch)


def a_pod(name: str, *, on: str) -> str:
    spec = {
        "nodeSelector": {"test": on},
        "tolerations": [OURS],
        "containers": [{"name": "vm", "image": "nothing"}],
    }
    metadata = {"name": name}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return json.dumps(pod)


@in_a_thread
def test_runs_the_version_that_go_mod_pins(real_cluster: RealCluster) -> None:
    versions = json.loads(real_cluster.kubectl("version", "-o", "json"))

    assert versions["serverVersion"]["gitVersion"] == programs.KUBE.version
    assert versions["clientVersion"]["gitVersion"] == programs.KUBE.version
    assert versions["serverVersion"]["minor"] == programs.KUBE.version.split(".")[1]


@in_a_thread
def test_is_ready_and_only_the_owner_can_read_its_keys(real_cluster: RealCluster) -> None:
    context = probe.admin_context(real_cluster.pki)

    # It may be unready while it waits for the disk: the server gives etcd two seconds to answer.
    port = real_cluster.written.ports.apiserver
    eventually(lambda: probe.get(port, "/readyz", context) == (200, b"ok"))
    secrets = [real_cluster.kubeconfig, *real_cluster.pki.rglob("*.key")]
    secrets += real_cluster.pki.glob("*.yaml")
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}
    assert stat.S_IMODE(real_cluster.instance.folder.stat().st_mode) == 0o700


@in_a_thread
def test_issues_service_account_tokens_that_it_accepts(real_cluster: RealCluster) -> None:
    eventually(lambda: found(real_cluster, "serviceaccount", "default"))

    token = real_cluster.kubectl("create", "token", "default").strip()

    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["sub"] == "system:serviceaccount:default:default"
    anonymous = f"--kubeconfig={os.devnull}"
    server = f"--server={real_cluster.server}"
    authority = f"--certificate-authority={real_cluster.pki / 'ca.crt'}"
    who = real_cluster.kubectl(
        anonymous, server, authority, f"--token={token}", "auth", "whoami", "-o", "json"
    )
    assert json.loads(who)["status"]["userInfo"]["username"] == claims["sub"]


@in_a_thread
def test_schedules_a_pod_onto_a_ready_node(real_cluster: RealCluster) -> None:
    real_cluster.kubectl("create", "-f", "-", stdin=a_node("scheduling"))
    # Nodes are created with a taint, which the node lifecycle controller removes once they are ready.
    real_cluster.kubectl("create", "-f", "-", stdin=a_pod("scheduled", on="scheduling"))

    def placed() -> Any:
        # In each attempt: a Node without heartbeats becomes unready.
        heartbeat(real_cluster, "scheduling")
        return found(real_cluster, "pod", "scheduled")["spec"].get("nodeName")

    node = eventually(placed)

    assert node == "scheduling"
    real_cluster.kubectl("delete", "pod", "scheduled", "--force", "--grace-period=0")
    real_cluster.kubectl("delete", "node", "scheduling")


@in_a_thread
def test_deletes_a_namespace_with_what_is_in_it(real_cluster: RealCluster) -> None:
    real_cluster.kubectl("create", "namespace", "short-lived")
    real_cluster.kubectl("-n", "short-lived", "create", "configmap", "inside", "--from-literal=a=b")

    real_cluster.kubectl("delete", "namespace", "short-lived", "--wait=false")

    eventually(lambda: found(real_cluster, "namespace", "short-lived") is None)


@in_a_thread
def test_signs_certificates_for_node_agents(real_cluster: RealCluster) -> None:
    pair = real_cluster.client_certificate("system:node:mac-1", groups=("system:nodes",))
    pair.write(real_cluster.pki, "mac-1")

    who = real_cluster.kubectl(
        f"--kubeconfig={os.devnull}",
        f"--server={real_cluster.server}",
        f"--certificate-authority={real_cluster.pki / 'ca.crt'}",
        f"--client-certificate={real_cluster.pki / 'mac-1.crt'}",
        f"--client-key={real_cluster.pki / 'mac-1.key'}",
        *("auth", "whoami", "-o", "json"),
    )

    user = json.loads(who)["status"]["userInfo"]
    assert (user["username"], "system:nodes" in user["groups"]) == ("system:node:mac-1", True)


@contextmanager
def small_instance() -> Iterator[Instance]:
    """Yield a separate instance, which is removed in any case."""
    instance = Instance.named(fresh_name("test"))
    try:
        yield instance
    finally:
        control_plane.down(instance)


@in_a_thread
def test_up_changes_nothing_on_a_running_instance_with_the_same_options(
    real_cluster: RealCluster,
) -> None:
    with small_instance() as instance:
        first = control_plane.up(instance, SMALL)

        assert control_plane.up(instance, SMALL) == first


@in_a_thread
def test_up_repairs_a_half_dead_instance_and_keeps_its_data(real_cluster: RealCluster) -> None:
    with small_instance() as instance:
        before = RealCluster(instance, control_plane.up(instance, SMALL))
        before.kubectl("create", "configmap", "kept", "--from-literal=a=b")
        os.kill(before.process("kube-apiserver").pid, signal.SIGKILL)
        eventually(lambda: not processes.is_running(before.process("kube-apiserver")))

        after = RealCluster(instance, control_plane.up(instance, SMALL))

        assert found(after, "configmap", "kept")["data"] == {"a": "b"}


@in_a_thread
def test_down_leaves_no_process_and_no_folder(real_cluster: RealCluster) -> None:
    with small_instance() as instance:
        written = control_plane.up(instance, SMALL)

        assert control_plane.down(instance)

        assert [record.name for record in written.processes if processes.is_running(record)] == []
        assert not instance.folder.exists()
        assert not instance.lock.exists()


@in_a_thread
def test_a_failed_start_is_reported_with_the_end_of_the_log(real_cluster: RealCluster) -> None:
    broken = Options(
        controller_manager=False, scheduler=False, extra={"kube-apiserver": ("--no-such-flag",)}
    )

    with small_instance() as instance:
        with pytest.raises(control_plane.StartFailed, match="unknown flag: --no-such-flag"):
            control_plane.up(instance, broken)

        written = instance.read()
    assert written is not None
    assert written.processes == ()


STARTER = """
import sys, time
from tools.kube import control_plane
from tools.kube.flags import Options
options = Options(controller_manager=False, scheduler=False, durable=False)
with control_plane.running(options, purpose="crash") as cluster:
    print(cluster.instance.folder, flush=True)
    time.sleep(600)
"""


@in_a_thread
def test_servers_stop_when_the_process_that_started_them_is_killed(
    real_cluster: RealCluster,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as starter:
        assert starter.stdout is not None
        instance = Instance(Path(starter.stdout.readline().decode().strip()))
        written = instance.read()
        starter.kill()

    assert written is not None
    assert len(written.processes) == 2
    eventually(lambda: not instance.folder.exists())
    assert [record.name for record in written.processes if processes.is_running(record)] == []
