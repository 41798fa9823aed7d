"""Whatever an agent sends to the embedded API, in whatever order: only its own objects change."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from bramley.access import identity
from bramley.api.coordination import Lease
from bramley.api.core import Event, Secret
from bramley.api.meta import ObjectMeta
from bramley.api.names import finalizers
from bramley.apiserver.store.records import Record
from bramley.apiserver.store.store import Store
from bramley.base import secret
from bramley.kube.transport import Request
from tests import virtual_time
from tests.unit import example_counts
from tests.unit.access.embedded_api import Served, a_node, bind_pod, served

NODE, OTHER = "mac-1", "mac-2"
IN_NS = "/api/v1/namespaces/ns"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NAMED = [
    *(f"/api/v1/nodes/{name}{sub}" for name in (NODE, OTHER, "new") for sub in ("", "/status")),
    *(
        f"{IN_NS}/pods/{name}{sub}"
        for name in ("mine", "theirs", "free", "new")
        for sub in ("", "/status", "/eviction", "/binding")
    ),
    *(f"{LEASES}/{name}" for name in (NODE, OTHER)),
    *(f"{IN_NS}/secrets/{name}" for name in ("used", "unused")),
    *(f"{IN_NS}/events/{name}" for name in ("of-mine", "of-theirs")),
    f"/api/v1/namespaces/bramley-agents/serviceaccounts/tart-kubelet-{NODE}",
    f"{RBAC}/clusterroles/bramley-agent",
    f"{RBAC}/clusterrolebindings/bramley-agent-enrolment:{NODE}",
    "/api/v1/namespaces/ns",
]
COLLECTIONS = [
    "/api/v1/nodes",
    f"{IN_NS}/pods",
    LEASES,
    f"{IN_NS}/secrets",
    f"{IN_NS}/events",
    f"{RBAC}/clusterrolebindings",
    f"{IN_NS}/bindings",
    "/api/v1/namespaces",
]
MEDIA = [
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
]
OURS = finalizers.VM_CLEANUP

metadata = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from([NODE, OTHER, "mine", "theirs", "free", "new", "used"]),
        "labels": st.sampled_from([None, {"a": "b"}]),
        "finalizers": st.sampled_from([None, [OURS], ["x/y"], [OURS, "x/y"]]),
        "ownerReferences": st.just(
            [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "u"}]
        ),
    },
)
references = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["Pod", "Node"]),
        "name": st.sampled_from(["mine", "theirs", NODE, OTHER]),
    },
    optional={"namespace": st.sampled_from(["ns", "default"])},
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "metadata": metadata,
        "spec": st.sampled_from(
            [
                {"nodeName": NODE},
                {"nodeName": OTHER},
                {"activeDeadlineSeconds": 9},
                {"unschedulable": True},
            ]
        ),
        "status": st.sampled_from([{"phase": "Running"}, {"phase": "Failed"}, {}]),
        "data": st.just({"k": "dg=="}),
        "count": st.just(7),
        "involvedObject": references,
        "target": st.sampled_from([{"kind": "Node", "name": NODE}]),
        "rules": st.just([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
    },
)
# Requests that authorization allows, so that their bodies are checked.
FOCUS = [
    f"{IN_NS}/pods/mine",
    f"{IN_NS}/pods/mine/status",
    f"{IN_NS}/events/of-mine",
    f"{IN_NS}/events/of-theirs",
]
names = st.sampled_from([NODE, OTHER, "new"])
changes = st.one_of(
    metadata.map(lambda value: {"metadata": value}),
    references.map(lambda value: {"involvedObject": value}),
    st.sampled_from(
        [{"spec": {"activeDeadlineSeconds": 9}}, {"count": 3}, {"status": {"phase": "Failed"}}]
    ),
)
creations = st.tuples(names, references).map(
    lambda pair: {"metadata": {"name": pair[0]}, "involvedObject": pair[1], "reason": "x"}
)
JSON = "application/json"
requests: st.SearchStrategy[tuple[str, str, Any, str]] = st.one_of(
    st.tuples(st.just("PATCH"), st.sampled_from(FOCUS), changes, st.just(MEDIA[0])),
    st.tuples(
        st.just("POST"),
        st.sampled_from(["/api/v1/nodes", LEASES, f"{IN_NS}/events"]),
        creations,
        st.just(JSON),
    ),
    st.tuples(st.just("PATCH"), st.sampled_from(NAMED), bodies, st.sampled_from(MEDIA)),
    st.tuples(st.just("PUT"), st.sampled_from(NAMED), bodies, st.just(JSON)),
    st.tuples(st.just("POST"), st.sampled_from([*NAMED, *COLLECTIONS]), bodies, st.just(JSON)),
    st.tuples(
        st.just("DELETE"), st.sampled_from([*NAMED, *COLLECTIONS]), st.just({}), st.just(JSON)
    ),
)


async def a_scene(server: Served) -> secret.Secret:
    kube = server.kube
    for name in (NODE, OTHER):
        await a_node(kube, name)
        await kube.create(Lease(metadata=ObjectMeta(name=name, namespace="kube-node-lease")))
    for name in ("used", "unused"):
        await kube.create(Secret(metadata=ObjectMeta(name=name, namespace="ns")))
    await bind_pod(kube, "mine", NODE, imagePullSecrets=[{"name": "used"}])
    await bind_pod(kube, "theirs", OTHER)
    await bind_pod(kube, "free", "")
    for name in ("mine", "theirs"):
        about = {"kind": "Pod", "namespace": "ns", "name": name}
        body = {"metadata": {"name": f"of-{name}"}, "involvedObject": about}
        await kube.create_wire(Event.resource, body, namespace="ns")
    return (await identity.create(kube, NODE, expires=timedelta(hours=1))).token


def is_own(record: Record) -> bool:
    resource, name = record.key.resource, record.key.name
    body = msgspec.json.decode(record.body)
    if resource in {"nodes", "leases.coordination.k8s.io"}:
        return name == NODE
    if resource == "pods":
        return bool(body["spec"].get("nodeName") == NODE)
    about = body.get("involvedObject", {})
    return resource == "events" and about.get("name") in {"mine", NODE}


def of_others(store: Store) -> dict[Any, bytes]:
    """Return every object that is not the agent's own, whole."""
    records = itertools.chain.from_iterable(store.list(resource) for resource in store._caches)
    return {record.key: record.body for record in records if not is_own(record)}


