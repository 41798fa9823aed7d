"""Kinds that are never stored: Scales, reviews of tokens and rights, and the metrics of Nodes and Pods."""

from __future__ import annotations

from functools import partial

from bramley.apiserver.kinds.definitions import kind
from bramley.apiserver.registry.resources import Json, ServedResource, Strategy

SCALE = kind("Scale", group="autoscaling", strategy=Strategy(shape="autoscaling.v1.Scale"))
_AUTHENTICATION = "authentication.k8s.io"
_AUTHORIZATION = "authorization.k8s.io"
METRICS_GROUP = "metrics.k8s.io"
_TIMES: Json = {
    "timestamp": {
        "description": "The end of the time in which this was used.",
        "type": "string",
        "format": "date-time",
    },
    "window": {
        "description": "How long a time the figures are an average of, up to the timestamp.",
        "type": "string",
    },
}
_USAGE: Json = {
    "description": "The amounts in use: cpu in cores, memory as the working set.",
    "type": "object",
    "additionalProperties": {"x-kubernetes-int-or-string": True},
}
_CONTAINERS: Json = {
    "description": "What each container uses.",
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name", "usage"],
        "properties": {
            "name": {"description": "The container's name in its Pod.", "type": "string"},
            "usage": _USAGE,
        },
    },
}


def _metrics_kind(name: str, plural: str, *, namespaced: bool, fields: Json) -> ServedResource:
    return kind(
        name,
        group=METRICS_GROUP,
        version="v1beta1",
        plural=plural,
        singular=plural.removesuffix("s"),
        namespaced=namespaced,
        verbs=("get", "list"),
        is_computed=True,
        schema={
            "description": f"What one of the {plural} uses.",
            "type": "object",
            "required": ["timestamp", "window", *fields],
            "properties": {**_TIMES, **fields},
        },
    )


# `rest.routes` names the handlers of the reviews, and `rest.metrics` computes the metrics.
_review = partial(kind, verbs=("create",), is_virtual=True)
KINDS = (
    _review("TokenReview", group=_AUTHENTICATION, namespaced=False),
    _review("SelfSubjectReview", group=_AUTHENTICATION, namespaced=False),
    _review("LocalSubjectAccessReview", group=_AUTHORIZATION),
    _review("SelfSubjectAccessReview", group=_AUTHORIZATION, namespaced=False),
    _review("SelfSubjectRulesReview", group=_AUTHORIZATION, namespaced=False),
    _review("SubjectAccessReview", group=_AUTHORIZATION, namespaced=False),
    _metrics_kind("NodeMetrics", "nodes", namespaced=False, fields={"usage": _USAGE}),
    _metrics_kind("PodMetrics", "pods", namespaced=True, fields={"containers": _CONTAINERS}),
)
