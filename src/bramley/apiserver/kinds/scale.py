"""The Scale, which is no stored kind but the body of scale subresources."""

from __future__ import annotations

from bramley.apiserver.registry.resources import Rules, ServedResource

SCALE = ServedResource(
    group="autoscaling",
    version="v1",
    kind="Scale",
    plural="scales",
    namespaced=True,
    is_custom=False,
    rules=Rules(shape="autoscaling.v1.Scale"),
)
