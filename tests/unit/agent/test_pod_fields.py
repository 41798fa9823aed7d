"""The fields of a Pod that apply to its VM."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bramley.agent import pod_fields
from bramley.agent.pod_fields import VmSize
from bramley.api.pod import Pod
from bramley.base import errors

Json = dict[str, Any]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CONTAINER = {"name": "vm", "image": "macos"}
TOKEN_VOLUME = {"name": "kube-api-access-x7k2p", "projected": {"sources": None}}


def pod(*, metadata: Json | None = None, status: Json | None = None, **spec: Any) -> Pod:
    body = {
        "metadata": metadata or {},
        "spec": {"containers": [CONTAINER], **spec},
        "status": status or {},
    }
    return msgspec.convert(body, Pod)


def sized(**resources: Json) -> Pod:
    return pod(containers=[{**CONTAINER, "resources": resources}])


@pytest.mark.parametrize(
    ("resources", "size"),
    [
        ({}, VmSize()),
        ({"limits": {"cpu": "4", "memory": "8Gi"}}, VmSize(4, 8192)),
        ({"requests": {"cpu": "2", "memory": "4Gi"}}, VmSize(2, 4096)),
        ({"limits": {"cpu": "4"}, "requests": {"cpu": "2", "memory": "4Gi"}}, VmSize(4, 4096)),
        ({"limits": {"cpu": "3900m", "memory": "8589934591"}}, VmSize(3, 8191)),
        ({"limits": {"cpu": "500m", "memory": "1k"}}, VmSize()),
        ({"limits": {"cpu": "0"}, "requests": {"cpu": "2"}}, VmSize()),
        ({"limits": {"cpu": 6, "memory": 14e9}}, VmSize(6, 13351)),
    ],
)
def test_size_is_the_limit_or_the_request(resources: Json, size: VmSize) -> None:
    assert pod_fields.vm_size(sized(**resources)) == size


def test_empty_size_sets_nothing() -> None:
    assert not VmSize()
    assert VmSize(cpu=1)
    assert VmSize(memory_mb=1)


def test_invalid_quantity_is_refused() -> None:
    with pytest.raises(errors.InvalidSpec, match="memory of 'much' is not a quantity"):
        pod_fields.vm_size(sized(limits={"memory": "much"}))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"initContainers": [CONTAINER]}, "initContainers are not supported for VMs"),
        ({"containers": []}, "the Pod has 0 containers; VMs support one"),
        ({"containers": [CONTAINER, CONTAINER]}, "the Pod has 2 containers; VMs support one"),
        ({"containers": [{"name": "vm"}]}, "the container has no image"),
        ({"volumes": [{"name": "data", "emptyDir": {}}]}, "VMs do not support volume 'data'"),
        (
            {"volumes": [TOKEN_VOLUME, {"name": "all", "projected": {}}]},
            "VMs do not support volume 'all'",
        ),
        (
            {"volumes": [{"name": "kube-api-access-x", "hostPath": {"path": "/"}}]},
            "VMs do not support volume 'kube-api-access-x'",
        ),
        ({"hostNetwork": True}, "hostNetwork is not supported for VMs"),
    ],
)
def test_pod_that_no_vm_supports_is_unsupported(spec: Json, message: str) -> None:
    assert pod_fields.unsupported(pod(**spec)) == message


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"volumes": [TOKEN_VOLUME]},
        {"ephemeralContainers": [CONTAINER]},
        {"tolerations": [{"operator": "Exists"}]},
    ],
)
def test_plain_pod_is_supported(spec: Json) -> None:
    assert pod_fields.unsupported(pod(**spec)) is None


DAEMON = {
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]
}
MACS_ONLY = {"key": "tuist.dev/macos", "operator": "Exists"}


@pytest.mark.parametrize(
    "toleration", [{"operator": "Exists"}, {"operator": "Exists", "effect": "NoSchedule"}]
)
def test_daemon_set_pod_for_every_node_is_unsupported(toleration: Json) -> None:
    message = pod_fields.unsupported(pod(metadata=DAEMON, tolerations=[toleration]))

    assert message is not None
    assert message.startswith("a DaemonSet that tolerates every taint")


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [MACS_ONLY]},
        {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]},
        {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"kubernetes.io/os": "darwin"}},
    ],
)
def test_daemon_set_pod_for_macs_is_supported(spec: Json) -> None:
    assert pod_fields.unsupported(pod(metadata=DAEMON, **spec)) is None


@pytest.mark.parametrize(
    ("seconds", "requested", "grace"),
    [
        (None, None, 30),
        (0, None, 0),
        (90, None, 90),
        (90, 5, 5),
        (90, 0, 0),
        (2**63 - 1, None, 2**31 - 1),
        (90, 2**63 - 1, 2**31 - 1),
        (-5, None, 0),
    ],
)
def test_grace_period_is_the_pods_unless_the_deletion_sets_another(
    seconds: int | None, requested: int | None, grace: int
) -> None:
    deleted = {"deletionGracePeriodSeconds": requested} if requested is not None else {}

    found = pod_fields.grace(pod(metadata=deleted, terminationGracePeriodSeconds=seconds))

    assert found == timedelta(seconds=grace)


def test_pod_may_limit_how_long_it_is_active() -> None:
    assert pod_fields.lifetime(pod()) is None
    assert pod_fields.lifetime(pod(activeDeadlineSeconds=60)) == timedelta(minutes=1)


@pytest.mark.parametrize(("automount", "needed"), [(None, False), (False, False), (True, True)])
def test_token_needs_explicit_automount(automount: bool | None, needed: bool) -> None:
    assert pod_fields.needs_token(pod(automountServiceAccountToken=automount)) is needed


def test_default_service_account() -> None:
    assert pod_fields.service_account(pod()) == "default"
    assert pod_fields.service_account(pod(serviceAccountName="runner")) == "runner"


@pytest.mark.parametrize(
    ("policy", "once"), [("Never", True), ("OnFailure", False), ("Always", False)]
)
def test_other_restart_policies_than_never_are_not_honoured(policy: str, once: bool) -> None:
    assert pod_fields.never_restarts(pod(restartPolicy=policy)) is once


def test_pod_without_a_pool_is_counted_as_unknown() -> None:
    assert pod_fields.pool(pod()) == "unknown"
    assert pod_fields.pool(pod(metadata={"labels": {"tuist.dev/runner-pool": "large"}})) == "large"
