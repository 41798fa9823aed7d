"""The explanation of machines and MacHosts, as a table over their states."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from bramley.api.cluster_api import Cluster, ClusterSpec, ClusterStatus, Machine, MachineSpec
from bramley.api.coordination import Lease, LeaseSpec
from bramley.api.core import Node, NodeSpec, Pod
from bramley.api.mac_host import MacHost, MacHostSpec
from bramley.api.mac_status import MachineCondition, MacStatus
from bramley.api.meta import ObjectMeta
from bramley.api.names import annotations as marks_of
from bramley.api.names import cluster_api as capi
from bramley.api.names import events, labels
from bramley.api.pod import PodSpec, PodStatus
from bramley.api.scaleway_machine import (
    MachineAddress,
    ScalewayAppleSiliconMachine,
    ScalewayAppleSiliconMachineSpec,
    ScalewayAppleSiliconMachineStatus,
)
from bramley.base.explanation import Explanation
from bramley.machines.explanation import explain_mac
from bramley.machines.explanation_facts import MacFacts

NOW = datetime(2026, 11, 19, 12, tzinfo=UTC)
SINCE = NOW - timedelta(minutes=5)
STAGES = ("Provisioned", "Bootstrapped", "NodeReady", "Proven", "UpToDate", "Ready")


def stages(false: str = "", reason: str = "", message: str = "") -> list[MachineCondition]:
    """Return the conditions of a Mac that has reached a stage; those after it are missing."""
    found: list[MachineCondition] = []
    for type in STAGES:
        if type == false:
            condition = MachineCondition(
                type=type, status="False", reason=reason, message=message, severity="Warning"
            )
            return [*found, _since(condition)]
        found.append(_since(MachineCondition(type=type, status="True")))
    return found


def _since(condition: MachineCondition) -> MachineCondition:
    return replace(condition, last_transition_time=SINCE)


def a_machine(
    *false: str, name: str = "a", marks: dict[str, str] | None = None, **status: Any
) -> ScalewayAppleSiliconMachine:
    """Return a machine that has reached a stage, given by its condition, reason and message."""
    deleted = status.pop("deleted", None)
    fields = {"phase": "Ready", "server_id": "id-1", "conditions": stages(*false), **status}
    return ScalewayAppleSiliconMachine(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            annotations=marks or {},
            deletion_timestamp=deleted,
        ),
        spec=ScalewayAppleSiliconMachineSpec(fleet_name="fleet-a"),
        status=ScalewayAppleSiliconMachineStatus(
            addresses=[MachineAddress(type="ExternalIP", address="192.0.2.7")], **fields
        ),
    )


def a_mac_host(*false: str, **status: Any) -> MacHost:
    """Return a MacHost that has reached a stage."""
    deleted = status.pop("deleted", None)
    metadata = ObjectMeta(
        name="own", namespace="default", uid="uid-own", deletion_timestamp=deleted
    )
    spec = MacHostSpec(address="192.0.2.9", credentials_secret_name="login")
    return MacHost(
        metadata=metadata, spec=spec, status=MacStatus(conditions=stages(*false), **status)
    )


def a_pod(name: str, *, is_busy: bool = False, is_runner: bool = True) -> Pod:
    """Return a Pod on a Mac."""
    marks = {labels.RUNNER: labels.TRUE} if is_runner else {}
    marks |= {labels.RUNNER_POOL_OWNER: "acme"} if is_busy else {}
    return Pod(
        metadata=ObjectMeta(name=name, namespace="tuist-runners", labels=marks),
        spec=PodSpec(node_name="a"),
        status=PodStatus(phase="Running"),
    )


def explained(mac: Any, **facts: Any) -> Explanation:
    return explain_mac(MacFacts(mac=mac, **facts), now=NOW)


FAILED_ONCE: dict[str, Any] = {
    "bootstrap_attempts": 1,
    "last_bootstrap_failure_time": NOW - timedelta(seconds=20),
}
FAILED_THRICE: dict[str, Any] = {**FAILED_ONCE, "bootstrap_attempts": 3}
FAILED_EIGHT: dict[str, Any] = {
    **FAILED_ONCE,
    "bootstrap_attempts": 8,
    "bootstrap_reboot_issued": True,
}
UPDATE_FAILED: dict[str, Any] = {
    "tart_kubelet_update_attempts": 2,
    "last_update_failure_time": NOW - timedelta(seconds=15),
}
USED_UP: dict[str, Any] = {
    **UPDATE_FAILED,
    "tart_kubelet_update_attempts": 5,
    "failed_host_config_hash": "x",
}


@pytest.mark.parametrize(
    ("mac", "summary", "waits_for", "then"),
    [
        (a_machine(), "serves with the desired configuration", "", ""),
        (
            a_machine("Provisioned", events.NO_AVAILABLE_HOST, "no host of type M2-L is ready"),
            "has no host",
            "no host of type M2-L is ready",
            "the first host that fits is claimed",
        ),
        (
            a_machine("Provisioned", events.HOST_NAME_CHANGED, "the host has the name x"),
            "has no host",
            "the host has the name x",
            "rename the host back",
        ),
        (
            a_machine("Bootstrapped", events.BOOTSTRAPPING, "…", step="agent (21/26)"),
            "at the step agent (21/26)",
            "the step agent (21/26)",
            "after 3 failures in a row the host is rebooted, after 8 it is released",
        ),
        (
            a_machine("Bootstrapped", events.BOOTSTRAPPING, "…"),
            "is going to be set up",
            "--machine-max-concurrent-reconciles",
            "its Node must become Ready",
        ),
        (
            a_machine("Bootstrapped", events.CREDENTIALS_UNAVAILABLE, "Secret x is missing"),
            "cannot be set up yet",
            "Secret x is missing",
            "tried again by itself",
        ),
        (
            a_machine("Bootstrapped", events.BOOTSTRAP_FAILED, "no SSH", **FAILED_ONCE),
            "1 attempt to set up the host failed: no SSH",
            "attempt 2, in 40 s",
            "after 3 failures in a row the host is rebooted",
        ),
        (
            a_machine("Bootstrapped", events.BOOTSTRAP_FAILED, "no SSH", **FAILED_THRICE),
            "3 attempts to set up the host failed",
            "the reboot of the host",
            "after 8 it is released",
        ),
        (
            a_machine("Bootstrapped", events.BOOTSTRAP_FAILED, "no SSH", **FAILED_EIGHT),
            "8 attempts to set up the host failed",
            "the release of this host",
            "the host was rebooted once",
        ),
        (
            a_mac_host("Bootstrapped", events.BOOTSTRAP_FAILED, "no SSH", **FAILED_EIGHT),
            "8 attempts to set up the host failed",
            "attempt 9, in 9 min",
            "it is tried every 10 min",
        ),
        (
            a_machine("NodeReady", events.NODE_MISSING, "there is no Node a"),
            "its Node does not serve",
            "there is no Node a",
            "after two minutes without a Node",
        ),
        (
            a_machine("Proven", events.SMOKE_VM_BOOTING, "a VM of x boots"),
            "must prove that it works",
            "a VM of x boots",
            "longer than 30 min is a failed attempt",
        ),
        (
            a_machine("UpToDate", events.WAITING_FOR_CANARY, "b is updated first"),
            "waits for its turn to be updated",
            "b is updated first",
            "one host of the fleet is updated first",
        ),
        (
            a_machine("UpToDate", events.UPDATING, "…", step="agent-job (22/26)"),
            "gets the desired configuration",
            "the step agent-job (22/26)",
            "running VMs continue",
        ),
        (
            a_machine("UpToDate", events.REPLACING_TART, "the Node is drained first"),
            "gets another Tart",
            "the Node is drained first",
            "VMs are taken again",
        ),
        (
            a_machine("UpToDate", events.AGENT_ROLL_FAILED, "no space", **UPDATE_FAILED),
            "2 attempts to update the host failed: no space",
            "the next attempt, in 45 s",
            "after 5 failures in a row it is left as it is",
        ),
        (
            a_machine("UpToDate", events.UPDATE_EXCEEDED_RETRIES, "no space", **USED_UP),
            "it serves with its old configuration",
            "the next attempt, in 29 min",
            "another configuration is tried at once",
        ),
        (
            a_machine(marks={marks_of.PAUSED: ""}),
            "it is paused",
            "kubectl annotate samm a cluster.x-k8s.io/paused- -n default",
            "",
        ),
        (
            a_machine(marks={marks_of.QUARANTINE_HOST: "noisy"}),
            "being quarantined",
            "bramley machines runs",
            "that host is not adopted again",
        ),
        (
            a_machine(marks={marks_of.RELEASE_HOST: "true"}),
            "being released",
            "bramley machines runs",
            "the machine gets another one",
        ),
        (a_machine(deleted=SINCE), "being deleted", "bramley machines", "goes back to the pool"),
        (a_mac_host(deleted=SINCE), "being deleted", "", "everything but Tart is removed"),
        (
            a_mac_host("Provisioned", events.CLEANUP_FAILED, "no SSH", deleted=SINCE),
            "being deleted",
            "no SSH",
            "everything but Tart is removed",
        ),
        (
            a_machine(conditions=[]),
            "the manager has not acted on it",
            "check that bramley machines runs and leads",
            "",
        ),
    ],
)
def test_state_is_explained(mac: Any, summary: str, waits_for: str, then: str) -> None:
    found = explained(mac, fleet=[mac])

    assert summary in found.summary
    assert waits_for in "; ".join(found.waits_for)
    assert then in found.next


def test_deletion_waits_for_jobs_and_retires_others() -> None:
    pods = [
        a_pod("busy", is_busy=True),
        a_pod("idle"),
        a_pod("other", is_runner=False),
    ]
    node = Node(metadata=ObjectMeta(name="a"))

    found = explained(a_machine(deleted=SINCE), node=node, pods=pods)

    assert found.state == "Deleting"
    assert found.since == SINCE
    assert found.waits_for == (
        "Pod busy: has a job, which is waited for",
        "Pod idle: is idle, and retired by its pool",
        "Pod other: is evicted",
    )
    assert [(each.name, each.state) for each in found.pods] == [
        ("busy", "has a job"),
        ("idle", "Running"),
        ("other", "Running"),
    ]


def test_deletion_waits_for_the_job_of_a_builder() -> None:
    text = "the runner a of this builder runs a job"
    machine = a_machine("UpToDate", events.BUILDER_BUSY, text, deleted=SINCE)

    assert explained(machine).waits_for == (text,)
    marks = {marks_of.RELEASE_HOST: "true"}
    swapped = a_machine("UpToDate", events.BUILDER_BUSY, text, marks=marks)
    assert explained(swapped).waits_for == (text,)


def test_place_in_the_queue_of_updates_is_shown() -> None:
    waiting = ("UpToDate", events.WAITING_FOR_SLOT, "1 of 4 hosts is being updated")
    machine = a_machine(*waiting, name="c")
    fleet = [
        a_machine(name="a"),
        a_machine("UpToDate", events.UPDATING, "…", name="b", step="agent (21/26)"),
        machine,
        a_machine(*waiting, name="d"),
    ]

    found = explained(machine, fleet=fleet)

    assert found.summary.endswith(
        "1 of 4 hosts have the configuration, 1 of at most 1 are being updated, 2 wait, this one at place 1 by name"
    )
    assert [(each.name, each.state, each.image) for each in found.hosts] == [
        ("b", "Ready at the step agent (21/26)", events.UPDATING),
        ("d", "Ready", events.WAITING_FOR_SLOT),
    ]


def an_owner(mark: str = "") -> Machine:
    return Machine(
        metadata=ObjectMeta(
            name="a-owner",
            namespace="default",
            labels={capi.DEPLOYMENT_NAME: "fleet-a"},
            annotations={capi.DELETE_MACHINE: mark} if mark else {},
        ),
        spec=MachineSpec(cluster_name="c"),
    )


def a_cluster(*, paused: bool = False, ready: bool = True) -> Cluster:
    return Cluster(
        metadata=ObjectMeta(name="c", namespace="default"),
        spec=ClusterSpec(paused=paused),
        status=ClusterStatus(infrastructure_ready=ready),
    )


@pytest.mark.parametrize(
    ("cluster", "waits_for"),
    [
        (None, "Cluster c, which does not exist"),
        (a_cluster(ready=False), "status.infrastructureReady of Cluster c"),
        (a_cluster(paused=True), "spec.paused of Cluster c"),
    ],
)
def test_cluster_that_is_waited_for_is_named(cluster: Cluster | None, waits_for: str) -> None:
    found = explained(a_machine(), owner=an_owner(), cluster=cluster)

    assert waits_for in found.waits_for[0]


def test_notes_name_owner_host_and_commands() -> None:
    owner = an_owner(mark=marks_of.IDLE)
    lease = Lease(
        metadata=ObjectMeta(name="mac-host-id-1"),
        spec=LeaseSpec(holder_identity="default/b/uid-b"),
    )
    marks = {marks_of.CORDONED_BY: "drain"}
    node = Node(metadata=ObjectMeta(name="a", annotations=marks), spec=NodeSpec(unschedulable=True))

    found = explained(a_machine(), owner=owner, cluster=a_cluster(), lease=lease, node=node)

    assert found.notes == (
        "it belongs to the Machine a-owner of the MachineDeployment fleet-a, in the Cluster c",
        "it has no job, so a scale-down deletes it before those with one",
        "its host is id-1 in fr-par-1, 192.0.2.7",
        "the Lease mac-host-id-1 of its host is held by default/b/uid-b",
        "the manager has cordoned the Node a",
        "to get another host: kubectl annotate samm a tuist.dev/release-host=true -n default",
        "the same, and never this host again: kubectl annotate samm a tuist.dev/quarantine-host=REASON -n default",
        "to leave it as it is for a while: kubectl annotate samm a cluster.x-k8s.io/paused=true -n default",
        "to replace Tart once it runs no VM: kubectl annotate samm a tuist.dev/replace-tart=true -n default",
    )


def test_mac_of_a_team_can_be_deleted_without_cleaning_it() -> None:
    found = explained(a_mac_host(deleted=SINCE))

    assert found.subject == "machost default/own"
    assert found.notes == (
        "its Mac is m1@192.0.2.9:22",
        "to delete it without cleaning the Mac: kubectl annotate machost own tuist.dev/skip-cleanup=true -n default",
    )


def test_severe_conditions_are_problems() -> None:
    found = explained(a_machine("Bootstrapped", events.BOOTSTRAP_FAILED, "no SSH"))

    assert [(each.type, each.reason, each.message) for each in found.problems] == [
        ("Bootstrapped", events.BOOTSTRAP_FAILED, "no SSH")
    ]
