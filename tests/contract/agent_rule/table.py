"""The table: the requests of one Node's agent, and whether each is allowed, on every server unless `only_ours` says why not.

Texts in braces stand for names and uids of the scene, see `scene`. Writes are dry runs, so no row can change the scene.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bramley.api.names import finalizers

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON = "application/json"
APPLY = "application/apply-patch+yaml"
DRY = {"dryRun": "All"}

POD = "/api/v1/namespaces/{ns}/pods"
NODE = "/api/v1/nodes"
NODE_LEASES = "kube-node-lease"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NODE_LEASES}/leases"
EVENT = "/api/v1/namespaces/{ns}/events"
NEW_EVENT = "/apis/events.k8s.io/v1/namespaces/{ns}/events"
SECRET = "/api/v1/namespaces/{ns}/secrets"
CONFIG = "/api/v1/namespaces/{ns}/configmaps"
ACCOUNT = "/api/v1/namespaces/{ns}/serviceaccounts"
AGENT = "/api/v1/namespaces/bramley-agents/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1"

LISTS_PODS = (
    "RBAC knows no field selectors: on a real cluster an agent can read the Pods of other Nodes"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One request and the code of its response; `only_ours` is the reason why a real server allows what ours refuses."""

    name: str
    method: str
    path: str
    code: int
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    media: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    only_ours: str = ""

    @property
    def is_refused(self) -> bool:
        """Return whether the request is forbidden."""
        return self.code == 403


def get(name: str, path: str, code: int = 200, *, only_ours: str = "", **query: str) -> Row:
    return Row(name, "GET", path, code, query, only_ours=only_ours)


def watch(name: str, path: str, code: int = 200, *, only_ours: str = "", **query: str) -> Row:
    short = {"watch": "true", "timeoutSeconds": "1"}
    return Row(name, "GET", path, code, {**query, **short}, only_ours=only_ours)


def post(name: str, path: str, body: Json, code: int = 201) -> Row:
    return Row(name, "POST", path, code, DRY, body)


def patch(name: str, path: str, body: Json, code: int = 200, *, media: str = MERGE) -> Row:
    query = {**DRY, "fieldManager": "agent", "force": "true"} if media == APPLY else DRY
    return Row(name, "PATCH", path, code, query, body, media)


def delete(name: str, path: str, code: int = 200, **query: str) -> Row:
    return Row(name, "DELETE", path, code, {**DRY, **query})


def rows() -> list[Row]:
    """Return the whole table."""
    parts = (nodes, leases, pods, pod_lives, pod_writes, events, values, tokens, reviews, the_rest)
    return [row for part in parts for row in part()]


def nodes() -> Iterator[Row]:
    yield get("reads its node", f"{NODE}/{{node}}")
    yield get("reads another node", f"{NODE}/{{other}}", 403)
    yield get("lists all nodes", NODE, 403)
    yield get("lists its node", NODE, fieldSelector="metadata.name={node}")
    yield get("lists another node", NODE, 403, fieldSelector="metadata.name={other}")
    yield watch("watches its node", NODE, fieldSelector="metadata.name={node}")
    yield watch("watches all nodes", NODE, 403)
    yield post("creates its node again", NODE, a_node("{node}"), 409)
    tainted = {"spec": {"taints": [{"key": "dedicated", "value": "x", "effect": "NoExecute"}]}}
    yield post("creates its node with taints", NODE, {**a_node("{node}"), **tainted}, 409)
    yield post("creates another node", NODE, a_node("{other}"), 403)
    yield post("creates a new node", NODE, a_node("{node}-2"), 403)
    yield post("creates a node by a prefix", NODE, {"metadata": {"generateName": "{node}"}}, 403)
    label = {"metadata": {"labels": {"tuist.dev/fleet": "x"}}}
    yield patch("labels its node", f"{NODE}/{{node}}", label)
    yield patch("labels another node", f"{NODE}/{{other}}", label, 403)
    status = {"status": {"phase": "Running"}}
    yield patch("writes its node's status", f"{NODE}/{{node}}/status", status)
    yield patch("writes another node's status", f"{NODE}/{{other}}/status", status, 403)
    for whose, code in (("node", 200), ("other", 403)):
        fields = applied("Node", f"{{{whose}}}", status)
        path = f"{NODE}/{{{whose}}}/status"
        yield patch(f"applies the status of {whose}", path, fields, code, media=APPLY)
    yield delete("deletes its node", f"{NODE}/{{node}}", 403)
    yield delete("deletes another node", f"{NODE}/{{other}}", 403)
    yield delete("deletes all nodes", NODE, 403)


