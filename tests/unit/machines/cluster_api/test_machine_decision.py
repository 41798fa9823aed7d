from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bramley.api import conditions
from bramley.api.cluster_api import MachineDeletion
from bramley.api.names import annotations as annotation_names
from bramley.api.names import cluster_api as names
from bramley.api.names import labels
from bramley.api.scaleway_machine import MachineAddress
from bramley.machines.cluster_api.machine_decision import (
    Act,
    Decision,
    Evict,
    Observed,
    SetProviderID,
    decide,
)
from bramley.runtime.outcome import CheckAgain, Settled
from tests.unit.machines.cluster_api.objects_of_a_cluster import (
    NOW,
    PROVIDER_ID,
    a_cluster,
    a_machine,
    a_node,
    a_pod,
    an_infrastructure,
)

JOB = a_pod("job", labels={labels.RUNNER: "true"})
WEB = a_pod("web")


def decision(machine: Any = None, **observed: Any) -> Decision:
    found = {"machine": machine or a_machine(), "cluster": a_cluster(), **observed}
    return decide(Observed(**found), NOW)


def kinds(made: Decision) -> list[str]:
    return [each.kind if isinstance(each, Act) else type(each).__name__ for each in made.steps]


CLONED = an_infrastructure()
READY = an_infrastructure(ready=True)
BOUND: dict[str, Any] = {"spec": {"provider_id": PROVIDER_ID}, "infrastructure_ready": True}


@pytest.mark.parametrize(
    ("machine", "observed", "steps", "phase"),
    [
        pytest.param(
            a_machine(finalizer=False),
            {"has_template": True},
            *(["add finalizer", "clone infrastructure"], "Provisioning"),
            id="new",
        ),
        pytest.param(a_machine(), {}, [], "Provisioning", id="without a MachineSet"),
        pytest.param(
            a_machine(),
            *({"infrastructure": CLONED}, [], "Provisioning"),
            id="cloned",
        ),
        pytest.param(
            a_machine(),
            *({"infrastructure": READY}, ["SetProviderID"], "Provisioned"),
            id="infrastructure is ready",
        ),
        pytest.param(
            a_machine(**BOUND),
            *({"infrastructure": READY, "node": a_node()}, [], "Running"),
            id="Node found",
        ),
        pytest.param(
            a_machine(**BOUND),
            *({"has_template": True}, [], "Failed"),
            id="infrastructure was deleted after it was ready",
        ),
        pytest.param(a_machine(), {"cluster": None}, [], "Pending", id="without a Cluster"),
        pytest.param(
            a_machine(),
            {"infrastructure": an_infrastructure(failure_reason="Drift", failure_message="why")},
            *([], "Failed"),
            id="infrastructure failed",
        ),
    ],
)
def test_provisioning(machine: Any, observed: dict[str, Any], steps: list[str], phase: str) -> None:
    made = decision(machine, **observed)

    assert (kinds(made), made.status.phase, made.outcome) == (steps, phase, Settled())


def test_ready_infrastructure_gives_provider_id_and_addresses() -> None:
    address = MachineAddress(type="ExternalIP", address="192.0.2.1")
    infrastructure = an_infrastructure(ready=True, addresses=[address])

    made = decision(infrastructure=infrastructure)

    assert SetProviderID(PROVIDER_ID) in made.steps
    assert made.status.addresses == [address]


@pytest.mark.parametrize(
    ("node", "status", "reason"),
    [
        (a_node(), "True", ""),
        (a_node(ready="False"), "False", names.NODE_CONDITIONS_FAILED),
        (a_node(ready="Unknown"), "Unknown", names.NODE_CONDITIONS_FAILED),
        (None, "False", names.NODE_PROVISIONING),
    ],
)
def test_condition_of_the_node(node: Any, status: str, reason: str) -> None:
    made = decision(a_machine(**BOUND), infrastructure=READY, node=node)

    found = conditions.find(made.status.conditions, names.NODE_HEALTHY)
    assert found is not None
    assert (found.status, found.reason) == (status, reason)


STARTED = MachineDeletion(node_drain_start_time=NOW - timedelta(minutes=1))
DELETED = a_machine(deleting=True, ready=True, deletion=STARTED, **BOUND)
CORDONED = a_node(cordoned=True)


