"""The Macs behind the servers: the Protocol, and simulated Macs in process, under any clock."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from bramley.base.clock import Clock
from bramley.host.artifacts import ArtifactStore
from bramley.sim.macos import fresh_install
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.faults import Faults
from bramley.sim.macos.mac import Forge, Mac
from bramley.sim.scaleway.catalog import TYPES

_NETWORK = ipaddress.IPv4Network("10.30.0.0/16")
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Installation:
    """What the provider installs on a Mac: macOS, one user, and the SSH keys of the project."""

    type: str
    macos: str
    user: str
    password: str = field(repr=False)
    authorized_keys: tuple[str, ...]
    host_name: str
    # Whether the image includes Xcode and Homebrew.
    is_builder: bool = False

    def settings(self, template: fresh_install.Settings) -> fresh_install.Settings:
        """Return the settings of a simulated Mac after this installation; all others are those of the template."""
        hardware = TYPES[self.type]
        return replace(
            template,
            user=self.user,
            password=self.password,
            authorized_keys=self.authorized_keys,
            host_name=self.host_name,
            macos=self.macos,
            model=hardware.model,
            cpus=hardware.cores,
            memory_bytes=hardware.memory_gb * _GIB,
            xcode=self.is_builder or template.xcode,
            homebrew=self.is_builder or template.homebrew,
        )


class MacHosts(Protocol):
    """The Macs of the servers, by the id of the server."""

    def address(self, server_id: str) -> str:
        """Return the IPv4 address of a server, the same one at each call."""
        ...

    async def install(self, server_id: str, installation: Installation) -> None:
        """Erase the disk, install macOS and start; when it returns, the Mac accepts connections."""
        ...

    async def shut_down(self, server_id: str) -> None:
        """End everything on the Mac; it does not respond until `install`."""
        ...

    async def reboot(self, server_id: str) -> None:
        """Restart the Mac."""
        ...


class ModelMacs:
    """Simulated Macs in process, with their disks in a folder."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        template: fresh_install.Settings | None = None,
        forge: Forge | None = None,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._template = template or fresh_install.Settings()
        self._forge = forge
        self._macs: dict[str, Mac] = {}
        self._addresses: dict[str, str] = {}

    def address(self, server_id: str) -> str:
        """Return the address of a server."""
        return self._addresses.setdefault(server_id, str(_NETWORK[1 + len(self._addresses)]))

    @property
    def installed(self) -> Mapping[str, Mac]:
        """Return the Macs that were installed, by the id of their server."""
        return MappingProxyType(self._macs)

    def mac(self, server_id: str) -> Mac:
        """Return the Mac of a server; LookupError before its first installation."""
        return self._macs[server_id]

    def mac_at(self, address: str) -> Mac:
        """Return the Mac with an address; LookupError if there is none."""
        return self._macs[next((id for id, each in self._addresses.items() if each == address), "")]

    def connect(
        self,
        address: str,
        *,
        user: str,
        faults: Faults | None = None,
        artifacts: ArtifactStore | None = None,
    ) -> ModelConnection:
        """Return a connection to the Mac with an address, instead of one over SSH."""
        return ModelConnection(
            self.mac_at(address), clock=self._clock, user=user, faults=faults, artifacts=artifacts
        )

    async def install(self, server_id: str, installation: Installation) -> None:
        """Install a Mac: a new one, or again."""
        settings = installation.settings(self._template)
        if server_id in self._macs:
            self._macs[server_id].reinstall(settings)
            return
        self._macs[server_id] = Mac.create(
            self._folder / server_id, settings=settings, clock=self._clock, forge=self._forge
        )

    async def shut_down(self, server_id: str) -> None:
        """Shut a Mac down."""
        if server_id in self._macs:
            self._macs[server_id].shut_down()

    async def reboot(self, server_id: str) -> None:
        """Restart a Mac."""
        self._macs[server_id].reboot()