def a_node(name: str) -> Json:
    return {"metadata": {"name": name}}


def leases() -> Iterator[Row]:
    yield get("reads its lease", f"{LEASE}/{{node}}")
    yield get("reads another lease", f"{LEASE}/{{other}}", 403)
    yield get("lists leases", LEASE, 403)
    held = {"spec": {"holderIdentity": "{node}", "leaseDurationSeconds": 40}}
    yield post("creates its lease again", LEASE, {**a_node("{node}"), **held}, 409)
    yield post("creates another lease", LEASE, {**a_node("{node}-2"), **held}, 403)
    elsewhere = LEASE.replace(NODE_LEASES, "{ns}")
    yield post("creates its lease elsewhere", elsewhere, {**a_node("{node}"), **held}, 403)
    yield patch("renews its lease", f"{LEASE}/{{node}}", held)
    yield patch("renews another lease", f"{LEASE}/{{other}}", held, 403)
    yield delete("deletes its lease", f"{LEASE}/{{node}}", 403)


def pods() -> Iterator[Row]:
    everywhere, own, others = "/api/v1/pods", "spec.nodeName={node}", "spec.nodeName={other}"
    ours = LISTS_PODS
    yield get("reads its pod", f"{POD}/mine")
    yield get("reads its pod's status", f"{POD}/mine/status")
    yield get("reads another node's pod", f"{POD}/theirs", 403, only_ours=ours)
    yield get("reads a pod that is not there", f"{POD}/nobodys", 404)
    yield get("lists its pods", everywhere, fieldSelector=own)
    yield get("lists its pods in a namespace", POD, fieldSelector=own)
    yield watch("watches its pods", everywhere, fieldSelector=own)
    yield get("lists all pods", everywhere, 403, only_ours=ours)
    yield get("lists another node's pods", everywhere, 403, only_ours=ours, fieldSelector=others)
    yield watch("watches all pods", everywhere, 403, only_ours=ours)
    yield get(
        "lists pods not on its node",
        POD,
        403,
        only_ours=ours,
        fieldSelector="spec.nodeName!={node}",
    )
    both = f"{own},{others}"
    yield get("lists pods of two nodes at once", everywhere, fieldSelector=both)
    yield get("lists pods by a bent selector", everywhere, 403, only_ours=ours, labelSelector="a")
    yield get(
        "watches its pods by the old path",
        "/api/v1/watch/pods",
        fieldSelector=own,
        timeoutSeconds="1",
    )


def pod_lives() -> Iterator[Row]:
    yield get("reads a pod's log", f"{POD}/mine/log", 403)
    yield post("runs a command in a pod", f"{POD}/mine/exec?command=sh", {}, 403)
    yield post("creates a pod on its node", POD, a_pod("new", "{node}"), 403)
    yield post("evicts its pod", f"{POD}/mine/eviction", {"metadata": {"name": "mine"}}, 403)
    bound = {"metadata": {"name": "free"}, "target": {"kind": "Node", "name": "{node}"}}
    yield post("takes a pod to its node", f"{POD}/free/binding", bound, 403)
    yield post(
        "takes a pod to its node by a binding", "/api/v1/namespaces/{ns}/bindings", bound, 403
    )
    yield delete("deletes its pod", f"{POD}/mine", gracePeriodSeconds="0")
    yield delete("deletes its pod gently", f"{POD}/mine")
    yield delete("deletes another node's pod", f"{POD}/theirs", 403, gracePeriodSeconds="0")
    yield delete("deletes a pod that is bound nowhere", f"{POD}/free", 403)
    yield delete("deletes a pod that is not there", f"{POD}/nobodys", 404)
    yield delete("deletes all its pods at once", POD, 403, fieldSelector="spec.nodeName={node}")


def a_pod(name: str, node: str) -> Json:
    spec = {"nodeName": node, "containers": [{"name": "vm", "image": "vm"}]}
    return {"metadata": {"name": name}, "spec": spec}


