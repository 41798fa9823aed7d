"""Kinds that are never stored: Scales, reviews of tokens and rights, and the metrics of Nodes and Pods."""

from __future__ import annotations

from bramley.apiserver.registry.resources import Json, Rules, ServedResource

SCALE = ServedResource(
    group="autoscaling",
    version="v1",
    kind="Scale",
    plural="scales",
    namespaced=True,
    is_custom=False,
    rules=Rules(shape="autoscaling.v1.Scale"),
)
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


def reviews() -> tuple[ServedResource, ...]:
    """Return the reviews that are served; `rest.routes` names their handlers."""
    return (
        _review("TokenReview", _AUTHENTICATION),
        _review("SelfSubjectReview", _AUTHENTICATION),
        _review("LocalSubjectAccessReview", _AUTHORIZATION, namespaced=True),
        _review("SelfSubjectAccessReview", _AUTHORIZATION),
        _review("SelfSubjectRulesReview", _AUTHORIZATION),
        _review("SubjectAccessReview", _AUTHORIZATION),
    )


def _review(kind: str, group: str, *, namespaced: bool = False) -> ServedResource:
    return ServedResource(
        group=group,
        version="v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        namespaced=namespaced,
        verbs=("create",),
        is_custom=False,
        is_virtual=True,
        rules=Rules(shape=f"v1.{kind}"),
    )


def metrics_kinds() -> tuple[ServedResource, ...]:
    """Return the kinds of metrics.k8s.io; `rest.metrics` computes them."""
    return (
        _metrics_kind("NodeMetrics", "nodes", namespaced=False, fields={"usage": _USAGE}),
        _metrics_kind("PodMetrics", "pods", namespaced=True, fields={"containers": _CONTAINERS}),
    )


def _metrics_kind(kind: str, plural: str, *, namespaced: bool, fields: Json) -> ServedResource:
    return ServedResource(
        group=METRICS_GROUP,
        version="v1beta1",
        kind=kind,
        plural=plural,
        singular=plural.removesuffix("s"),
        namespaced=namespaced,
        verbs=("get", "list"),
        is_custom=False,
        is_computed=True,
        rules=Rules(),
        schema={
            "description": f"What one of the {plural} uses.",
            "type": "object",
            "required": ["timestamp", "window", *fields],
            "properties": {**_TIMES, **fields},
        },
    )
