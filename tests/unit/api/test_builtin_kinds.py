"""Decoding what a real API server sends: nulls where Go has no omitempty, fields we do not model, every kind in a round trip."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bramley.api import auth, core, rbac
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.auth import TokenRequest, TokenReview
from bramley.api.autoscaling import Scale
from bramley.api.coordination import Lease
from bramley.api.core import ConfigMap, Event, Namespace, Node, Pod, Secret, ServiceAccount
from bramley.api.meta import Object, to_wire
from bramley.api.policy import Eviction, PodDisruptionBudget
from bramley.api.rbac import ClusterRole, ClusterRoleBinding, Role, RoleBinding

METADATA = {
    "name": "x",
    "uid": "u",
    "resourceVersion": "7",
    "creationTimestamp": "2026-06-19T12:00:00Z",
    "labels": {"a": "b"},
    "finalizers": ["f"],
    "ownerReferences": [
        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "v", "controller": True}
    ],
}

WHOLE: list[tuple[type[Object], dict[str, Any]]] = [
    (
        Pod,
        {
            "spec": {
                "nodeName": "mac-1",
                "nodeSelector": {"kubernetes.io/os": "darwin"},
                "containers": [
                    {
                        "name": "runner",
                        "image": "i",
                        "env": [
                            {"name": "A", "value": "1"},
                            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                        ],
                        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c"}}],
                        "resources": {"limits": {"cpu": "4", "memory": "8Gi"}},
                    }
                ],
                "tolerations": [{"key": "tuist.dev/macos", "operator": "Exists"}],
                "affinity": {
                    "nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": 100,
                                "preference": {
                                    "matchExpressions": [{"key": "g", "operator": "Exists"}]
                                },
                            }
                        ]
                    }
                },
                "automountServiceAccountToken": True,
            },
            "status": {
                "phase": "Succeeded",
                "podIP": "192.168.64.2",
                "podIPs": [{"ip": "192.168.64.2"}],
                "hostIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": "False"}],
                "containerStatuses": [
                    {
                        "name": "runner",
                        "image": "i",
                        "containerID": "tart://vm",
                        "restartCount": 1,
                        "state": {
                            "terminated": {
                                "exitCode": 0,
                                "reason": "Completed",
                                "finishedAt": "2026-06-19T12:00:00Z",
                            }
                        },
                    }
                ],
            },
        },
    ),
    (
        Node,
        {
            "spec": {
                "providerID": "scw-applesilicon://fr-par-1/u",
                "taints": [{"key": "tuist.dev/macos", "value": "true", "effect": "NoSchedule"}],
            },
            "status": {
                "capacity": {"cpu": "8", "pods": "2"},
                "conditions": [
                    {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-06-19T12:00:00Z"}
                ],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "nodeInfo": {"machineID": "m", "bootID": "b", "kubeletVersion": "v"},
                "images": [{"names": ["ghcr.io/a@sha256:b"], "sizeBytes": 5}],
            },
        },
    ),
    (
        Event,
        {
            "involvedObject": {"kind": "Pod", "namespace": "n", "name": "p", "uid": "u"},
            "reason": "CreatingVM",
            "type": "Normal",
            "count": 2,
            "source": {"component": "tart-kubelet"},
            "eventTime": "2026-06-19T12:00:00.000000Z",
            "series": {"count": 2, "lastObservedTime": "2026-06-19T12:00:00.000000Z"},
            "reportingComponent": "tart-kubelet",
        },
    ),
    (Secret, {"type": "Opaque", "data": {"private-key": "aGVsbG8="}}),
    (ConfigMap, {"data": {"k": "v"}, "immutable": True}),
    (Namespace, {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}),
    (ServiceAccount, {"automountServiceAccountToken": False, "secrets": [{"name": "s"}]}),
    (Lease, {"spec": {"holderIdentity": "h", "renewTime": "2026-06-19T12:00:00.100000Z"}}),
    (
        TokenRequest,
        {
            "spec": {
                "audiences": ["a"],
                "expirationSeconds": 600,
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u"},
            },
            "status": {"token": "t", "expirationTimestamp": "2026-06-19T12:00:00Z"},
        },
    ),
    (
        TokenReview,
        {
            "spec": {"token": "t", "audiences": ["a"]},
            "status": {
                "authenticated": True,
                "user": {"username": "system:serviceaccount:n:p", "extra": {"k": ["v"]}},
            },
        },
    ),
    (Role, {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
    (
        ClusterRole,
        {
            "rules": [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}],
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
        },
    ),
    (
        RoleBinding,
        {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "n"}],
        },
    ),
    (
        ClusterRoleBinding,
        {
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "r",
            },
            "subjects": [{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}],
        },
    ),
    (
        CustomResourceDefinition,
        {
            "spec": {
                "group": "tuist.dev",
                "names": {"plural": "as", "kind": "A", "shortNames": ["a"]},
                "scope": "Namespaced",
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": {"type": "object"}},
                        "subresources": {"status": {}},
                        "additionalPrinterColumns": [
                            {"name": "N", "type": "string", "jsonPath": ".a"}
                        ],
                    }
                ],
            },
            "status": {"storedVersions": ["v1"]},
        },
    ),
    (Scale, {"spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=b"}}),
    (Eviction, {"deleteOptions": {"gracePeriodSeconds": 5, "preconditions": {"uid": "u"}}}),
    (
        PodDisruptionBudget,
        {
            "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "vm"}}},
            "status": {
                "observedGeneration": 1,
                "disruptedPods": {"vm-1": "2026-06-19T12:00:00Z"},
                "disruptionsAllowed": 1,
                "currentHealthy": 2,
                "desiredHealthy": 1,
                "expectedPods": 2,
                "conditions": [{"type": "DisruptionAllowed", "status": "True"}],
            },
        },
    ),
]

NULLS: list[tuple[type[Object], dict[str, Any]]] = [
    (Pod, {"metadata": {"name": "x", "creationTimestamp": None}}),
    (
        Pod,
        {
            "status": {
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "lastProbeTime": None,
                        "lastTransitionTime": None,
                    }
                ],
                "containerStatuses": [
                    {
                        "name": "c",
                        "state": {"running": {"startedAt": None}},
                        "lastState": {
                            "terminated": {"exitCode": 1, "startedAt": None, "finishedAt": None}
                        },
                    }
                ],
            }
        },
    ),
    (
        Pod,
        {
            "spec": {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": None
                        }
                    }
                }
            }
        },
    ),
    (Node, {"status": {"images": [{"names": None, "sizeBytes": 1}]}}),
    (
        Node,
        {"status": {"conditions": [{"type": "a", "status": "True", "lastHeartbeatTime": None}]}},
    ),
    (
        Event,
        {
            "involvedObject": {},
            "eventTime": None,
            "firstTimestamp": None,
            "lastTimestamp": None,
            "series": {"count": 1, "lastObservedTime": None},
        },
    ),
    (ClusterRole, {"rules": None}),
    (Role, {"rules": [{"verbs": None}]}),
    (
        TokenRequest,
        {
            "spec": {"audiences": None, "expirationSeconds": None, "boundObjectRef": None},
            "status": {"token": "", "expirationTimestamp": None},
        },
    ),
    (TokenReview, {"status": {"user": {"extra": {"k": None}}}}),
    (
        CustomResourceDefinition,
        {
            "spec": {"group": "g", "names": {}, "scope": "Cluster", "versions": None},
            "status": {"conditions": None, "acceptedNames": {}, "storedVersions": None},
        },
    ),
]


def named(case: object) -> str:
    return case.__name__ if isinstance(case, type) else ""


@pytest.mark.parametrize(("kind", "body"), WHOLE, ids=named)
def test_every_field_survives_a_round_trip(kind: type[Object], body: dict[str, Any]) -> None:
    head = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
    sent = {**head, "metadata": METADATA, **body}

    decoded = msgspec.json.decode(msgspec.json.encode(sent), type=kind)

    assert to_wire(decoded) == sent


@pytest.mark.parametrize(("kind", "body"), NULLS, ids=named)
def test_nulls_of_a_real_server_are_read(kind: type[Object], body: dict[str, Any]) -> None:
    msgspec.json.decode(msgspec.json.encode(body), type=kind)


@pytest.mark.parametrize(("kind", "body"), WHOLE, ids=named)
def test_fields_that_we_do_not_model_are_ignored(kind: type[Object], body: dict[str, Any]) -> None:
    more = {**body, "managedFields": [{"a": None}], "somethingNew": {"deep": [1, None]}}

    decoded = msgspec.json.decode(msgspec.json.encode(more), type=kind)

    assert decoded == msgspec.convert(body, kind)


def test_every_built_in_kind_has_a_round_trip() -> None:
    from bramley.api import apiextensions, autoscaling, coordination, policy

    modules = (core, rbac, auth, apiextensions, autoscaling, coordination, policy)
    kinds = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Object) and value is not Object
    }

    assert {kind for kind, _ in WHOLE} == kinds


def test_amount_may_be_a_number_in_a_manifest() -> None:
    limits = {"cpu": 4, "memory": "8Gi", "share": 0.5}
    container = {"name": "c", "resources": {"limits": limits}}

    pod = msgspec.convert({"spec": {"containers": [container]}}, Pod)

    assert pod.spec.containers[0].resources.limits == limits


def test_values_of_a_secret_are_bytes_and_never_shown() -> None:
    raw = b'{"metadata":{"name":"s","namespace":"n"},"data":{"private-key":"aHVudGVyMg=="}}'

    secret = msgspec.json.decode(raw, type=Secret)

    assert secret.data == {"private-key": b"hunter2"}
    assert repr(secret) == "Secret(namespace='n', name='s', keys=['private-key'])"
    assert "hunter2" not in f"{[secret]} {secret}"


def test_tokens_are_never_shown() -> None:
    minted = msgspec.convert({"status": {"token": "hunter2"}}, TokenRequest)
    review = msgspec.convert({"spec": {"token": "hunter2"}}, TokenReview)

    assert minted.status.token == review.spec.token == "hunter2"
    assert "hunter2" not in f"{minted!r} {minted} {review!r} {review}"


def test_objects_cannot_be_changed_in_place() -> None:
    with pytest.raises(AttributeError):
        Pod().spec.node_name = "other"  # type: ignore[misc]
