"""What the simulated Scaleway stores: servers, SSH keys and private networks, with their JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from bramley.sim.scaleway.catalog import Os

USER = "m1"
VNC_PORT = 5900


class Status(StrEnum):
    """The states of a server that are simulated."""

    STARTING = "starting"
    READY = "ready"
    ERROR = "error"
    REBOOTING = "rebooting"
    REINSTALLING = "reinstalling"

    @property
    def is_transient(self) -> bool:
        """Return whether the server changes to another state by itself."""
        return self in (Status.STARTING, Status.REBOOTING, Status.REINSTALLING)


class Seal(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How a server hides its password: `sudo_password`, and whether `vnc_url` still has it."""

    sudo_password: Literal["<sealed>", ""] = "<sealed>"  # noqa: S105 - what Scaleway shows
    vnc_url: Literal["password", "<sealed>", ""] = "password"


@dataclass(slots=True, eq=False)
class Server:
    """A rented Mac. Its names are kept with their times, since a read may show an older one."""

    id: str
    type: str
    zone: str
    project_id: str
    organization_id: str
    ip: str
    os: Os
    created_at: datetime
    updated_at: datetime
    deletable_at: datetime
    names: list[tuple[datetime, str]]
    # Empty before the first installation.
    password: str = field(default="", repr=False)
    status: Status = Status.STARTING
    is_delivered: bool = False
    is_deletion_scheduled: bool = False
    has_vpc: bool = False
    # Whether each of its installations includes Xcode and Homebrew; Scaleway's API does not show that.
    is_builder: bool = False
    seal: Seal | None = None
    sealed_at: datetime | None = None

    @property
    def name(self) -> str:
        """Return the name that was given last."""
        return self.names[-1][1]

    def name_at(self, time: datetime) -> str:
        """Return the name at a time, the first one if that is later."""
        known = [name for since, name in self.names if since <= time]
        return known[-1] if known else self.names[0][1]

    def json(self, name: str, now: datetime) -> dict[str, Any]:
        """Return the server as Scaleway shows it, with one of its names."""
        is_sealed = self.sealed_at is not None and now >= self.sealed_at
        seal = (self.seal or Seal()) if is_sealed else None
        return {
            "id": self.id,
            "type": self.type,
            "name": name,
            "project_id": self.project_id,
            "organization_id": self.organization_id,
            "ip": self.ip,
            "vnc_url": self._vnc_url(seal),
            "vnc_port": VNC_PORT,
            "ssh_username": USER,
            "sudo_password": self.password if seal is None else seal.sudo_password,
            "os": self.os.json(),
            "status": self.status,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "deletable_at": self.deletable_at,
            "deletion_scheduled": self.is_deletion_scheduled,
            "zone": self.zone,
            "delivered": self.is_delivered,
            "vpc_status": "vpc_enabled" if self.has_vpc else "vpc_disabled",
            "commitment": {"type": "duration_24h", "cancelled": False},
            "public_bandwidth_bps": 10**9,
            "tags": [],
            "applied_runner_configuration_ids": [],
            "runner_configuration": None,
            "kext_enabled": False,
        }

    def _vnc_url(self, seal: Seal | None) -> str:
        shown = self.password
        if seal is not None and seal.vnc_url != "password":
            shown = seal.vnc_url
        userinfo = f"{USER}:{quote(shown, safe='')}" if shown else USER
        return f"vnc://{userinfo}@{self.ip}:{VNC_PORT}"


@dataclass(frozen=True, slots=True)
class SshKey:
    """A public key of a project."""

    id: str
    name: str
    public_key: str
    fingerprint: str
    project_id: str
    organization_id: str
    created_at: datetime

    def json(self) -> dict[str, Any]:
        """Return the key as Scaleway shows it."""
        return {
            "id": self.id,
            "name": self.name,
            "public_key": self.public_key,
            "fingerprint": self.fingerprint,
            "project_id": self.project_id,
            "organization_id": self.organization_id,
            "created_at": self.created_at,
            "updated_at": self.created_at,
            "disabled": False,
        }


@dataclass(frozen=True, slots=True)
class PrivateNetwork:
    """A private network of a project in a region; only its name and tags have a meaning here."""

    id: str
    name: str
    region: str
    tags: tuple[str, ...]
    project_id: str
    organization_id: str
    created_at: datetime

    def json(self) -> dict[str, Any]:
        """Return the network as Scaleway shows it."""
        return {
            "id": self.id,
            "name": self.name,
            "region": self.region,
            "tags": list(self.tags),
            "subnets": [],
            "project_id": self.project_id,
            "organization_id": self.organization_id,
            "vpc_id": self.project_id,
            "dhcp_enabled": True,
            "default_route_propagation_enabled": False,
            "created_at": self.created_at,
            "updated_at": self.created_at,
        }


@dataclass(frozen=True, slots=True)
class Attachment:
    """A server in a private network; its VLAN is known a while later."""

    id: str
    server_id: str
    private_network_id: str
    project_id: str
    organization_id: str
    vlan: int
    created_at: datetime
    attached_at: datetime

    def json(self, now: datetime) -> dict[str, Any]:
        """Return the attachment as Scaleway shows it."""
        is_attached = now >= self.attached_at
        return {
            "id": self.id,
            "project_id": self.project_id,
            "server_id": self.server_id,
            "private_network_id": self.private_network_id,
            "status": "attached" if is_attached else "attaching",
            "vlan": self.vlan if is_attached else None,
            "ipam_ip_ids": [],
            "created_at": self.created_at,
            "updated_at": self.attached_at if is_attached else self.created_at,
        }
