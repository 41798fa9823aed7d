"""Settings of a Mac that a fleet shares; part of the spec of machines and of MacHosts.

No field may become required: templates of any age are cloned.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from bramley.api.grammar import ObjectName
from bramley.api.meta import Fields, Int32
from bramley.api.schema import items, text

Network = Annotated[str, text(max_length=18, pattern=r"^[0-9.]{7,15}/[0-9]{1,2}$")]
PortRange = Annotated[str, text(max_length=11, pattern=r"^[1-9][0-9]{0,4}(-[1-9][0-9]{0,4})?$")]
Protocol = Annotated[str, Meta(extra_json_schema={"enum": ["", "tcp", "udp"]})]
MIN_LEASE_SECONDS = 60
# A day is macOS' own lease time.
MAX_LEASE_SECONDS = 86_400


class AllowedNetwork(Fields, frozen=True, kw_only=True):
    """A private network that VMs may reach."""

    cidr: Annotated[Network, Meta(description="The network, such as 10.1.0.0/16.")]
    ports: Annotated[
        list[PortRange],
        items(max_items=16),
        Meta(description="Ports and ranges such as 8000-8100; absent allows all."),
    ] = []
    protocol: Annotated[
        Protocol, Meta(description="tcp or udp; absent means tcp with ports, and any without.")
    ] = ""


class Egress(Fields, frozen=True, kw_only=True):
    """The private networks that VMs may reach; they always reach the internet."""

    allow: Annotated[
        list[AllowedNetwork], items(max_items=64), Meta(description="The allowed networks.")
    ] = []


class HostSettings(Fields, frozen=True, kw_only=True):
    """Settings of a Mac that a fleet shares; absent ones are those of the manager."""

    egress: Annotated[
        Egress | None, Meta(description="The private networks that VMs may reach.")
    ] = None
    registry_credentials_secret_name: Annotated[
        ObjectName,
        Meta(
            description="The Secret with the agent's logins for registries (.dockerconfigjson), in this namespace."
        ),
    ] = ""
    vm_boot_timeout_seconds: Annotated[
        Annotated[Int32, Meta(ge=1, le=86_400)] | None,
        Meta(description="How long a VM may run without an address before it is replaced."),
    ] = None
    dhcp_lease_seconds: Annotated[
        Annotated[Int32, Meta(ge=MIN_LEASE_SECONDS, le=MAX_LEASE_SECONDS)] | None,
        Meta(description="How long an address stays reserved for a VM that has ended."),
    ] = None
