"""Laws of scheduling, on random clusters: it agrees with a slow independent implementation, and its snapshot stays correct."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from bramley.api.core import Node, Pod
from bramley.apiserver.controllers.scheduling import select_node
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo
from bramley.apiserver.controllers.scheduling.select_node import Selected
from bramley.apiserver.controllers.scheduling.snapshot import Snapshot
from tests.unit.apiserver.controllers.scheduling import oracle

LABELS = st.dictionaries(st.sampled_from(["zone", "os"]), st.sampled_from(["1", "2"]))
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
TAINTS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from(["k", "l"]), "effect": EFFECTS},
        optional={"value": st.sampled_from(["v", "w"])},
    ),
    max_size=2,
    unique_by=lambda taint: (taint["key"], taint["effect"]),
)
TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {"operator": st.sampled_from(["Exists", "Equal"]), "key": st.sampled_from(["k", "l"])},
        optional={"effect": EFFECTS, "value": st.sampled_from(["v", "w"])},
    ),
    max_size=3,
)
APP = st.dictionaries(st.just("app"), st.sampled_from(["x", "y"]), max_size=1)
TERMS = st.lists(
    st.fixed_dictionaries(
        {
            "topologyKey": st.sampled_from(["zone", "os"]),
            "labelSelector": st.fixed_dictionaries({"matchLabels": APP}),
        },
        optional={"namespaces": st.just(["a", "b"])},
    ),
    max_size=2,
)
TESTS = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["zone", "os"]),
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
        "values": st.just(["1"]),
    }
)
NODE_TERMS = st.lists(
    st.fixed_dictionaries({"matchExpressions": st.lists(TESTS, min_size=1, max_size=2)}),
    min_size=1,
    max_size=2,
)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
AFFINITY = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": NODE_TERMS.map(lambda terms: {REQUIRED: {"nodeSelectorTerms": terms}}),
        "podAffinity": TERMS.map(lambda terms: {REQUIRED: terms}),
        "podAntiAffinity": TERMS.map(lambda terms: {REQUIRED: terms}),
    },
)
REQUESTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "tuist.dev/vm"]), st.sampled_from(["0", "1", "500m", "2"])
)


@st.composite
def nodes(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        {
            "metadata": {"name": f"n{number}", "labels": draw(LABELS)},
            "spec": {
                "taints": draw(TAINTS),
                "unschedulable": draw(st.sampled_from([False] * 4 + [True])),
            },
            "status": {
                "allocatable": {
                    "cpu": draw(st.sampled_from(["1", "2", "4500m"])),
                    "memory": "4",
                    "pods": str(draw(st.integers(0, 3))),
                    **draw(st.sampled_from([{}, {"tuist.dev/vm": "2"}])),
                }
            },
        }
        for number in range(draw(st.integers(1, 5)))
    ]


@st.composite
def a_wire_pod(draw: st.DrawFn) -> dict[str, Any]:
    requests = draw(st.one_of(st.just({}), REQUESTS))
    container: dict[str, Any] = {"name": "c", "resources": {"requests": requests}}
    port = draw(st.sampled_from([0, 0, 0, 80]))
    if port:
        container["ports"] = [{"containerPort": 1, "hostPort": port}]
    spec: dict[str, Any] = {"containers": [container], "tolerations": draw(TOLERATIONS)}
    spec["nodeSelector"] = draw(st.one_of(st.just({}), st.just({}), LABELS))
    spec["affinity"] = draw(st.one_of(st.just({}), AFFINITY))
    metadata = {"namespace": draw(st.sampled_from(["a", "b"])), "labels": draw(APP)}
    return {"metadata": metadata, "spec": spec}


PODS = st.lists(a_wire_pod(), max_size=12)


@given(nodes(), PODS, st.randoms(use_true_random=False))
def test_decisions_agree_with_the_oracle(
    cluster: list[dict[str, Any]], arriving: list[dict[str, Any]], rng: random.Random
) -> None:
    snapshot = Snapshot()
    for node in cluster:
        snapshot.update_node(msgspec.convert(node, Node))
    placed: list[dict[str, Any]] = []
    for number, wire in enumerate(arriving):
        wire["metadata"] |= {"name": f"p{number}", "uid": f"u{number}"}
        pod = PodInfo.of(msgspec.convert(wire, Pod))
        may = {
            node["metadata"]["name"] for node in cluster if oracle.fits(wire, node, placed, cluster)
        }

        found = select_node.decide(pod, snapshot, rng)

        if isinstance(found, Selected):
            assert found.node in may
            snapshot.add_pod(pod, found.node)
            wire["spec"]["nodeName"] = found.node
            placed.append(wire)
        else:
            assert may == set(), found.message
        if placed and rng.random() < 0.2:
            gone = placed.pop(rng.randrange(len(placed)))
            snapshot.remove_pod(gone["metadata"]["uid"])


@given(nodes(), PODS)
def test_a_snapshot_without_its_pods_equals_the_initial_one(
    cluster: list[dict[str, Any]], arriving: list[dict[str, Any]]
) -> None:
    snapshot = Snapshot()
    for node in cluster:
        snapshot.update_node(msgspec.convert(node, Node))
    for number, wire in enumerate(arriving):
        wire["metadata"] |= {"name": f"p{number}", "uid": f"u{number}"}
        snapshot.add_pod(PodInfo.of(msgspec.convert(wire, Pod)), f"n{number % 7}")

    for number in range(len(arriving)):
        snapshot.remove_pod(f"u{number}")

    assert (snapshot.pod_groups, snapshot.anti_affinity_groups) == ({}, {})
    assert set(snapshot.nodes) == {node["metadata"]["name"] for node in cluster}
    for info in snapshot.nodes.values():
        assert (set(info.requested.values()) | {0}, info.pods, +info.ports) == ({0}, {}, {})
        assert (info.nonzero_cpu, info.nonzero_memory) == (0, 0)