def pod_writes() -> Iterator[Row]:
    mine, theirs = f"{POD}/mine", f"{POD}/theirs"
    ours = ["example.com/other", finalizers.VM_CLEANUP]
    added = {"metadata": {"finalizers": ours}}
    yield patch("adds its finalizer", mine, added)
    yield patch("adds its finalizer elsewhere", theirs, added, 403)
    yield patch("adds its finalizer to a free pod", f"{POD}/free", added, 403)
    foreign = {"metadata": {"finalizers": [*ours, "example.com/more"]}}
    yield patch("adds a foreign finalizer", mine, foreign, 403)
    yield patch("removes a foreign finalizer", mine, {"metadata": {"finalizers": None}}, 403)
    label = {"labels": {"tuist.dev/runner-pool-owner": "me"}}
    yield patch("labels its pod", mine, {"metadata": label}, 403)
    yield patch(
        "labels along with its finalizer", mine, {"metadata": {**label, **added["metadata"]}}, 403
    )
    yield patch("annotates its pod", mine, {"metadata": {"annotations": {"a": "b"}}}, 403)
    owner = [{"apiVersion": "v1", "kind": "Node", "name": "{node}", "uid": "{node_uid}"}]
    yield patch("gives its pod an owner", mine, {"metadata": {"ownerReferences": owner}}, 403)
    yield patch("changes its pod's spec", mine, {"spec": {"activeDeadlineSeconds": 5}}, 403)
    taken = {"nodeName": "{node}"}
    running = {"status": {"phase": "Running"}}
    yield patch("writes its pod's status", f"{mine}/status", running)
    yield patch("writes another pod's status", f"{theirs}/status", running, 403)
    yield patch(
        "labels its pod by its status", f"{mine}/status", {**running, "metadata": label}, 403
    )
    debugging = {"spec": {"ephemeralContainers": [{"name": "x", "image": "vm"}]}}
    yield patch("adds a container to its pod", f"{mine}/ephemeralcontainers", debugging, 403)
    yield patch("resizes its pod", f"{mine}/resize", {"spec": {}}, 403)
    yield patch("takes a free pod by its status", f"{POD}/free/status", {"spec": taken}, 403)
    yield patch("writes a status of no pod", f"{POD}/nobodys/status", running, 404)
    for name, code in (("mine", 200), ("theirs", 403), ("free", 403), ("nobodys", 404)):
        fields = applied("Pod", name, running)
        yield patch(
            f"applies a status of {name}", f"{POD}/{name}/status", fields, code, media=APPLY
        )
    fields = applied("Pod", "applied", a_pod("applied", "{node}"))
    yield patch("applies a new pod", f"{POD}/applied", fields, 403, media=APPLY)


def applied(kind: str, name: str, body: Json) -> Json:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **body}


def events() -> Iterator[Row]:
    about_node = {"kind": "Node", "name": "{node}", "apiVersion": "v1"}
    default = EVENT.replace("{ns}", "default")
    lease = {"kind": "Lease", "name": "{node}", "apiVersion": "coordination.k8s.io/v1"}
    in_leases = EVENT.replace("{ns}", NODE_LEASES)
    yield post("adds an event of its pod", EVENT, an_event(a_subject("mine")))
    yield post("adds an event of another node's pod", EVENT, an_event(a_subject("theirs")), 403)
    yield post("adds an event of a free pod", EVENT, an_event(a_subject("free")), 403)
    yield post("adds an event of a missing pod", EVENT, an_event(a_subject("missing")), 403)
    yield post("adds an event of a secret", EVENT, an_event(a_subject("s-env", kind="Secret")), 403)
    yield post("adds an event of its node", default, an_event(about_node, "default"))
    yield post(
        "adds an event of another node",
        default,
        an_event({**about_node, "name": "{other}"}, "default"),
        403,
    )
    of_lease = {**lease, "namespace": NODE_LEASES}
    yield post("adds an event of its lease", in_leases, an_event(of_lease, NODE_LEASES))
    of_other = {**of_lease, "name": "{other}"}
    yield post("adds an event of another lease", in_leases, an_event(of_other, NODE_LEASES), 403)
    yield patch("repeats its event", f"{EVENT}/of-mine", {"count": 2})
    yield patch("repeats another's event", f"{EVENT}/of-theirs", {"count": 2}, 403)
    yield patch("reads another's event by changing nothing", f"{EVENT}/of-theirs", {}, 403)
    taken = {"involvedObject": {"name": "mine"}}
    yield patch("takes over another's event", f"{EVENT}/of-theirs", taken, 403)
    given = {"involvedObject": {"name": "theirs"}}
    yield patch("turns its event on another's pod", f"{EVENT}/of-mine", given, 403)
    yield delete("deletes its event", f"{EVENT}/of-mine", 403)
    stays = an_event(a_subject("mine"), finalizers=["example.com/stays"])
    yield post("adds an event with a finalizer", EVENT, stays, 403)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "theirs", "uid": "{their_uid}"}
    holds = an_event(a_subject("mine"), ownerReferences=[{**owner, "blockOwnerDeletion": True}])
    yield post("holds another's pod by an event", EVENT, holds, 403)
    kept = {"metadata": {"finalizers": ["example.com/stays"]}}
    yield patch("makes its event stay", f"{EVENT}/of-mine", kept, 403)
    yield get("lists events", EVENT, 403)
    yield post("adds a new-style event of its pod", NEW_EVENT, a_new_event("mine"))
    yield post("adds another's new-style event", NEW_EVENT, a_new_event("theirs"), 403)


