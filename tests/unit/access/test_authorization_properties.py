"""Whatever an agent requests, in whatever graph: what authorization allows is the agent's own."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bramley.access import authorization
from bramley.access.authorization import AgentRequest, PodFacts
from bramley.access.pod_references import References
from bramley.api.names import access, finalizers
from tests.unit import example_counts
from tests.unit.access.fake_graph import NODE, OTHER, FakeGraph, a_request

PODS = ("mine", "theirs", "free")
NODES = st.sampled_from([NODE, OTHER, ""])
NAMES = st.sampled_from([NODE, OTHER, *PODS, ""])
PLACES = st.sampled_from(["", "ns", "kube-node-lease", access.NAMESPACE])
VERBS = st.sampled_from(["create", "update", "patch", "delete", "deletecollection"])
LEASES = "coordination.k8s.io:leases"
WHAT = st.sampled_from(
    [
        "nodes",
        "nodes/status",
        LEASES,
        "pods",
        "pods/status",
        "pods/eviction",
        "secrets",
        "namespaces",
    ]
)
OF_PODS = st.builds(
    a_request, VERBS, st.sampled_from(["pods", "pods/status"]), st.just("ns"), st.sampled_from(PODS)
)
REQUESTS = st.one_of(OF_PODS, st.builds(a_request, VERBS, WHAT, PLACES, NAMES))
LABELS = st.sampled_from([{}, {"a": "b"}])
FINALIZERS = st.sampled_from([[], [finalizers.VM_CLEANUP], ["x"]])


def a_graph(bound: tuple[str, ...], agents: set[str]) -> FakeGraph:
    pods = zip(PODS, bound, strict=True)
    return FakeGraph(
        {("ns", name): PodFacts(node, "u", References()) for name, node in pods}, agents
    )


def an_object(name: str, node: str, labels: Any, held: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels, "finalizers": held}
    return {"metadata": metadata, "spec": {"nodeName": node}}


GRAPHS = st.builds(
    a_graph, st.tuples(NODES, NODES, NODES), st.sampled_from([{NODE}, {NODE, OTHER}, {OTHER, ""}])
)
OBJECTS = st.builds(an_object, NAMES, NODES, LABELS, FINALIZERS)
# New and old: the same, deleted, created, or any two.
CHANGES = st.one_of(
    OBJECTS.map(lambda request: (request, request)),
    OBJECTS.map(lambda request: (None, request)),
    OBJECTS.map(lambda request: (request, None)),
    st.tuples(OBJECTS, OBJECTS),
)


@settings(max_examples=example_counts.examples(300))
@given(REQUESTS, GRAPHS, CHANGES)
def test_no_agent_ever_writes_an_object_of_another_node(
    request: AgentRequest, graph: FakeGraph, change: tuple[Any, Any]
) -> None:
    new, old = change
    if (
        not authorization.authorize(request, graph).allowed
        or authorization.admit(request, new, old, graph) is not None
    ):
        return

    assert NODE in graph.agents
    assert request.resource in {"nodes", "leases", "pods"}
    if request.resource == "pods":
        assert old is not None
        assert old["spec"]["nodeName"] == NODE
        if new is not None:
            assert new["spec"] == old["spec"]
            assert new["metadata"]["labels"] == old["metadata"]["labels"]
    else:
        assert new is not None
        assert new["metadata"]["name"] == NODE
        assert request.name == NODE or request.verb == "create"
