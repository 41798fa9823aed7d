from __future__ import annotations

from typing import Any

import pytest

from bramley.access import rule
from bramley.access.references import References
from bramley.access.rule import Asked, PodFacts
from bramley.api.names import access, finalizers
from tests.unit.access.worlds import NODE, OTHER, a_world, asked

LEASES = "coordination.k8s.io:leases"
AGENTS = access.NAMESPACE

ALLOWED = [
    asked("get", "nodes", name=NODE),
    asked("list", "nodes", name=NODE),
    asked("watch", "nodes", name=NODE),
    asked("create", "nodes"),
    asked("patch", "nodes", name=NODE),
    asked("update", "nodes", name=NODE),
    asked("patch", "nodes/status", name=NODE),
    asked("get", LEASES, "kube-node-lease", NODE),
    asked("create", LEASES, "kube-node-lease"),
    asked("update", LEASES, "kube-node-lease", NODE),
    asked("get", "pods", "ns", "mine"),
    asked("get", "pods", "ns", "gone"),
    asked("list", "pods", selected_node=NODE),
    asked("watch", "pods", "ns", selected_node=NODE),
    asked("patch", "pods", "ns", "mine"),
    asked("delete", "pods", "ns", "mine"),
    asked("delete", "pods", "ns", "gone"),
    asked("patch", "pods/status", "ns", "mine"),
    asked("create", "events", "ns"),
    asked("patch", "events.k8s.io:events", "ns", "e"),
    asked("get", "secrets", "ns", "s"),
    asked("watch", "secrets", "ns", "s"),
    asked("get", "configmaps", "ns", "c"),
    asked("create", "serviceaccounts/token", "ns", "robot"),
    asked("create", "serviceaccounts/token", AGENTS, f"tart-kubelet-{NODE}"),
    asked("create", "authentication.k8s.io:tokenreviews"),
    asked("create", "authorization.k8s.io:subjectaccessreviews"),
    asked("create", "authorization.k8s.io:selfsubjectaccessreviews"),
]
REFUSED = [
    asked("get", "nodes", name=OTHER),
    asked("list", "nodes"),
    asked("patch", "nodes", name=OTHER),
    asked("patch", "nodes/status", name=OTHER),
    asked("delete", "nodes", name=NODE),
    asked("deletecollection", "nodes"),
    asked("get", LEASES, "kube-node-lease", OTHER),
    asked("get", LEASES, "ns", NODE),
    asked("create", LEASES, "ns"),
    asked("list", LEASES, "kube-node-lease"),
    asked("delete", LEASES, "kube-node-lease", NODE),
    asked("get", "pods", "ns", "theirs"),
    asked("get", "pods", "ns", "free"),
    asked("list", "pods"),
    asked("list", "pods", selected_node=OTHER),
    asked("watch", "pods", "ns"),
    asked("create", "pods", "ns"),
    asked("patch", "pods", "ns", "theirs"),
    asked("delete", "pods", "ns", "theirs"),
    asked("delete", "pods", "ns", "free"),
    asked("deletecollection", "pods", "ns", selected_node=NODE),
    asked("patch", "pods/status", "ns", "theirs"),
    asked("create", "pods/eviction", "ns", "mine"),
    asked("create", "pods/binding", "ns", "mine"),
    asked("create", "pods/exec", "ns", "mine"),
    asked("get", "pods/log", "ns", "mine"),
    asked("patch", "pods/ephemeralcontainers", "ns", "mine"),
    asked("list", "events", "ns"),
    asked("delete", "events", "ns", "e"),
    asked("get", "secrets", "ns", "s2"),
    asked("get", "secrets", "other", "s"),
    asked("list", "secrets", "ns"),
    asked("list", "secrets"),
    asked("patch", "secrets", "ns", "s"),
    asked("get", "configmaps", "ns", "s"),
    asked("get", "serviceaccounts", "ns", "robot"),
    asked("create", "serviceaccounts/token", "ns", "ghost"),
    asked("create", "serviceaccounts/token", "ns", f"tart-kubelet-{NODE}"),
    asked("create", "serviceaccounts/token", AGENTS, f"tart-kubelet-{OTHER}"),
    asked("get", "authentication.k8s.io:tokenreviews", name="x"),
    asked("get", "namespaces", "ns", "ns"),
    asked("create", "rbac.authorization.k8s.io:clusterrolebindings"),
    asked("impersonate", "users", name="admin"),
    # A resource of the same name in a group of somebody else's.
    asked("get", "example.com:secrets", "ns", "s"),
    asked("patch", "metrics.k8s.io:nodes", name=NODE),
]


