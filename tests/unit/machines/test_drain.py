from __future__ import annotations

from datetime import timedelta

import pytest

from bramley.api.core import Pod
from bramley.api.names import cluster_api as names
from bramley.api.names import labels
from bramley.machines import drain
from tests.unit.machines.cluster_api.objects_of_a_cluster import NOW, a_machine, a_node, a_pod

RUNNER = {labels.RUNNER: "true"}


@pytest.mark.parametrize(
    ("pod", "is_evicted", "remains"),
    [
        pytest.param(a_pod("p"), True, True, id="ordinary"),
        pytest.param(a_pod("p", owner="ReplicaSet"), True, True, id="of a ReplicaSet"),
        pytest.param(a_pod("p", owner="DaemonSet"), False, False, id="of a DaemonSet"),
        pytest.param(a_pod("p", annotations={names.MIRROR_POD: "x"}), False, False, id="mirror"),
        pytest.param(a_pod("p", phase="Succeeded"), False, False, id="completed"),
        pytest.param(a_pod("p", phase="Failed"), False, False, id="failed"),
        pytest.param(a_pod("p", deleting=True), False, True, id="being deleted"),
        pytest.param(a_pod("p", labels=RUNNER), False, True, id="runner"),
        pytest.param(a_pod("p", labels=RUNNER, phase="Succeeded"), False, False, id="ended runner"),
        pytest.param(a_pod("p", labels=RUNNER, deleting=True), False, True, id="deleted runner"),
    ],
)
def test_pods_of_a_drained_node(pod: Pod, is_evicted: bool, remains: bool) -> None:
    plan = drain.plan(a_node(), [pod])

    assert (plan.evict, plan.remaining) == (
        (pod,) if is_evicted else (),
        (pod,) if remains else (),
    )


def test_deletions_on_an_unreachable_node_are_not_waited_for() -> None:
    pods = [a_pod("gone", deleting=True), a_pod("job", labels=RUNNER)]

    plan = drain.plan(a_node(ready="Unknown"), pods)

    assert [each.name for each in plan.remaining] == ["job"]


def test_message_names_the_first_pods() -> None:
    plan = drain.plan(a_node(), [a_pod(f"p{number}") for number in range(7)])

    assert plan.message == "Waiting for Pods: n/p0, n/p1, n/p2, n/p3, n/p4 and 2 more"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(None, 0), ("0s", 0), ("10m", 600), ("1h0m30s", 3630), ("1.5h", 5400), ("250ms", 0.25)],
)
def test_durations_of_go(text: str | None, seconds: float) -> None:
    assert drain.duration(text) == timedelta(seconds=seconds)


def test_drain_without_a_timeout_is_unlimited() -> None:
    assert drain.time_left(a_machine(), NOW, NOW + timedelta(days=9)) is None


def test_drain_timeout_ends_at_zero() -> None:
    machine = a_machine(spec={"node_drain_timeout": "10m"})

    assert drain.time_left(machine, NOW, NOW + timedelta(minutes=4)) == timedelta(minutes=6)
    assert drain.time_left(machine, NOW, NOW + timedelta(minutes=40)) == timedelta()
