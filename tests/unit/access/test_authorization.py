from __future__ import annotations

from typing import Any

import pytest

from bramley.access import authorization
from bramley.access.authorization import AgentRequest, PodFacts
from bramley.access.pod_references import References
from bramley.api.names import access, finalizers
from tests.unit.access.fake_graph import NODE, OTHER, a_graph, a_request

LEASES = "coordination.k8s.io:leases"
AGENTS = access.NAMESPACE

ALLOWED = [
    a_request("get", "nodes", name=NODE),
    a_request("list", "nodes", name=NODE),
    a_request("watch", "nodes", name=NODE),
    a_request("create", "nodes"),
    a_request("patch", "nodes", name=NODE),
    a_request("update", "nodes", name=NODE),
    a_request("patch", "nodes/status", name=NODE),
    a_request("get", LEASES, "kube-node-lease", NODE),
    a_request("create", LEASES, "kube-node-lease"),
    a_request("update", LEASES, "kube-node-lease", NODE),
    a_request("get", "pods", "ns", "mine"),
    a_request("get", "pods", "ns", "gone"),
    a_request("list", "pods", selected_node=NODE),
    a_request("watch", "pods", "ns", selected_node=NODE),
    a_request("patch", "pods", "ns", "mine"),
    a_request("delete", "pods", "ns", "mine"),
    a_request("delete", "pods", "ns", "gone"),
    a_request("patch", "pods/status", "ns", "mine"),
    a_request("create", "events", "ns"),
    a_request("patch", "events.k8s.io:events", "ns", "e"),
    a_request("get", "secrets", "ns", "s"),
    a_request("watch", "secrets", "ns", "s"),
    a_request("get", "configmaps", "ns", "c"),
    a_request("create", "serviceaccounts/token", "ns", "robot"),
    a_request("create", "serviceaccounts/token", AGENTS, f"tart-kubelet-{NODE}"),
    a_request("create", "authentication.k8s.io:tokenreviews"),
    a_request("create", "authorization.k8s.io:subjectaccessreviews"),
    a_request("create", "authorization.k8s.io:selfsubjectaccessreviews"),
]
REFUSED = [
    a_request("get", "nodes", name=OTHER),
    a_request("list", "nodes"),
    a_request("patch", "nodes", name=OTHER),
    a_request("patch", "nodes/status", name=OTHER),
    a_request("delete", "nodes", name=NODE),
    a_request("deletecollection", "nodes"),
    a_request("get", LEASES, "kube-node-lease", OTHER),
    a_request("get", LEASES, "ns", NODE),
    a_request("create", LEASES, "ns"),
    a_request("list", LEASES, "kube-node-lease"),
    a_request("delete", LEASES, "kube-node-lease", NODE),
    a_request("get", "pods", "ns", "theirs"),
    a_request("get", "pods", "ns", "free"),
    a_request("list", "pods"),
    a_request("list", "pods", selected_node=OTHER),
    a_request("watch", "pods", "ns"),
    a_request("create", "pods", "ns"),
    a_request("patch", "pods", "ns", "theirs"),
    a_request("delete", "pods", "ns", "theirs"),
    a_request("delete", "pods", "ns", "free"),
    a_request("deletecollection", "pods", "ns", selected_node=NODE),
    a_request("patch", "pods/status", "ns", "theirs"),
    a_request("create", "pods/eviction", "ns", "mine"),
    a_request("create", "pods/binding", "ns", "mine"),
    a_request("create", "pods/exec", "ns", "mine"),
    a_request("get", "pods/log", "ns", "mine"),
    a_request("patch", "pods/ephemeralcontainers", "ns", "mine"),
    a_request("list", "events", "ns"),
    a_request("delete", "events", "ns", "e"),
    a_request("get", "secrets", "ns", "s2"),
    a_request("get", "secrets", "other", "s"),
    a_request("list", "secrets", "ns"),
    a_request("list", "secrets"),
    a_request("patch", "secrets", "ns", "s"),
    a_request("get", "configmaps", "ns", "s"),
    a_request("get", "serviceaccounts", "ns", "robot"),
    a_request("create", "serviceaccounts/token", "ns", "ghost"),
    a_request("create", "serviceaccounts/token", "ns", f"tart-kubelet-{NODE}"),
    a_request("create", "serviceaccounts/token", AGENTS, f"tart-kubelet-{OTHER}"),
    a_request("get", "authentication.k8s.io:tokenreviews", name="x"),
    a_request("get", "namespaces", "ns", "ns"),
    a_request("create", "rbac.authorization.k8s.io:clusterrolebindings"),
    a_request("impersonate", "users", name="admin"),
    # A resource of the same name in another group.
    a_request("get", "example.com:secrets", "ns", "s"),
    a_request("patch", "metrics.k8s.io:nodes", name=NODE),
]


