"""Kinds that are never stored: Scales, reviews of tokens and rights, and the metrics of Nodes and Pods."""

from __future__ import annotations

from bramley.apiserver.registry.resources import Json, Rules, ServedResource

SCALE = kind("Scale", group="autoscaling", rules=Rules(shape="autoscaling.v1.Scale"))


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