def of_own_pods(store: Store) -> dict[Any, Any]:
    """Return the fields of its own Pods that an agent must not change."""
    found = {}
    for record in store.list("pods"):
        body = msgspec.json.decode(record.body)
        meta = body["metadata"]
        foreign = [each for each in meta.get("finalizers", []) if each != OURS]
        found[record.key] = (body["spec"], meta.get("labels"), meta.get("ownerReferences"), foreign)
    return found


@settings(max_examples=example_counts.examples(25))
@given(st.lists(requests, min_size=5, max_size=40))
def test_no_sequence_of_writes_changes_objects_of_others(
    requests: list[tuple[str, str, Any, str]],
) -> None:
    async def scenario() -> None:
        async with served("ns") as server:
            token = await a_scene(server)
            store = server.api.store
            others, pods = of_others(store), of_own_pods(store)
            for method, path, body, media in requests:
                whole = {"apiVersion": "v1", "kind": "Any", **body} if "apply" in media else body
                query = {"fieldManager": "agent"} if "apply" in media else {}
                data = msgspec.json.encode(whole)
                answer = await server.api.transport(token).send(
                    Request(method, path, query, data, media)
                )
                assert answer.status < 500, (method, path, answer.body)

                assert of_others(store) == others, (method, path, body, answer.body)
                for key, kept in of_own_pods(store).items():
                    assert kept == pods[key], (method, path, body)

    virtual_time.run(scenario())