def a_subject(name: str, *, kind: str = "Pod") -> Json:
    return {"kind": kind, "namespace": "{ns}", "name": name, "apiVersion": "v1"}


def an_event(subject: Json, namespace: str = "{ns}", **more: Any) -> Json:
    fields = {"reason": "Tested", "type": "Normal", "message": "tested"}
    meta = {"name": "new", "namespace": namespace, **more}
    return {"metadata": meta, "involvedObject": subject, **fields}


def a_new_event(name: str) -> Json:
    fields = {"reason": "Tested", "type": "Normal", "note": "tested", "action": "Testing"}
    by = {"reportingController": "tart-kubelet", "reportingInstance": "{node}"}
    when = {"eventTime": "2026-11-15T12:00:00.000000Z"}
    return {"metadata": {"name": "newer"}, "regarding": a_subject(name), **fields, **by, **when}


def values() -> Iterator[Row]:
    for name in ("s-env", "s-env-from", "s-init", "s-volume", "s-projected", "s-pull"):
        yield get(f"reads the secret {name} of its pod", f"{SECRET}/{name}")
    for name in ("c-env", "c-env-from", "c-volume", "c-projected"):
        yield get(f"reads the config map {name} of its pod", f"{CONFIG}/{name}")
    for place, what in ((SECRET, "secret"), (CONFIG, "config map")):
        letter = what[0]
        own, named = f"metadata.name={letter}-env", f"metadata.name={letter}-theirs"
        yield get(f"reads a {what} of another node's pod", f"{place}/{letter}-theirs", 403)
        yield get(f"reads a {what} that no pod uses", f"{place}/{letter}-unused", 403)
        yield get(
            f"reads a {what} of that name elsewhere",
            f"{place}/{letter}-env".replace("{ns}", "default"),
            403,
        )
        yield get(f"lists {what}s", place, 403)
        yield get(f"lists one {what} of its pod", place, fieldSelector=own)
        yield get(f"lists one {what} of another", place, 403, fieldSelector=named)
        yield patch(f"changes a {what} of its pod", f"{place}/{letter}-env", {"data": {}}, 403)
        yield delete(f"deletes a {what} of its pod", f"{place}/{letter}-env", 403)
        yield post(f"creates a {what}", place, a_node("new"), 403)


