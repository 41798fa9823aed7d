"""Scale: the replica count of a kind with a scale subresource."""

from __future__ import annotations

from typing import ClassVar

from bramley.api.meta import Fields, Object, Resource


class ScaleSpec(Fields, frozen=True, kw_only=True):
    """The desired replica count."""

    replicas: int = 0


class ScaleStatus(Fields, frozen=True, kw_only=True):
    """The observed replica count, and the label selector of the Pods."""

    replicas: int = 0
    selector: str = ""


class Scale(Object, frozen=True, kw_only=True):
    """A replica count; it exists only as the `scale` subresource of another object."""

    resource: ClassVar[Resource] = Resource("autoscaling", "v1", "Scale", "scales", namespaced=True)

    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()
