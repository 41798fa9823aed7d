"""Connections to model Macs by address, with what SSH checks: whether the Mac runs, its host key, and the login.

Faults belong to a Mac and last over its installations, unless they end with a boot or an installation.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from cryptography.hazmat.primitives import serialization

from bramley.api.names import host
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.host.artifacts import ArtifactStore
from bramley.host.commands import Command
from bramley.host.ssh.host_keys import HostKey, Pin
from bramley.sim.macos import users
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.faults import Cut, CutPoint, Fail, Fault, Faults
from bramley.sim.macos.mac import Mac
from bramley.sim.scaleway.macs import ModelMacs

_NO_ANSWER_SECONDS = 30.0


class Login(Protocol):
    """How to log in to a Mac."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def user(self) -> str: ...
    @property
    def private_keys(self) -> tuple[Secret, ...]: ...
    @property
    def password(self) -> Secret | None: ...
    @property
    def host_key(self) -> Pin: ...


class MacFaults(Faults):
    """What goes wrong on one Mac."""

    def __init__(self, mac: Mac) -> None:
        super().__init__()
        self._mac = mac
        # Whether a connection is never answered, and fails after a timeout.
        self.is_silent = False
        # That timeout, in seconds.
        self.timeout = _NO_ANSWER_SECONDS
        self._broken = ("", "")

    def cut_ssh(self, after: int, point: CutPoint = CutPoint.BEFORE) -> None:
        """Break the connection at a command, counted from the next one, which is 0."""
        self.at(self.commands + after, Cut(point))

    def fail_until_rebooted(self) -> None:
        """Let every command fail until the Mac was rebooted or reinstalled."""
        self._broken = ("boot", self._id("boot"))

    def fail_until_reinstalled(self) -> None:
        """Let every command fail until the Mac was reinstalled."""
        self._broken = ("installation", self._id("installation"))

    def boot_slowly(self, seconds: float) -> None:
        """Let this installation need so long for a boot."""
        with self._mac.change() as state:
            state["settings"]["boot_seconds"] = seconds

    def next(self, command: Command) -> Fault | None:
        """Return the fault of the next command."""
        planned = Faults.next(self, command)
        kind, id = self._broken
        return Fail() if kind and self._id(kind) == id else planned

    def _id(self, kind: str) -> str:
        state = self._mac.state
        boot = state["boot"].get("boot_id", "") if kind == "boot" else ""
        return f"{state['host_key_id']}/{boot}"


class MacConnections:
    """Opens connections to the Macs of a simulated Scaleway."""

    def __init__(self, macs: ModelMacs, *, clock: Clock, seconds: float = 1.0) -> None:
        self.opened = 0
        self._macs = macs
        self._clock = clock
        # How long a login takes.
        self._seconds = seconds
        self._faults: dict[str, MacFaults] = {}

    def faults(self, address: str) -> MacFaults:
        """Return the faults of the Mac with an address."""
        if address not in self._faults:
            self._faults[address] = MacFaults(self._macs.mac_at(address))
        return self._faults[address]

    @asynccontextmanager
    async def connect(
        self, login: Login, artifacts: ArtifactStore | None = None
    ) -> AsyncIterator[ModelConnection]:
        """Connect and log in; HostUnreachable, HostKeyChanged or LoginRefused as over SSH."""
        await asyncio.sleep(self._seconds)
        try:
            mac = self._macs.mac_at(login.address)
        except LookupError:
            raise errors.HostUnreachable(f"{login.name}: no route to host") from None
        faults = self.faults(login.address)
        if faults.is_silent:
            await asyncio.sleep(faults.timeout)
            raise errors.HostUnreachable(f"{login.name}: no answer within {faults.timeout:g} s")
        if not mac.is_up:
            raise errors.HostUnreachable(f"{login.name}: no SSH connection: Connection refused")
        _check_host_key(mac, login)
        if not _accepts(mac, login):
            raise errors.LoginRefused(f"{login.name}: no credential was accepted")
        self.opened += 1
        yield ModelConnection(
            mac, clock=self._clock, user=login.user, faults=faults, artifacts=artifacts
        )


def host_key(mac: Mac) -> HostKey:
    """Return the host key of the present installation of a Mac."""
    digest = hashlib.sha256(mac.state["host_key_id"].encode()).digest()
    return HostKey("ssh-ed25519", f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}")


def _check_host_key(mac: Mac, login: Login) -> None:
    presented, known = host_key(mac), login.host_key.keys_of(login.address, login.port)
    if not known:
        login.host_key.add(login.address, login.port, presented)
    elif not any(presented.is_same(key) for key in known):
        raise errors.HostKeyChanged(f"{login.name}: the host key has changed; nothing was sent")


def _accepts(mac: Mac, login: Login) -> bool:
    if login.user not in mac.state["users"]:
        return False
    lines = mac.files.read(f"{host.home(login.user)}/.ssh/authorized_keys") or b""
    authorized = {line.split()[1] for line in lines.decode().splitlines() if len(line.split()) > 1}
    if any(_public_blob(key.reveal()) in authorized for key in login.private_keys):
        return True
    password = login.password
    return password is not None and users.is_password(mac.state, login.user, password.reveal())


@functools.cache
def _public_blob(private_key: str) -> str:
    """Return the public part of a private key, as in authorized_keys."""
    key = serialization.load_ssh_private_key(private_key.encode(), password=None).public_key()
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return key.public_bytes(*form).split()[1].decode()
