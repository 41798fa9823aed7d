"""The Pod that proves a host: its image, its shape and what it shows."""

from __future__ import annotations

from datetime import datetime

import pytest

from bramley.api.core import Pod
from bramley.api.meta import ObjectMeta
from bramley.api.names import labels
from bramley.api.pod import LocalObjectReference
from bramley.api.runner_pool import RunnerPool, RunnerPoolSpec
from bramley.api.runner_pool_status import RunnerPoolStatus
from bramley.machines import smoke_vm
from bramley.machines.smoke_vm import Proof, SmokeImage
from tests.unit.machines.macs import IMAGE, NOW, a_mac, a_node, a_pod, minutes, seconds

TIMEOUT = minutes(30)


def a_pool(name: str, fleet: str = "f", *, image: str = "new:1", good: str = "") -> RunnerPool:
    return RunnerPool(
        metadata=ObjectMeta(name=name, namespace="runners"),
        spec=RunnerPoolSpec(
            image=image,
            fleet_selector=fleet,
            dispatch_label=name,
            runner_labels=["macOS"],
            replicas=1,
            image_pull_secrets=[LocalObjectReference(name="pull")],
        ),
        status=RunnerPoolStatus(last_good_image=good),
    )


@pytest.mark.parametrize(
    ("fleet", "configured", "pools", "expected"),
    [
        ("f", "", [], None),
        ("f", "", [a_pool("a", "other")], None),
        ("", "", [a_pool("a", "")], None),
        ("f", "smoke:1", [a_pool("a")], SmokeImage("smoke:1", "default")),
        ("f", "", [a_pool("a")], SmokeImage("new:1", "runners", ("pull",))),
        ("f", "", [a_pool("a", good="old:1")], SmokeImage("old:1", "runners", ("pull",))),
        (
            "f",
            "",
            [a_pool("b"), a_pool("c", "other"), a_pool("a", image="a:1")],
            SmokeImage("a:1", "runners", ("pull",)),
        ),
    ],
)
def test_image_to_boot(
    fleet: str, configured: str, pools: list[RunnerPool], expected: SmokeImage | None
) -> None:
    assert smoke_vm.image_for(a_mac(fleet=fleet), configured, pools) == expected


def test_pod_is_bound_to_the_node_and_belongs_to_the_machine() -> None:
    image = SmokeImage("smoke:1", "runners", ("pull",))

    pod = smoke_vm.pod(a_mac(), a_node(tainted=True), image)

    assert (pod.name, pod.namespace) == ("smoke-m", "runners")
    assert pod.metadata.labels == {labels.SMOKE: "true", labels.MACHINE_UID: "uid-m"}
    assert pod.spec.node_name == "m"
    assert [each.operator for each in pod.spec.tolerations] == ["Exists"]
    assert pod.spec.restart_policy == "Never"
    assert pod.spec.automount_service_account_token is False
    assert [each.name for each in pod.spec.image_pull_secrets] == ["pull"]
    assert [each.image for each in pod.spec.containers] == ["smoke:1"]


@pytest.mark.parametrize(
    ("pod", "now", "expected"),
    [
        (a_pod(phase="Pending"), NOW, Proof.BOOTING),
        (a_pod(), NOW + TIMEOUT - seconds(1), Proof.BOOTING),
        (a_pod(), NOW + TIMEOUT, Proof.FAILED),
        (a_pod(ready=True), NOW + TIMEOUT * 9, Proof.BOOTED),
        (a_pod(phase="Failed"), NOW, Proof.FAILED),
        (a_pod(phase="Succeeded"), NOW, Proof.FAILED),
        (a_pod(ready=True, deleting=True), NOW, Proof.ENDING),
        (a_pod(phase="Failed", deleting=True), NOW, Proof.ENDING),
        (a_pod(created=None), NOW + TIMEOUT, Proof.BOOTING),
    ],
)
def test_what_a_pod_shows(pod: Pod, now: datetime, expected: Proof) -> None:
    assert smoke_vm.proof(pod, now, TIMEOUT)[0] is expected


def test_reason_of_a_failure_is_shown() -> None:
    _, ended = smoke_vm.proof(a_pod(phase="Failed", message="no space left"), NOW, TIMEOUT)
    _, late = smoke_vm.proof(a_pod(), NOW + TIMEOUT, TIMEOUT)

    assert ended == f"the smoke VM of {IMAGE.image} has ended: no space left"
    assert late == f"the smoke VM of {IMAGE.image} has not booted in 30 min"
