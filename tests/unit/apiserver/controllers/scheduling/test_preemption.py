"""Preemption: the fewest Pods of the lowest priority are the victims."""

from __future__ import annotations

import dataclasses
import random

from bramley.api.core import Pod
from bramley.apiserver.controllers.scheduling import select_node
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo
from bramley.apiserver.controllers.scheduling.select_node import Selected, Unschedulable
from tests.unit.apiserver.controllers.scheduling.builders import (
    a_node,
    a_pod,
    a_snapshot,
    affinity_term,
    anti_affinity_to,
    decision,
    on,
)


def small(name: str, node: str, priority: int = 0, *, age: int = 0, cpu: str = "2") -> Pod:
    return on(node, a_pod(name, priority=priority, age=age, requests={"cpu": cpu}))


def big(priority: int = 10, cpu: str = "4") -> Pod:
    return a_pod("p", priority=priority, requests={"cpu": cpu})


def victims(found: object) -> list[str]:
    assert isinstance(found, Unschedulable), found
    return [victim.key.name for victim in found.victims]


def test_all_pods_in_the_way_are_preempted() -> None:
    found = decision(big(), [a_node("a")], [small("x", "a"), small("y", "a")])

    assert sorted(victims(found)) == ["x", "y"]


def test_pod_of_higher_priority_is_spared() -> None:
    pods = [small("x", "a", 1), small("y", "a", 2)]

    assert victims(decision(big(cpu="2"), [a_node("a")], pods)) == ["x"]


def test_older_pod_of_equal_priority_is_spared() -> None:
    pods = [small("young", "a", age=1), small("old", "a", age=9)]

    assert victims(decision(big(cpu="2"), [a_node("a")], pods)) == ["young"]


def test_pods_of_equal_priority_are_not_preempted() -> None:
    found = decision(big(priority=0), [a_node("a")], [small("x", "a")])

    assert victims(found) == []


def test_preemption_that_does_not_help_is_skipped() -> None:
    pods = [small("x", "a", 0), small("y", "a", 99)]

    found = decision(big(), [a_node("a")], pods)

    assert found == Unschedulable(
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: "
        "0/1 nodes are available: 1 Insufficient cpu."
    )


def test_node_with_the_least_important_victims_is_chosen() -> None:
    nodes = [a_node("a"), a_node("b")]
    pods = [small("x", "a", 5, cpu="4"), small("y", "b", 1), small("z", "b", 1)]

    found = decision(big(), nodes, pods)

    assert isinstance(found, Unschedulable)
    assert found.nominated_node == "b"


def test_fewer_victims_of_the_same_kind_are_better() -> None:
    nodes = [a_node("a"), a_node("b")]
    pods = [small("x", "a", 1, cpu="4"), small("y", "b", 1), small("z", "b", 1)]

    assert victims(decision(big(), nodes, pods)) == ["x"]


def test_pods_that_anti_affinity_repels_can_be_victims() -> None:
    pod = a_pod("p", priority=10, affinity=anti_affinity_to(affinity_term(app="x")))
    pods = [on("a", a_pod("x", labels={"app": "x"})), on("a", a_pod("y"))]

    assert victims(decision(pod, [a_node("a")], pods)) == ["x"]


def test_pods_whose_anti_affinity_repels_the_preemptor_can_be_victims() -> None:
    pod = a_pod("p", priority=10, labels={"app": "y"})
    pods = [
        on("a", a_pod("x", affinity=anti_affinity_to(affinity_term(app="y")))),
        on("a", a_pod("z")),
    ]

    assert victims(decision(pod, [a_node("a")], pods)) == ["x"]


def test_no_more_pods_are_preempted_while_victims_terminate() -> None:
    leaving = small("x", "a", cpu="4")
    snapshot = a_snapshot([a_node("a"), a_node("b")], [leaving, small("y", "b", cpu="4")])
    snapshot.add_pod(dataclasses.replace(PodInfo.of(leaving), deleting=True), "a")
    pod = a_pod("p", priority=10, requests={"cpu": "4"}, status={"nominatedNodeName": "a"})

    found = select_node.decide(PodInfo.of(pod), snapshot, random.Random(0))

    assert isinstance(found, Unschedulable)
    assert found.message.endswith("not eligible due to a terminating pod on the nominated node.")
    assert (found.victims, found.nominated_node) == ((), "a")


def test_a_nominated_node_is_reserved_for_the_preemptor() -> None:
    snapshot = a_snapshot([a_node("a")])
    waiting = PodInfo.of(big())
    snapshot.nominate(waiting, "a")

    lesser = select_node.decide(
        PodInfo.of(a_pod("q", requests={"cpu": "1"})), snapshot, random.Random(0)
    )
    greater = a_pod("r", priority=11, requests={"cpu": "1"})

    assert isinstance(lesser, Unschedulable)
    assert select_node.decide(PodInfo.of(greater), snapshot, random.Random(0)) == Selected("a")
    assert select_node.decide(waiting, snapshot, random.Random(0)) == Selected("a")


def test_the_nominated_node_is_preferred() -> None:
    snapshot = a_snapshot([a_node("a", cpu="5"), a_node("b", cpu="50")])
    pod = a_pod("p", requests={"cpu": "4"}, status={"nominatedNodeName": "a"})

    assert select_node.decide(PodInfo.of(pod), snapshot, random.Random(0)) == Selected("a")