def told(one: Asked) -> str:
    where = "/".join(part for part in (one.namespace, one.name, one.selected_node) if part)
    return f"{one.verb} {one.group}:{one.resource}/{one.subresource} {where}"


@pytest.mark.parametrize("one", ALLOWED, ids=told)
def test_an_agent_may(one: Asked) -> None:
    assert rule.judge(one, a_world()).allowed


@pytest.mark.parametrize("one", REFUSED, ids=told)
def test_an_agent_may_not(one: Asked) -> None:
    ruling = rule.judge(one, a_world())

    assert not ruling.allowed
    assert ruling.reason.startswith("the agent's rule: ")


@pytest.mark.parametrize("one", ALLOWED, ids=told)
def test_nobody_may_anything_who_was_not_made_an_agent(one: Asked) -> None:
    world = a_world()
    world.agents = {OTHER}

    assert not rule.judge(one, world).allowed


@pytest.mark.parametrize("one", ALLOWED, ids=told)
def test_a_token_of_another_node_may_nothing(one: Asked) -> None:
    world = a_world()
    world.agents.add("")
    nowhere = asked(
        one.verb, f"{one.group}:{one.resource}/{one.subresource}", one.namespace, one.name, node=""
    )

    assert not rule.judge(nowhere, world).allowed
    assert rule.admit(nowhere, {"metadata": {"name": ""}}, None, world)


KEY = access.TOKEN_NODE


@pytest.mark.parametrize(
    ("user", "extra", "node"),
    [
        (f"system:serviceaccount:{AGENTS}:tart-kubelet-{NODE}", {}, NODE),
        (f"system:serviceaccount:{AGENTS}:tart-kubelet-{NODE}", {KEY: (NODE,)}, NODE),
        (f"system:serviceaccount:{AGENTS}:tart-kubelet-{NODE}", {KEY: (OTHER,)}, ""),
        (f"system:serviceaccount:{AGENTS}:tart-kubelet-{NODE}", {KEY: (NODE, OTHER)}, ""),
        (f"system:serviceaccount:{AGENTS}:tart-kubelet-", {}, ""),
        (f"system:serviceaccount:{AGENTS}:default", {}, None),
        (f"system:serviceaccount:default:tart-kubelet-{NODE}", {}, None),
        (f"tart-kubelet-{NODE}", {}, None),
        (f"system:node:{NODE}", {KEY: (NODE,)}, None),
    ],
)
def test_the_name_tells_whose_agent_somebody_is(
    user: str, extra: dict[str, tuple[str, ...]], node: str | None
) -> None:
    assert rule.node_of(user, extra) == node


def an_own_pod(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "mine", **metadata}, "spec": {"nodeName": NODE, "x": 1}}


