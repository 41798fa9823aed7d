"""What the fields of a Pod ask of its VM."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bramley.agent.pods import fields
from bramley.agent.pods.fields import VmSize
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
def test_the_size_is_what_the_pod_may_take_or_asks_for(resources: Json, size: VmSize) -> None:
    assert fields.vm_size(sized(**resources)) == size


def test_a_size_says_whether_anything_is_to_be_set() -> None:
    assert not VmSize()
    assert VmSize(cpu=1)
    assert VmSize(memory_mb=1)


def test_an_amount_that_is_none_is_refused() -> None:
    with pytest.raises(errors.InvalidSpec, match="memory of 'much' is no quantity"):
        fields.vm_size(sized(limits={"memory": "much"}))


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"initContainers": [CONTAINER]}, "a VM has no init containers"),
        ({"containers": []}, "the Pod has 0 containers, a VM is one"),
        ({"containers": [CONTAINER, CONTAINER]}, "the Pod has 2 containers, a VM is one"),
        ({"containers": [{"name": "vm"}]}, "the container names no image"),
        ({"volumes": [{"name": "data", "emptyDir": {}}]}, "a VM cannot be given volume 'data'"),
        (
            {"volumes": [TOKEN_VOLUME, {"name": "all", "projected": {}}]},
            "a VM cannot be given volume 'all'",
        ),
        (
            {"volumes": [{"name": "kube-api-access-x", "hostPath": {"path": "/"}}]},
            "a VM cannot be given volume 'kube-api-access-x'",
        ),
        ({"hostNetwork": True}, "a VM has no network of its host"),
    ],
)
def test_what_no_vm_can_be_is_unsupported(spec: Json, told: str) -> None:
    assert fields.unsupported(pod(**spec)) == told


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"volumes": [TOKEN_VOLUME]},
        {"ephemeralContainers": [CONTAINER]},
        {"tolerations": [{"operator": "Exists"}]},
    ],
)
def test_a_plain_pod_is_supported(spec: Json) -> None:
    assert fields.unsupported(pod(**spec)) is None


DAEMON = {
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]
}
MACS_ONLY = {"key": "tuist.dev/macos", "operator": "Exists"}


@pytest.mark.parametrize(
    "toleration", [{"operator": "Exists"}, {"operator": "Exists", "effect": "NoSchedule"}]
)
def test_a_daemon_for_every_machine_is_refused(toleration: Json) -> None:
    told = fields.unsupported(pod(metadata=DAEMON, tolerations=[toleration]))

    assert told is not None
    assert told.startswith("a DaemonSet that tolerates every taint")


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [MACS_ONLY]},
        {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]},
        {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"kubernetes.io/os": "darwin"}},
    ],
)
def test_a_daemon_that_is_meant_for_macs_is_supported(spec: Json) -> None:
    assert fields.unsupported(pod(metadata=DAEMON, **spec)) is None


@pytest.mark.parametrize(
    ("seconds", "asked", "grace"),
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
def test_the_grace_is_the_pods_unless_its_deleter_asks_for_another(
    seconds: int | None, asked: int | None, grace: int
) -> None:
    deleted = {"deletionGracePeriodSeconds": asked} if asked is not None else {}

    found = fields.grace(pod(metadata=deleted, terminationGracePeriodSeconds=seconds))

    assert found == timedelta(seconds=grace)


def test_a_pod_may_limit_how_long_it_is_active() -> None:
    assert fields.lifetime(pod()) is None
    assert fields.lifetime(pod(activeDeadlineSeconds=60)) == timedelta(minutes=1)


@pytest.mark.parametrize(("said", "wants"), [(None, False), (False, False), (True, True)])
def test_a_token_is_for_those_who_ask(said: bool | None, wants: bool) -> None:
    assert fields.wants_token(pod(automountServiceAccountToken=said)) is wants


def test_an_account_that_is_not_named_is_the_default_one() -> None:
    assert fields.service_account(pod()) == "default"
    assert fields.service_account(pod(serviceAccountName="runner")) == "runner"


@pytest.mark.parametrize(
    ("policy", "once"), [("Never", True), ("OnFailure", False), ("Always", False)]
)
def test_only_a_pod_that_is_never_restarted_gets_what_it_expects(policy: str, once: bool) -> None:
    assert fields.is_once(pod(restartPolicy=policy)) is once


def test_a_pod_without_a_pool_is_counted_as_unknown() -> None:
    assert fields.pool(pod()) == "unknown"
    assert fields.pool(pod(metadata={"labels": {"tuist.dev/runner-pool": "large"}})) == "large"
