"""Scheduling decisions as a table: the selected Node, and the message when there is none."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bramley.api.core import Node, Pod
from bramley.apiserver.controllers.scheduling import select_node
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo
from bramley.apiserver.controllers.scheduling.select_node import Selected, Unschedulable
from tests.unit.apiserver.controllers.scheduling.builders import (
    a_node,
    a_pod,
    a_snapshot,
    affinity_term,
    affinity_to,
    anti_affinity_to,
    decision,
    expression,
    on,
    on_nodes,
)

MAC = {"key": "tuist.dev/macos", "value": "true", "effect": "NoSchedule"}
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
ZONES = [a_node("a", labels={"zone": "z1"}), a_node("b", labels={"zone": "z2"})]
PLAIN = a_pod("p")


FITS: dict[str, tuple[Pod, list[Node], list[Pod]]] = {
    "a node with room": (PLAIN, [a_node("yes")], []),
    "the selected node": (
        a_pod("p", nodeSelector={"os": "mac"}),
        [a_node("no"), a_node("yes", labels={"os": "mac"})],
        [],
    ),
    "a tolerated taint": (
        a_pod("p", tolerations=[{"key": "tuist.dev/macos", "operator": "Exists"}]),
        [a_node("yes", taints=[MAC])],
        [],
    ),
    "a taint tolerated by value": (
        a_pod("p", tolerations=[{"key": "tuist.dev/macos", "value": "true"}]),
        [a_node("yes", taints=[MAC])],
        [],
    ),
    "everything is tolerated": (
        a_pod("p", tolerations=[{"operator": "Exists"}]),
        [a_node("yes", taints=[MAC], unschedulable=True)],
        [],
    ),
    "a taint that only asks": (
        PLAIN,
        [a_node("yes", taints=[{"key": "k", "effect": "PreferNoSchedule"}])],
        [],
    ),
    "a node without soft taints": (
        PLAIN,
        [a_node("no", taints=[{"key": "k", "effect": "PreferNoSchedule"}]), a_node("yes")],
        [],
    ),
    "exactly enough": (
        a_pod("p", requests={"cpu": "1500m", "memory": "4Gi"}),
        [a_node("yes", cpu="2", memory="4Gi")],
        [on("yes", a_pod("q", requests={"cpu": "500m"}))],
    ),
    "the last slot": (PLAIN, [a_node("yes", pods=2)], [on("yes", a_pod("q"))]),
    "an extended resource": (
        a_pod("p", requests={"tuist.dev/vm": "1"}),
        [a_node("no"), a_node("yes", extended={"tuist.dev/vm": "2"})],
        [],
    ),
    "the emptier node": (
        a_pod("p", requests={"cpu": "1"}),
        [a_node("no"), a_node("yes")],
        [on("no", a_pod("q", requests={"cpu": "1"}))],
    ),
    "the emptier node for pods without requests": (
        PLAIN,
        [a_node("no"), a_node("yes")],
        [on("no", a_pod("q"))],
    ),
    "a free host port": (
        a_pod("p", ports=[{"containerPort": 1, "hostPort": 80}]),
        [a_node("no"), a_node("yes")],
        [on("no", a_pod("q", ports=[{"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1"}]))],
    ),
    "the same host port of another protocol": (
        a_pod("p", ports=[{"containerPort": 1, "hostPort": 80}]),
        [a_node("yes")],
        [on("yes", a_pod("q", ports=[{"containerPort": 1, "hostPort": 80, "protocol": "UDP"}]))],
    ),
    "In": (a_pod("p", affinity=on_nodes(expression("zone", "In", "z2"))), [*ZONES], []),
    "NotIn": (a_pod("p", affinity=on_nodes(expression("zone", "NotIn", "z1"))), [*ZONES], []),
    "Gt": (
        a_pod("p", affinity=on_nodes(expression("gen", "Gt", "3"))),
        [a_node("no", labels={"gen": "3"}), a_node("yes", labels={"gen": "4"})],
        [],
    ),
    "Lt": (
        a_pod("p", affinity=on_nodes(expression("gen", "Lt", "4"))),
        [a_node("no", labels={"gen": "x"}), a_node("yes", labels={"gen": "3"})],
        [],
    ),
    "one of the terms": (
        a_pod("p", affinity=on_nodes(expression("zone", "In", "z9"), expression("os", "Exists"))),
        [a_node("no"), a_node("yes", labels={"os": "mac"})],
        [],
    ),
    "by name": (
        a_pod(
            "p",
            affinity=on_nodes(
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["yes"]}]}
            ),
        ),
        [a_node("no"), a_node("yes")],
        [],
    ),
    "the preferred node": (
        a_pod(
            "p",
            affinity={
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": expression("os", "In", "mac")}
                    ]
                }
            },
        ),
        [a_node("no"), a_node("yes", labels={"os": "mac"})],
        [],
    ),
    "the preferred distance": (
        a_pod(
            "p",
            affinity={
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "podAffinityTerm": affinity_term("zone", app="x")}
                    ]
                }
            },
        ),
        [
            a_node("no", labels={"zone": "z1"}),
            a_node("full", labels={"zone": "z1"}),
            a_node("yes", labels={"zone": "z2"}),
        ],
        [on("full", a_pod("q", labels={"app": "x"}))],
    ),
    "near the others": (
        a_pod("p", affinity=affinity_to(affinity_term("zone", app="x"))),
        [a_node("no", labels={"zone": "z1"}), a_node("yes", labels={"zone": "z2"})],
        [on("yes", a_pod("q", labels={"app": "x"}))],
    ),
    "the first of many that want to be near each other": (
        a_pod("p", labels={"app": "x"}, affinity=affinity_to(affinity_term("zone", app="x"))),
        [a_node("no"), a_node("yes", labels={"zone": "z2"})],
        [],
    ),
    "away from the others": (
        a_pod("p", affinity=anti_affinity_to(affinity_term("zone", app="x"))),
        [a_node("no", labels={"zone": "z1"}), a_node("yes", labels={"zone": "z2"})],
        [on("no", a_pod("q", labels={"app": "x"}))],
    ),
    "away from pods with anti-affinity": (
        a_pod("p", labels={"app": "y"}),
        [a_node("no", labels={"zone": "z1"}), a_node("yes", labels={"zone": "z2"})],
        [on("no", a_pod("q", affinity=anti_affinity_to(affinity_term("zone", app="y"))))],
    ),
    "terms mean their own namespace": (
        a_pod("p", affinity=anti_affinity_to(affinity_term(app="x"))),
        [a_node("yes")],
        [on("yes", a_pod("q", namespace="other", labels={"app": "x"}))],
    ),
    "pods of a node that is gone count nowhere": (PLAIN, [a_node("yes")], [on("x", a_pod("q"))]),
}


@pytest.mark.parametrize("case", FITS)
def test_pod_gets_the_expected_node(case: str) -> None:
    pod, nodes, pods = FITS[case]
    names = {node.name for node in nodes}
    expected = "b" if names == {"a", "b"} else "yes"

    assert decision(pod, nodes, pods) == Selected(expected)


def preemption_does_not_help(count: int, text: str) -> str:
    rest = f"no new claims to deallocate, preemption: 0/{count} nodes are available: {count} {NOT_HELPFUL}."
    return f"0/{count} nodes are available: {text}. {rest}"


def no_victims(count: int, text: str) -> str:
    rest = f"no new claims to deallocate, preemption: 0/{count} nodes are available: {count} {NO_VICTIMS}."
    return f"0/{count} nodes are available: {text}. {rest}"


BIG: dict[str, Any] = {"requests": {"cpu": "2"}}
HALF = a_pod("q", requests={"cpu": "3"})
MIXED = (
    "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), "
    "1 node(s) were unschedulable. no new claims to deallocate, preemption: 0/3 nodes are available: "
    f"1 {NO_VICTIMS}, 2 {NOT_HELPFUL}."
)
SHORT = "0/1 nodes are available: 1 Insufficient cpu."
UNFIT: dict[str, tuple[Pod, list[Node], list[Pod], str]] = {
    "no nodes": (PLAIN, [], [], "no nodes available to schedule pods"),
    "cordoned": (
        PLAIN,
        [a_node("a", unschedulable=True)],
        [],
        preemption_does_not_help(1, "1 node(s) were unschedulable"),
    ),
    "tainted": (
        PLAIN,
        [a_node("a", taints=[MAC])],
        [],
        preemption_does_not_help(1, "1 node(s) had untolerated taint(s)"),
    ),
    "tainted, and another value is tolerated": (
        a_pod("p", tolerations=[{"key": "tuist.dev/macos", "value": "false"}]),
        [a_node("a", taints=[MAC])],
        [],
        preemption_does_not_help(1, "1 node(s) had untolerated taint(s)"),
    ),
    "not selected": (
        a_pod("p", nodeSelector={"os": "mac"}),
        [a_node("a"), a_node("b", labels={"os": "linux"})],
        [],
        preemption_does_not_help(2, "2 node(s) didn't match Pod's node affinity/selector"),
    ),
    "no node of that name": (
        a_pod(
            "p",
            affinity=on_nodes(
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}
            ),
        ),
        [a_node("a"), a_node("b")],
        [],
        preemption_does_not_help(2, "2 node(s) didn't satisfy plugin(s) [NodeAffinity]"),
    ),
    "too big for any node": (
        a_pod("p", requests={"cpu": "5", "memory": "1Gi"}),
        [a_node("a")],
        [],
        preemption_does_not_help(1, "1 Insufficient cpu"),
    ),
    "short of two things": (
        a_pod("p", requests={"cpu": "2", "memory": "6Gi"}),
        [a_node("a")],
        [on("a", a_pod("q", requests={"cpu": "3", "memory": "4Gi"}))],
        no_victims(1, "1 Insufficient cpu, 1 Insufficient memory"),
    ),
    "no slot": (
        PLAIN,
        [a_node("a", pods=1)],
        [on("a", a_pod("q"))],
        no_victims(1, "1 Too many pods"),
    ),
    "an unknown resource": (
        a_pod("p", requests={"tuist.dev/vm": "1"}),
        [a_node("a")],
        [],
        preemption_does_not_help(1, "1 Insufficient tuist.dev/vm"),
    ),
    "a taken port": (
        a_pod("p", ports=[{"containerPort": 1, "hostPort": 80, "hostIP": "10.0.0.1"}]),
        [a_node("a")],
        [on("a", a_pod("q", ports=[{"containerPort": 1, "hostPort": 80}]))],
        no_victims(1, "1 node(s) didn't have free ports for the requested pod ports"),
    ),
    "no pod matches the affinity": (
        a_pod("p", affinity=affinity_to(affinity_term(app="x"))),
        [a_node("a")],
        [],
        preemption_does_not_help(1, "1 node(s) didn't match pod affinity rules"),
    ),
    "too near": (
        a_pod("p", affinity=anti_affinity_to(affinity_term(app="x"))),
        [a_node("a")],
        [on("a", a_pod("q", labels={"app": "x"}))],
        no_victims(1, "1 node(s) didn't match pod anti-affinity rules"),
    ),
    "repelled by anti-affinity": (
        a_pod("p", labels={"app": "y"}),
        [a_node("a")],
        [on("a", a_pod("q", affinity=anti_affinity_to(affinity_term(app="y"))))],
        no_victims(1, "1 node(s) didn't satisfy existing pods anti-affinity rules"),
    ),
    "each node its own reason": (
        a_pod("p", **BIG),
        [a_node("a"), a_node("b", taints=[MAC]), a_node("c", unschedulable=True)],
        [on("a", HALF)],
        MIXED,
    ),
    "it may not preempt": (
        a_pod("p", priority=9, preemptionPolicy="Never", **BIG),
        [a_node("a")],
        [on("a", HALF)],
        f"{SHORT} no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.",
    ),
    "a victim can be preempted": (
        a_pod("p", priority=9, **BIG),
        [a_node("a")],
        [on("a", HALF)],
        SHORT,
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_no_node_fits_the_pod(case: str) -> None:
    pod, nodes, pods, message = UNFIT[case]

    found = decision(pod, nodes, pods)

    assert isinstance(found, Unschedulable)
    assert found.message == message


def test_terms_that_name_different_nodes_conflict() -> None:
    name = {"key": "metadata.name", "operator": "In"}
    term = {"matchFields": [{**name, "values": ["a"]}, {**name, "values": ["b"]}]}

    found = decision(a_pod("p", affinity=on_nodes(term)), [a_node("a"), a_node("b")])

    assert found == Unschedulable("0/2 nodes are available: pod affinity terms conflict. not found")


def test_equal_nodes_are_selected_at_random() -> None:
    snapshot = a_snapshot([a_node(name) for name in "abcd"])
    chosen = {
        select_node.decide(PodInfo.of(PLAIN), snapshot, random.Random(seed)) for seed in range(100)
    }

    assert chosen == {Selected(name) for name in "abcd"}