def label(agent_request: AgentRequest) -> str:
    where = "/".join(
        part
        for part in (agent_request.namespace, agent_request.name, agent_request.selected_node)
        if part
    )
    return f"{agent_request.verb} {agent_request.group}:{agent_request.resource}/{agent_request.subresource} {where}"


@pytest.mark.parametrize("agent_request", ALLOWED, ids=label)
def test_allowed_requests_of_an_agent(agent_request: AgentRequest) -> None:
    assert authorization.authorize(agent_request, a_graph()).allowed


@pytest.mark.parametrize("agent_request", REFUSED, ids=label)
def test_refused_requests_of_an_agent(agent_request: AgentRequest) -> None:
    decision = authorization.authorize(agent_request, a_graph())

    assert not decision.allowed
    assert decision.reason.startswith("agent authorization: ")


@pytest.mark.parametrize("agent_request", ALLOWED, ids=label)
def test_agent_that_is_not_enrolled_may_do_nothing(agent_request: AgentRequest) -> None:
    graph = a_graph()
    graph.agents = {OTHER}

    assert not authorization.authorize(agent_request, graph).allowed


@pytest.mark.parametrize("agent_request", ALLOWED, ids=label)
def test_token_of_another_node_grants_nothing(agent_request: AgentRequest) -> None:
    graph = a_graph()
    graph.agents.add("")
    without_node = a_request(
        agent_request.verb,
        f"{agent_request.group}:{agent_request.resource}/{agent_request.subresource}",
        agent_request.namespace,
        agent_request.name,
        node="",
    )

    assert not authorization.authorize(without_node, graph).allowed
    assert authorization.admit(without_node, {"metadata": {"name": ""}}, None, graph)


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
def test_user_name_and_token_identify_the_node(
    user: str, extra: dict[str, tuple[str, ...]], node: str | None
) -> None:
    assert authorization.node_of(user, extra) == node


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
def test_agent_adds_and_removes_its_own_finalizer(before: Any, after: Any) -> None:
    agent_request = a_request("patch", "pods", "ns", "mine")

    old, new = an_own_pod(finalizers=before), an_own_pod(finalizers=after)

    assert authorization.admit(agent_request, new, old, a_graph()) is None


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
def test_agent_changes_nothing_else_of_its_pods(what: str, word: str, new: Any) -> None:
    refusal = authorization.admit(
        a_request("patch", what, "ns", "mine"), new, an_own_pod(), a_graph()
    )

    assert refusal is not None
    assert word in refusal


def test_status_and_what_the_server_counts_may_change() -> None:
    new = {**an_own_pod(resourceVersion="2", managedFields=[{}]), "status": {"phase": "Running"}}

    assert (
        authorization.admit(
            a_request("patch", "pods/status", "ns", "mine"), new, an_own_pod(), a_graph()
        )
        is None
    )


def test_empty_labels_equal_missing_labels() -> None:
    agent_request = a_request("patch", "pods", "ns", "mine")

    assert (
        authorization.admit(
            agent_request, an_own_pod(labels={}), an_own_pod(labels=None), a_graph()
        )
        is None
    )


@pytest.mark.parametrize("node", [OTHER, "", None])
def test_pod_that_was_rebound_is_not_deleted(node: str | None) -> None:
    """Authorization used an older state; the object at the time of the write counts."""
    old = {"metadata": {"name": "mine"}, "spec": {"nodeName": node}}

    assert authorization.admit(a_request("delete", "pods", "ns", "mine"), None, old, a_graph())
    assert (
        authorization.admit(
            a_request("delete", "pods", "ns", "mine"), None, an_own_pod(), a_graph()
        )
        is None
    )


@pytest.mark.parametrize("what", ["pods", "pods/status"])
def test_patch_of_a_missing_pod_creates_none(what: str) -> None:
    """Applying an object creates it."""
    assert authorization.admit(
        a_request("patch", what, "ns", "gone"), an_own_pod(), None, a_graph()
    )


