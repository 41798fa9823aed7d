"""Whatever an agent asks for, in whatever world: what the rule lets pass is the agent's own."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bramley.access import rule
from bramley.access.references import References
from bramley.access.rule import Asked, PodFacts
from bramley.api.names import access, finalizers
from tests.unit import sampling
from tests.unit.access.worlds import NODE, OTHER, Dictionaries, asked

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
    asked, VERBS, st.sampled_from(["pods", "pods/status"]), st.just("ns"), st.sampled_from(PODS)
)
WISHES = st.one_of(OF_PODS, st.builds(asked, VERBS, WHAT, PLACES, NAMES))
LABELS = st.sampled_from([{}, {"a": "b"}])
FINALIZERS = st.sampled_from([[], [finalizers.VM_CLEANUP], ["x"]])


def a_world(bound: tuple[str, ...], agents: set[str]) -> Dictionaries:
    pods = zip(PODS, bound, strict=True)
    return Dictionaries(
        {("ns", name): PodFacts(node, "u", References()) for name, node in pods}, agents
    )


def an_object(name: str, node: str, labels: Any, held: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels, "finalizers": held}
    return {"metadata": metadata, "spec": {"nodeName": node}}


WORLDS = st.builds(
    a_world, st.tuples(NODES, NODES, NODES), st.sampled_from([{NODE}, {NODE, OTHER}, {OTHER, ""}])
)
OBJECTS = st.builds(an_object, NAMES, NODES, LABELS, FINALIZERS)
# New and old: the same, gone, come, or any two.
CHANGES = st.one_of(
    OBJECTS.map(lambda one: (one, one)),
    OBJECTS.map(lambda one: (None, one)),
    OBJECTS.map(lambda one: (one, None)),
    st.tuples(OBJECTS, OBJECTS),
)


@settings(max_examples=sampling.examples(300))
@given(WISHES, WORLDS, CHANGES)
def test_no_agent_ever_writes_an_object_of_another_node(
    one: Asked, world: Dictionaries, change: tuple[Any, Any]
) -> None:
    new, old = change
    if not rule.judge(one, world).allowed or rule.admit(one, new, old, world) is not None:
        return

    assert NODE in world.agents
    assert one.resource in {"nodes", "leases", "pods"}
    if one.resource == "pods":
        assert old is not None
        assert old["spec"]["nodeName"] == NODE
        if new is not None:
            assert new["spec"] == old["spec"]
            assert new["metadata"]["labels"] == old["metadata"]["labels"]
    else:
        assert new is not None
        assert new["metadata"]["name"] == NODE
        assert one.name == NODE or one.verb == "create"