OURS = finalizers.VM_CLEANUP


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["x"], ["x", OURS]),
        (["x", OURS], ["x"]),
        ([OURS], None),
        (None, [OURS]),
        (["x", OURS, "y"], ["x", "y"]),
    ],
)
def test_an_agent_adds_and_removes_its_own_finalizer(before: Any, after: Any) -> None:
    one = asked("patch", "pods", "ns", "mine")

    old, new = an_own_pod(finalizers=before), an_own_pod(finalizers=after)

    assert rule.admit(one, new, old, a_world()) is None


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("spec", {**an_own_pod(), "spec": {"nodeName": NODE, "x": 2}}),
    ("spec", {**an_own_pod(), "spec": {"nodeName": OTHER, "x": 1}}),
    ("labels", an_own_pod(labels={"a": "b"})),
    ("annotations", an_own_pod(annotations={"a": "b"})),
    ("ownerReferences", an_own_pod(ownerReferences=[{"uid": "u"}])),
    ("finalizer", an_own_pod(finalizers=["x"])),
]


@pytest.mark.parametrize("what", ["pods", "pods/status"])
@pytest.mark.parametrize(("word", "new"), CHANGES)
def test_an_agent_changes_nothing_else_of_its_pods(what: str, word: str, new: Any) -> None:
    refusal = rule.admit(asked("patch", what, "ns", "mine"), new, an_own_pod(), a_world())

    assert refusal is not None
    assert word in refusal


def test_a_status_and_what_the_server_counts_may_change() -> None:
    new = {**an_own_pod(resourceVersion="2", managedFields=[{}]), "status": {"phase": "Running"}}

    assert (
        rule.admit(asked("patch", "pods/status", "ns", "mine"), new, an_own_pod(), a_world())
        is None
    )


def test_labels_that_are_empty_and_labels_that_are_missing_are_the_same() -> None:
    one = asked("patch", "pods", "ns", "mine")

    assert rule.admit(one, an_own_pod(labels={}), an_own_pod(labels=None), a_world()) is None


@pytest.mark.parametrize("node", [OTHER, "", None])
def test_a_pod_that_moved_meanwhile_is_not_deleted(node: str | None) -> None:
    """The request was let pass by an older state; what counts is the object at the moment of the write."""
    old = {"metadata": {"name": "mine"}, "spec": {"nodeName": node}}

    assert rule.admit(asked("delete", "pods", "ns", "mine"), None, old, a_world())
    assert rule.admit(asked("delete", "pods", "ns", "mine"), None, an_own_pod(), a_world()) is None


@pytest.mark.parametrize("what", ["pods", "pods/status"])
def test_an_agent_makes_no_pod_by_changing_one_that_is_not_there(what: str) -> None:
    """Applying an object creates it."""
    assert rule.admit(asked("patch", what, "ns", "gone"), an_own_pod(), None, a_world())


@pytest.mark.parametrize("what", ["nodes", LEASES])
@pytest.mark.parametrize("name", [OTHER, "", None, [NODE]])
def test_what_is_created_bears_the_nodes_name(what: str, name: Any) -> None:
    one = asked("create", what, "kube-node-lease" if what == LEASES else "")

    assert rule.admit(one, {"metadata": {"name": name}}, None, a_world())
    assert rule.admit(one, {"metadata": {"name": NODE}}, None, a_world()) is None


def an_event(
    kind: str, name: str, namespace: str | None = "ns", field: str = "involvedObject"
) -> dict[str, Any]:
    return {field: {"kind": kind, "name": name, "namespace": namespace}}


EVENTS = [
    ("ns", an_event("Pod", "mine"), True),
    ("ns", an_event("Pod", "mine", field="regarding"), True),
    ("ns", an_event("Pod", "theirs"), False),
    ("ns", an_event("Pod", "free"), False),
    ("ns", an_event("Pod", "gone"), False),
    ("other", an_event("Pod", "mine"), False),
    ("default", an_event("Node", NODE, None), True),
    ("default", an_event("Node", OTHER, None), False),
    ("ns", an_event("Node", NODE, None), False),
    ("kube-node-lease", an_event("Lease", NODE, "kube-node-lease"), True),
    ("kube-node-lease", an_event("Lease", OTHER, "kube-node-lease"), False),
    ("ns", an_event("Lease", NODE), False),
    ("ns", an_event("Secret", "s"), False),
    ("ns", {}, False),
    ("ns", {"involvedObject": "mine"}, False),
    ("ns", {**an_event("Pod", "mine"), **an_event("Pod", "theirs", field="regarding")}, False),
]


