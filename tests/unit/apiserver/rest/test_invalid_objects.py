"""Valid objects of every kind with one error: refused or accepted, never a 500, never stored in part."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests import virtual_time
from tests.unit.apiserver.world import CRDS, MERGE, WIDGETS, Json, a_widget, a_world, widget_crd

NAMESPACED = "/api/v1/namespaces/t"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
OBJECTS: dict[str, Json] = {
    f"{NAMESPACED}/configmaps": {
        "data": {"k": "v"},
        "binaryData": {"b": "eA=="},
        "immutable": False,
    },
    f"{NAMESPACED}/secrets": {"stringData": {"k": "v"}, "data": {"b": "eA=="}, "type": "Opaque"},
    f"{NAMESPACED}/serviceaccounts": {"imagePullSecrets": [{"name": "x"}]},
    f"{NAMESPACED}/pods": {
        "spec": {
            "nodeName": "n",
            "serviceAccountName": "s",
            "nodeSelector": {"a": "b"},
            "priorityClassName": "system-node-critical",
            "terminationGracePeriodSeconds": 5,
            "activeDeadlineSeconds": 5,
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "volumes": [
                {"name": "v", "secret": {"secretName": "x"}},
                {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            ],
            "containers": [
                {
                    "name": "c",
                    "image": "i:1",
                    "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}},
                    "env": [
                        {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
                    ],
                    "ports": [{"containerPort": 1}],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    "livenessProbe": {"httpGet": {"port": 1}},
                }
            ],
        },
        "status": {"podIP": "10.0.0.1", "phase": "Running"},
    },
    f"{NAMESPACED}/services": {
        "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}, "type": "ClusterIP"}
    },
    f"{NAMESPACED}/events": {
        "involvedObject": {"kind": "Pod", "namespace": "t"},
        "source": {"component": "c"},
        "reason": "R",
        "count": 1,
    },
    "/apis/events.k8s.io/v1/namespaces/t/events": {
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/c",
        "reportingInstance": "i",
        "action": "A",
        "reason": "R",
        "regarding": {"namespace": "t"},
        "type": "Normal",
        "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"},
    },
    "/apis/coordination.k8s.io/v1/namespaces/t/leases": {
        "spec": {"holderIdentity": "h", "leaseDurationSeconds": 5, "leaseTransitions": 1}
    },
    "/api/v1/nodes": {
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "providerID": "p"},
        "status": {"capacity": {"cpu": "1"}, "nodeInfo": {"architecture": "arm64"}},
    },
    "/api/v1/namespaces": {"spec": {"finalizers": ["kubernetes"]}},
    f"{RBAC}/namespaces/t/roles": {
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    },
    f"{RBAC}/clusterroles": {"rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]},
    f"{RBAC}/namespaces/t/rolebindings": {
        "roleRef": {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"},
        "subjects": [{"kind": "User", "name": "u"}],
    },
    "/apis/scheduling.k8s.io/v1/priorityclasses": {"value": 5, "preemptionPolicy": "Never"},
    WIDGETS: {**a_widget("x"), "status": {"replicas": 1, "selector": "a=b"}},
}
METADATA = {
    "name": "x",
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "finalizers": ["example.com/f"],
    "ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    ],
}
JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        2**40,
        2**70,
        1.5,
        "",
        "A_",
        "a b",
        "é",
        "x" * 300,
        [],
        [None],
        [{}],
        [[]],
        {},
        {"": ""},
        {"a": None},
    ]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of everything inside a value."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, each in value.items():
            found += places(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            found += places(each, (*path, index))
    return found


@st.composite
def near_misses(draw: st.DrawFn) -> tuple[str, Json, Json]:
    """Draw a collection, a valid object for it, and the same object with one or two things wrong."""
    path = draw(st.sampled_from(sorted(OBJECTS)))
    good = {**OBJECTS[path], "metadata": METADATA}
    bad = copy.deepcopy(good)
    for _ in range(draw(st.integers(1, 2))):
        *holders, last = draw(st.sampled_from(places(bad)))
        holder: Any = bad
        for part in holders:
            holder = holder[part]
        if draw(st.booleans()):
            holder[last] = copy.deepcopy(draw(JUNK))
        else:
            del holder[last]
        if not places(bad):
            break
    return path, good, bad


@given(near_misses(), st.sampled_from(["POST", "PUT", "PATCH", "STATUS"]))
def test_almost_valid_object_never_causes_a_server_error(
    case: tuple[str, Json, Json], how: str
) -> None:
    path, good, bad = case

    async def scenario() -> None:
        async with a_world() as world:
            await world.create(CRDS, widget_crd())
            if how != "POST":
                await world.create(path, good)
            before = world.store.revision

            if how == "POST":
                reply = await world.request("POST", path, bad)
            elif how == "PUT":
                reply = await world.request("PUT", f"{path}/x", bad)
            else:
                name = f"{path}/x/status" if how == "STATUS" else f"{path}/x"
                reply = await world.request("PATCH", name, bad, content_type=MERGE)

            assert reply.code != 500 or "reason" not in reply.json, reply.body
            if reply.code >= 400:
                assert world.store.revision == before
            else:
                assert json.loads(reply.body)["metadata"]["uid"]

    virtual_time.run(scenario())
