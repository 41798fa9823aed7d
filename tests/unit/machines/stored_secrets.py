"""An API with Secrets, and a provider that keeps SSH keys; all managers of a test share them."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field
from typing import Any, cast

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bramley.api.core import Secret
from bramley.api.meta import ObjectMeta
from bramley.api.names import secrets
from bramley.base import errors
from bramley.machines.host_access import FleetKeys
from bramley.providers.provider import HostProvider
from bramley.runtime.writes import FencedKube, ReadYourWrites
from tests import virtual_time
from tests.unit.runtime.fake_api import FakeApi

NAMESPACE = "ns"
OPENSSH = serialization.PrivateFormat.OpenSSH


@dataclass
class Provider:
    """The part of a provider that keeps SSH keys: one per name."""

    api: FakeApi
    keys: dict[str, str] = field(default_factory=dict)
    calls: int = 0
    # Whether the Secret existed at each call.
    stored: list[bool] = field(default_factory=list)
    # Of the next calls.
    failures: list[errors.BramleyError] = field(default_factory=list)

    async def ensure_ssh_key(self, name: str, public_key: str) -> str:
        self.calls += 1
        self.stored.append(self.api.find(Secret, secrets.fleet_ssh(name)) is not None)
        await asyncio.sleep(1)
        if self.failures:
            raise self.failures.pop(0)
        material = public_key.rpartition(" ")[0]
        if self.keys.get(name, "").rpartition("#")[0] != material:
            self.keys[name] = f"{material}#{self.calls}"
        return f"id-{self.keys[name].rpartition('#')[2]}"


@dataclass
class World:
    """An API, and a provider that all managers share."""

    api: FakeApi
    provider: Provider
    is_leader: bool = True

    def check(self) -> None:
        if not self.is_leader:
            raise errors.LeaseLost("not the leader")

    @property
    def kube(self) -> FencedKube:
        return FencedKube(self.api, writes=ReadYourWrites(), check=self.check)

    def manager(self) -> FleetKeys:
        provider = cast("HostProvider", self.provider)
        return FleetKeys(self.api, self.kube, provider, NAMESPACE, virtual_time.clock())

    def secret(self, name: str, **data: bytes) -> Secret:
        return self.api.put(a_secret(name, **data))

    def find(self, name: str) -> Secret:
        found = self.api.find(Secret, name)
        assert found is not None
        return found


def a_world() -> World:
    api = FakeApi()
    api.latency = 0.1
    return World(api, Provider(api))


def a_secret(name: str, **data: bytes) -> Secret:
    """Return a Secret; underscores in keys stand for hyphens and dots."""
    keys = {
        "id_ed25519": secrets.SSH_PRIVATE_KEY,
        "sudo_password": secrets.SUDO_PASSWORD,
        "host_fingerprint": secrets.HOST_FINGERPRINT,
    }
    values = {keys.get(key, key): value for key, value in data.items()}
    return Secret(metadata=ObjectMeta(name=name, namespace=NAMESPACE), data=values)


def pem(key: Any = None) -> bytes:
    key = key or Ed25519PrivateKey.generate()
    found = key.private_bytes(serialization.Encoding.PEM, OPENSSH, serialization.NoEncryption())
    assert isinstance(found, bytes)
    return found


def of_unknown_type() -> bytes:
    """Return a key file of a type that the library does not know, as security keys have."""
    first, *lines, last = pem().splitlines()
    body = base64.b64decode(b"".join(lines)).replace(b"ssh-ed25519", b"ssh-ed2551X")
    return b"\n".join([first, base64.b64encode(body), last, b""])