@pytest.mark.parametrize(
    ("machine", "observed", "steps"),
    [
        pytest.param(
            DELETED,
            {"infrastructure": READY, "node": a_node(), "pods": [WEB]},
            ["cordon Node"],
            id="cordon before the first eviction",
        ),
        pytest.param(
            a_machine(deleting=True, ready=True, **BOUND),
            {"infrastructure": READY, "node": CORDONED},
            [],
            id="a Pod may have been bound just before the cordon",
        ),
        pytest.param(
            DELETED,
            {"infrastructure": READY, "node": CORDONED, "pods": [WEB, JOB]},
            ["Evict"],
            id="evict, but no runner",
        ),
        pytest.param(
            DELETED,
            {"infrastructure": READY, "node": CORDONED, "pods": [JOB]},
            [],
            id="wait for the runner",
        ),
        pytest.param(
            DELETED,
            {"infrastructure": READY, "node": CORDONED},
            ["delete infrastructure"],
            id="drained",
        ),
        pytest.param(
            DELETED,
            {"infrastructure": an_infrastructure(ready=True, deleting=True), "node": CORDONED},
            [],
            id="wait for the infrastructure",
        ),
        pytest.param(
            DELETED, {"node": CORDONED}, ["delete Node", "remove finalizer"], id="released"
        ),
        pytest.param(DELETED, {}, ["remove finalizer"], id="without a Node"),
        pytest.param(
            DELETED,
            {"infrastructure": CLONED},
            ["delete infrastructure"],
            id="never became a Node",
        ),
        pytest.param(
            DELETED,
            {"cluster": None, "infrastructure": READY, "node": CORDONED, "pods": [JOB]},
            [],
            id="without a Cluster jobs are waited for, too",
        ),
        pytest.param(
            a_machine(deleting=True, finalizer=False), {"node": CORDONED}, [], id="no finalizer"
        ),
        pytest.param(
            a_machine(deleting=True, annotations={names.EXCLUDE_NODE_DRAINING: ""}, **BOUND),
            {"infrastructure": READY, "node": a_node(), "pods": [JOB]},
            ["delete infrastructure"],
            id="excluded from draining",
        ),
    ],
)
def test_deletion(machine: Any, observed: dict[str, Any], steps: list[str]) -> None:
    made = decision(machine, **observed)

    assert (kinds(made), made.status.phase) == (steps, "Deleting")


def test_drain_reports_what_it_waits_for() -> None:
    made = decision(DELETED, infrastructure=READY, node=CORDONED, pods=[JOB])

    assert made.outcome == CheckAgain(timedelta(seconds=10), "Waiting for Pods: n/job")
    assert made.status.deletion == STARTED
    found = conditions.find(made.status.conditions, names.DRAINING_SUCCEEDED)
    assert found is not None
    assert (found.status, found.message) == ("False", "Waiting for Pods: n/job")


def test_drain_ends_at_its_timeout() -> None:
    def drained_since(minutes: int) -> Decision:
        started = MachineDeletion(node_drain_start_time=NOW - timedelta(minutes=minutes))
        spec = {"provider_id": PROVIDER_ID, "node_drain_timeout": "10m"}
        machine = a_machine(deleting=True, spec=spec, deletion=started)
        return decision(machine, infrastructure=READY, node=CORDONED, pods=[JOB])

    assert kinds(drained_since(9)) == []
    assert kinds(drained_since(10)) == ["delete infrastructure"]


@pytest.mark.parametrize("machine", [a_machine(), DELETED], ids=["alive", "deleted"])
def test_paused_machine_is_left_alone(machine: Any) -> None:
    made = decision(
        machine, cluster=a_cluster(paused=True), infrastructure=READY, node=a_node(), pods=[WEB]
    )

    assert made == Decision((), machine.status)


def test_annotation_pauses_one_machine() -> None:
    machine = a_machine(annotations={annotation_names.PAUSED: "true"}, finalizer=False)

    assert decision(machine, has_template=True).steps == ()


@given(
    deleting=st.booleans(),
    infrastructure=st.sampled_from(
        [None, CLONED, READY, an_infrastructure(ready=True, deleting=True)]
    ),
    node=st.sampled_from([None, a_node(), CORDONED, a_node(ready="Unknown", cordoned=True)]),
    pods=st.lists(st.sampled_from([WEB, JOB, a_pod("done", phase="Succeeded")]), max_size=3),
    cluster=st.sampled_from([None, a_cluster()]),
)
def test_no_decision_endangers_a_running_job(
    deleting: bool, infrastructure: Any, node: Any, pods: list[Any], cluster: Any
) -> None:
    machine = a_machine(deleting=deleting, ready=True, **BOUND)
    observed = Observed(
        machine=machine, cluster=cluster, infrastructure=infrastructure, node=node, pods=pods
    )

    made = decide(observed, NOW)

    assert not any(isinstance(step, Evict) and step.pod is JOB for step in made.steps)
    if "delete infrastructure" in kinds(made):
        assert deleting
        assert node is None or (
            node.spec.unschedulable and not any(each in (WEB, JOB) for each in pods)
        )
    if "remove finalizer" in kinds(made):
        assert infrastructure is None
    # A repetition with the reported status decides the same.
    again = decide(
        Observed(
            machine=replace(machine, status=made.status),
            cluster=cluster,
            infrastructure=infrastructure,
            node=node,
            pods=pods,
        ),
        NOW,
    )
    assert again.status == made.status
