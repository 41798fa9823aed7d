"""MacHost: one Mac that its team owns, which is not rented from a provider; from a bare Mac to a Node and back."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, field

from bramley.api.grammar import HostAddress, ObjectName, OptionalLabelValue, UserName
from bramley.api.host_settings import HostSettings
from bramley.api.mac_status import MacStatus
from bramley.api.meta import Count, Int32, Object, Resource
from bramley.api.names import groups, machines
from bramley.api.scaleway_machine import GHActionsRunner


class MacHostSpec(HostSettings, frozen=True, kw_only=True):
    """The desired state of a Mac."""

    address: Annotated[HostAddress, Meta(description="The name or IP address of the Mac.")]
    credentials_secret_name: Annotated[
        ObjectName,
        Meta(
            description="The Secret with the login, in this namespace: sudo-password and, for a login without it, id_ed25519."
        ),
    ]
    port: Annotated[
        Int32, Meta(ge=1, le=65_535, description="The port of the Mac's SSH server.")
    ] = 22
    user: Annotated[
        UserName, Meta(description="The user whose session runs the VMs; an administrator.")
    ] = machines.DEFAULT_SSH_USER
    fleet_name: Annotated[
        OptionalLabelValue, Meta(description="The fleet; the value of a Node label.")
    ] = ""
    labels: Annotated[dict[str, str], Meta(description="Further labels of the Node.")] = {}
    host_cpu: Annotated[
        Count | None,
        Meta(description="CPUs that the Node offers; absent or 0 takes the manager's."),
    ] = field(name="hostCPU", default=None)
    host_memory_mb: Annotated[
        Count | None,
        Meta(description="MiB that the Node offers; absent or 0 takes the manager's."),
    ] = field(name="hostMemoryMB", default=None)
    gh_actions_runner: GHActionsRunner | None = None


class MacHost(Object, frozen=True, kw_only=True):
    """One Mac that its team owns; its Node has the same name."""

    resource: ClassVar[Resource] = Resource(
        groups.RUNNERS, groups.VERSION, "MacHost", "machosts", namespaced=True
    )

    spec: Annotated[MacHostSpec, Meta(description="The desired state of the Mac.")]
    status: Annotated[MacStatus, Meta(description="What was observed of the Mac.")] = MacStatus()
