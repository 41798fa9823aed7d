"""Kinds of metrics.k8s.io: what Nodes and Pods use. They are made when they are read; `rest.metrics` makes them."""

from __future__ import annotations

from bramley.apiserver.registry.resources import Json, Rules, ServedResource

GROUP = "metrics.k8s.io"
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


def usages() -> tuple[ServedResource, ...]:
    """Return the kinds that are served; `rest.subresources.COMPUTED` names their handlers."""
    return (
        _usage("NodeMetrics", "nodes", namespaced=False, told={"usage": _USAGE}),
        _usage("PodMetrics", "pods", namespaced=True, told={"containers": _CONTAINERS}),
    )


def _usage(kind: str, plural: str, *, namespaced: bool, told: Json) -> ServedResource:
    return ServedResource(
        group=GROUP,
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
            "required": ["timestamp", "window", *told],
            "properties": {**_TIMES, **told},
        },
    )
