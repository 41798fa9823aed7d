"""TuistCluster: tells Cluster API that the cluster is there already, with a control plane that others run."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from bramley.api.meta import Fields, Int32, Int64, Object, Resource
from bramley.api.names import groups
from bramley.api.scaleway_machine import MachineCondition
from bramley.api.schema import Check, list_map, text

# Go writes an endpoint that was never set as an empty host and port 0.
BOTH_OR_NEITHER = Check(
    "(self.host == '') == (self.port == 0)", "host and port are set together or not at all"
)


class ControlPlaneEndpoint(Fields, frozen=True, kw_only=True):
    """Where the cluster's API is reached."""

    checks: ClassVar[tuple[Check, ...]] = (BOTH_OR_NEITHER,)

    host: Annotated[str, text(at_most=253), Meta(description="The name or address of the API.")]
    port: Annotated[Int32, Meta(ge=0, le=65535, description="The port of the API.")]


class TuistClusterSpec(Fields, frozen=True, kw_only=True):
    """What is known of the cluster."""

    control_plane_endpoint: ControlPlaneEndpoint | None = None


class TuistClusterStatus(Fields, frozen=True, kw_only=True):
    """What was observed of the cluster."""

    ready: Annotated[bool, Meta(description="Whether machines may be made.")] = False
    conditions: Annotated[
        list[MachineCondition],
        Meta(description="Facts about the cluster.", extra_json_schema=list_map("type")),
    ] = []
    observed_generation: Annotated[
        Int64, Meta(description="The generation of the spec that was last acted on.")
    ] = 0


class TuistCluster(Object, frozen=True, kw_only=True):
    """A cluster that exists already, as Cluster API wants to see it."""

    resource: ClassVar[Resource] = Resource(
        groups.INFRASTRUCTURE, groups.VERSION, "TuistCluster", "tuistclusters", namespaced=True
    )

    spec: TuistClusterSpec = TuistClusterSpec()
    status: TuistClusterStatus = TuistClusterStatus()