def tokens() -> Iterator[Row]:
    own = f"{AGENT}/tart-kubelet-{{node}}/token"
    to_node = {"apiVersion": "v1", "kind": "Node", "name": "{node}", "uid": "{node_uid}"}
    to_other = {"apiVersion": "v1", "kind": "Node", "name": "{other}", "uid": "{other_uid}"}
    yield post("renews its own token bound to its node", own, a_token(to_node))
    yield post("renews its token bound to a pod", own, a_token(to_pod("mine", "{pod_uid}")), 403)
    yield post("renews its token bound to nothing", own, a_token(None))
    yield post("renews its token on another node", own, a_token(to_other), 403)
    others = f"{AGENT}/tart-kubelet-{{other}}/token"
    yield post("mints another agent's token", others, a_token(to_other), 403)
    yield post("mints another agent's token on its node", others, a_token(to_node), 403)
    shared, lonely = f"{ACCOUNT}/shared/token", f"{ACCOUNT}/lonely/token"
    yield post("mints a token for its pod", shared, a_token(to_pod("mine", "{pod_uid}")))
    yield post(
        "mints one for another audience", shared, a_token(to_pod("mine", "{pod_uid}"), "dispatch")
    )
    yield post("mints a token for no pod", shared, a_token(None), 403)
    yield post("mints a token for a pod without its uid", shared, a_token(to_pod("mine", "")), 403)
    yield post(
        "mints a token for another's pod", shared, a_token(to_pod("theirs", "{their_uid}")), 403
    )
    yield post("mints a token for a pod that is gone", shared, a_token(to_pod("nobodys", "u")), 403)
    yield post("mints a token for a node", shared, a_token(to_node), 403)
    secret = {"apiVersion": "v1", "kind": "Secret", "name": "s-env", "uid": "u"}
    yield post("mints a token for a secret", shared, a_token(secret), 403)
    yield post(
        "mints a token of an account that only another uses",
        lonely,
        a_token(to_pod("theirs", "{their_uid}")),
        403,
    )
    yield get("reads an account of its pod", f"{ACCOUNT}/shared", 403)
    yield get("lists accounts", ACCOUNT, 403)
    yield post("creates an account", ACCOUNT, a_node("new"), 403)
    yield delete("deletes its own account", f"{AGENT}/tart-kubelet-{{node}}", 403)


def to_pod(name: str, uid: str) -> Json:
    bound = {"apiVersion": "v1", "kind": "Pod", "name": name}
    return {**bound, "uid": uid} if uid else bound


def a_token(bound: Json | None, audience: str = "") -> Json:
    spec: Json = {"expirationSeconds": 600, "audiences": [audience] if audience else []}
    if bound is not None:
        spec["boundObjectRef"] = bound
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def reviews() -> Iterator[Row]:
    authn, authz = "/apis/authentication.k8s.io/v1", "/apis/authorization.k8s.io/v1"
    attributes = {"verb": "get", "resource": "pods", "namespace": "{ns}"}
    yield post("asks whose a token is", f"{authn}/tokenreviews", {"spec": {"token": "x"}})
    review = {"spec": {"user": "anna", "resourceAttributes": attributes}}
    yield post("asks what another user may do", f"{authz}/subjectaccessreviews", review)
    yield post("asks who it is", f"{authn}/selfsubjectreviews", {})
    itself = {"spec": {"resourceAttributes": attributes}}
    yield post("asks what it may do", f"{authz}/selfsubjectaccessreviews", itself)


def the_rest() -> Iterator[Row]:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    admin = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "cluster-admin",
    }
    itself = {
        "kind": "ServiceAccount",
        "namespace": "bramley-agents",
        "name": "tart-kubelet-{node}",
    }
    binding = {"metadata": {"name": "x"}, "roleRef": admin, "subjects": [itself]}
    yield post("makes itself an administrator", f"{RBAC}/clusterrolebindings", binding, 403)
    more = {**role, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    yield patch("widens its own role", f"{RBAC}/clusterroles/bramley-agent:{{node}}", more, 403)
    yield patch("widens the shared role", f"{RBAC}/clusterroles/bramley-agent", more, 403)
    yield get("reads its own role", f"{RBAC}/clusterroles/bramley-agent:{{node}}", 403)
    yield get("reads a namespace", "/api/v1/namespaces/{ns}", 403)
    yield get("lists namespaces", "/api/v1/namespaces", 403)
    yield get("lists deployments", "/apis/apps/v1/deployments", 403)
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    yield delete("deletes the policy", f"{policies}/bramley-agent-writes", 403)
    acting = (("Impersonate-User", "system:admin"), ("Impersonate-Group", "system:masters"))
    yield Row("acts for an administrator", "GET", f"{SECRET}/s-unused", 403, headers=acting)
    yield get("asks for the version", "/version")
    yield get("discovers what is served", "/api/v1")
