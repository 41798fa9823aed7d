"""TuistCluster: represents an existing cluster, with a control plane managed elsewhere, to Cluster API."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from bramley.api.mac_status import MachineCondition
from bramley.api.meta import Fields, Int32, Int64, Object, Resource
from bramley.api.names import groups
from bramley.api.schema import ValidationRule, list_map, text

# Go writes an endpoint that was never set as an empty host and port 0.
BOTH_OR_NEITHER = ValidationRule(
    "(self.host == '') == (self.port == 0)", "host and port are set together or not at all"
)


class ControlPlaneEndpoint(Fields, frozen=True, kw_only=True):
    """Where the cluster's API is reached."""

    checks: ClassVar[tuple[ValidationRule, ...]] = (BOTH_OR_NEITHER,)

    host: Annotated[str, text(max_length=253), Meta(description="The name or address of the API.")]
    port: Annotated[Int32, Meta(ge=0, le=65535, description="The port of the API.")]


class TuistClusterSpec(Fields, frozen=True, kw_only=True):
    """The configuration of the cluster."""

    control_plane_endpoint: ControlPlaneEndpoint | None = None


class TuistClusterStatus(Fields, frozen=True, kw_only=True):
    """The observed state of the cluster."""

    ready: Annotated[bool, Meta(description="Whether machines may be made.")] = False
    conditions: Annotated[
        list[MachineCondition],
        Meta(description="Facts about the cluster.", extra_json_schema=list_map("type")),
    ] = []
    observed_generation: Annotated[
        Int64, Meta(description="The generation of the spec that was last acted on.")
    ] = 0


class TuistCluster(Object, frozen=True, kw_only=True):
    """An existing cluster, represented for Cluster API."""

    resource: ClassVar[Resource] = Resource(
        groups.INFRASTRUCTURE, groups.VERSION, "TuistCluster", "tuistclusters", namespaced=True
    )

    spec: TuistClusterSpec = TuistClusterSpec()
    status: TuistClusterStatus = TuistClusterStatus()