@pytest.mark.parametrize("what", ["nodes", LEASES])
@pytest.mark.parametrize("name", [OTHER, "", None, [NODE]])
def test_created_object_has_the_nodes_name(what: str, name: Any) -> None:
    agent_request = a_request("create", what, "kube-node-lease" if what == LEASES else "")

    assert authorization.admit(agent_request, {"metadata": {"name": name}}, None, a_graph())
    assert authorization.admit(agent_request, {"metadata": {"name": NODE}}, None, a_graph()) is None


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
def test_agent_may_record_events_about_its_own_objects(
    namespace: str, event: Any, fine: bool
) -> None:
    refusal = authorization.admit(a_request("create", "events", namespace), event, None, a_graph())

    assert (refusal is None) == fine


def test_involved_object_of_an_event_may_not_change() -> None:
    agent_request = a_request("patch", "events", "ns", "e")
    mine, theirs = an_event("Pod", "mine"), an_event("Pod", "theirs")

    assert authorization.admit(agent_request, {**mine, "count": 2}, mine, a_graph()) is None
    assert authorization.admit(agent_request, mine, theirs, a_graph())
    assert authorization.admit(agent_request, theirs, mine, a_graph())
    assert authorization.admit(agent_request, theirs, theirs, a_graph())


@pytest.mark.parametrize("field", ["finalizers", "ownerReferences"])
def test_agents_event_may_not_block_deletion(field: str) -> None:
    mine = an_event("Pod", "mine")
    held = {**mine, "metadata": {field: [{"name": "x"}]}}

    assert authorization.admit(a_request("create", "events", "ns"), held, None, a_graph())
    assert authorization.admit(a_request("patch", "events", "ns", "e"), held, mine, a_graph())
    assert authorization.admit(a_request("patch", "events", "ns", "e"), mine, held, a_graph())
    assert (
        authorization.admit(a_request("patch", "events", "ns", "e"), held, held, a_graph()) is None
    )


def a_token_request(kind: str, name: Any, uid: Any = "u", version: str = "v1") -> dict[str, Any]:
    bound = {"apiVersion": version, "kind": kind, "name": name, "uid": uid}
    return {"spec": {"boundObjectRef": bound}}


POD_TOKENS = [
    (a_token_request("Pod", "mine"), True),
    (a_token_request("Pod", "mine", ""), False),
    (a_token_request("Pod", "theirs"), False),
    (a_token_request("Pod", "gone"), False),
    (a_token_request("Pod", ["mine"]), False),
    (a_token_request("Pod", "mine", version="v2"), False),
    (a_token_request("Node", NODE), False),
    (a_token_request("Secret", "s"), False),
    ({"spec": {}}, False),
    ({}, False),
]
OWN_TOKENS = [
    (a_token_request("Node", NODE), True),
    (a_token_request("Node", OTHER), False),
    (a_token_request("Pod", "mine"), False),
    (a_token_request("Node", NODE, version="v2"), False),
    ({"spec": {"boundObjectRef": None}}, True),
    ({"spec": {}}, True),
]


@pytest.mark.parametrize(("token_request", "allowed"), POD_TOKENS)
def test_tokens_for_accounts_are_bound_to_pods_on_the_node(
    token_request: Any, allowed: bool
) -> None:
    agent_request = a_request("create", "serviceaccounts/token", "ns", "robot")

    assert (authorization.admit(agent_request, token_request, None, a_graph()) is None) == allowed


@pytest.mark.parametrize(("token_request", "allowed"), OWN_TOKENS)
def test_agents_own_token_is_bound_to_nothing_but_its_node(
    token_request: Any, allowed: bool
) -> None:
    agent_request = a_request("create", "serviceaccounts/token", AGENTS, f"tart-kubelet-{NODE}")

    assert (authorization.admit(agent_request, token_request, None, a_graph()) is None) == allowed


def test_pod_that_runs_as_another_agent_gives_no_access_to_that_identity() -> None:
    graph = a_graph()
    posing = References(f"tart-kubelet-{OTHER}")
    graph.pods[AGENTS, "posing"] = PodFacts(NODE, "u", posing)

    agent_request = a_request("create", "serviceaccounts/token", AGENTS, f"tart-kubelet-{OTHER}")

    assert not authorization.authorize(agent_request, graph).allowed