@pytest.mark.parametrize(("namespace", "event", "fine"), EVENTS)
def test_an_agent_tells_of_what_is_its_own(namespace: str, event: Any, fine: bool) -> None:
    refusal = rule.admit(asked("create", "events", namespace), event, None, a_world())

    assert (refusal is None) == fine


def test_an_event_stays_with_what_it_is_about() -> None:
    one = asked("patch", "events", "ns", "e")
    mine, theirs = an_event("Pod", "mine"), an_event("Pod", "theirs")

    assert rule.admit(one, {**mine, "count": 2}, mine, a_world()) is None
    assert rule.admit(one, mine, theirs, a_world())
    assert rule.admit(one, theirs, mine, a_world())
    assert rule.admit(one, theirs, theirs, a_world())


@pytest.mark.parametrize("field", ["finalizers", "ownerReferences"])
def test_an_agents_event_keeps_neither_its_namespace_nor_an_owner_from_going(field: str) -> None:
    mine = an_event("Pod", "mine")
    held = {**mine, "metadata": {field: [{"name": "x"}]}}

    assert rule.admit(asked("create", "events", "ns"), held, None, a_world())
    assert rule.admit(asked("patch", "events", "ns", "e"), held, mine, a_world())
    assert rule.admit(asked("patch", "events", "ns", "e"), mine, held, a_world())
    assert rule.admit(asked("patch", "events", "ns", "e"), held, held, a_world()) is None


def a_request(kind: str, name: Any, uid: Any = "u", version: str = "v1") -> dict[str, Any]:
    bound = {"apiVersion": version, "kind": kind, "name": name, "uid": uid}
    return {"spec": {"boundObjectRef": bound}}


POD_TOKENS = [
    (a_request("Pod", "mine"), True),
    (a_request("Pod", "mine", ""), False),
    (a_request("Pod", "theirs"), False),
    (a_request("Pod", "gone"), False),
    (a_request("Pod", ["mine"]), False),
    (a_request("Pod", "mine", version="v2"), False),
    (a_request("Node", NODE), False),
    (a_request("Secret", "s"), False),
    ({"spec": {}}, False),
    ({}, False),
]
OWN_TOKENS = [
    (a_request("Node", NODE), True),
    (a_request("Node", OTHER), False),
    (a_request("Pod", "mine"), False),
    (a_request("Node", NODE, version="v2"), False),
    ({"spec": {"boundObjectRef": None}}, False),
    ({}, False),
]


@pytest.mark.parametrize(("wish", "fine"), POD_TOKENS)
def test_tokens_for_accounts_are_bound_to_pods_on_the_node(wish: Any, fine: bool) -> None:
    one = asked("create", "serviceaccounts/token", "ns", "robot")

    assert (rule.admit(one, wish, None, a_world()) is None) == fine


@pytest.mark.parametrize(("wish", "fine"), OWN_TOKENS)
def test_the_agents_own_token_is_bound_to_the_node(wish: Any, fine: bool) -> None:
    one = asked("create", "serviceaccounts/token", AGENTS, f"tart-kubelet-{NODE}")

    assert (rule.admit(one, wish, None, a_world()) is None) == fine


def test_a_pod_that_runs_as_another_agent_lends_its_identity_to_nobody() -> None:
    world = a_world()
    posing = References(f"tart-kubelet-{OTHER}")
    world.pods[AGENTS, "posing"] = PodFacts(NODE, "u", posing)

    one = asked("create", "serviceaccounts/token", AGENTS, f"tart-kubelet-{OTHER}")

    assert not rule.judge(one, world).allowed
