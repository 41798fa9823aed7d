"""The login of a Mac, where its host key is pinned, and the SSH keys of fleets.

The key of a fleet is stored in a Secret before it is registered at the provider, so that every manager registers the same one; a
provider installs it on a host only at its next boot or installation. A host key is accepted at the first connection and stored
beside the login, also if that connection fails later.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bramley.api import core
from bramley.api.meta import ObjectMeta
from bramley.api.names import annotations as annotation_names
from bramley.api.names import labels, secrets
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.host import ssh
from bramley.host.artifacts import ArtifactStore
from bramley.host.connection import Connection
from bramley.host.ssh import Pin
from bramley.machines.bootstrap_secrets import BootstrapSecrets, has_password
from bramley.machines.mac import Mac
from bramley.providers.provider import HostProvider
from bramley.runtime.client import Reader
from bramley.runtime.writes import FencedKube

logger = log.get(__name__)

# Machines without a fleet share a key, too.
DEFAULT_FLEET = "default"
# How long a key counts as registered without another look at the provider's keys.
_REGISTERED_FOR = timedelta(hours=1)
_AFTER_FAILURE = timedelta(seconds=30)
# Nothing switches on a Mac that its team owns, and its address may be wrong: people see that soon, and attempts are repeated.
_OWNED_CONNECT_TIMEOUT = timedelta(seconds=20)
_FIELD = "spec.credentialsSecretName"
_CREATE = f"store the password of the Mac's user in it, as {secrets.SUDO_PASSWORD}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How to log in to one Mac."""

    name: str
    address: str
    port: int
    user: str
    private_keys: tuple[Secret, ...] = ()
    password: Secret | None = None
    host_key: Pin = field(default_factory=Pin)
    # How long to wait for the SSH server.
    connect_timeout: timedelta = ssh.CONNECT_TIMEOUT


Connect = Callable[[Login, ArtifactStore], AbstractAsyncContextManager[Connection]]


@dataclass(frozen=True, slots=True)
class FleetKey:
    """The SSH key of a fleet."""

    private: Secret
    public: str

    @property
    def material(self) -> bytes:
        """Return the private key as a key for hashes."""
        return self.private.reveal().encode()


@dataclass(frozen=True, slots=True)
class HostLogin:
    """A login, the lines of authorized_keys that belong to it, and the Secret where the host key is pinned."""

    login: Login
    public_keys: tuple[str, ...]
    stored: core.Secret

    @property
    def has_new_host_key(self) -> bool:
        """Return whether the Mac has presented another host key than the stored one."""
        return self.login.host_key.text not in {"", _text(self.stored, secrets.HOST_FINGERPRINT)}


@dataclass(slots=True)
class FleetKeys:
    """The SSH keys of fleets, in Secrets of one namespace."""

    reader: Reader
    kube: FencedKube
    provider: HostProvider
    namespace: str
    clock: Clock
    # The key of a fleet, or the error of its registration, and until when the provider is not called again.
    _known: dict[str, tuple[datetime, FleetKey | errors.BramleyError]] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def ensure(self, fleet: str) -> FleetKey:
        """Return the key of a fleet, which is stored and registered at the provider."""
        fleet = fleet or DEFAULT_FLEET
        # All machines of a fleet share the call, its result and its error.
        async with self._locks.setdefault(fleet, asyncio.Lock()):
            until, known = self._known.get(fleet, (None, None))
            if until is None or known is None or self.clock.now() >= until:
                known = await self._register(fleet, await self._stored(fleet))
            if isinstance(known, FleetKey):
                return known
            raise known.with_traceback(None)

    async def find(self, fleet: str) -> FleetKey:
        """Return the key of a fleet, whether it is registered or not; mostly without a request."""
        fleet = fleet or DEFAULT_FLEET
        _, known = self._known.get(fleet, (None, None))
        return known if isinstance(known, FleetKey) else _key_of(await self._stored(fleet))

    async def _register(self, fleet: str, stored: core.Secret) -> FleetKey | errors.BramleyError:
        key, before = _key_of(stored), stored.metadata.annotations.get(annotation_names.SSH_KEY_ID)
        self.kube.check()
        result: FleetKey | errors.BramleyError = key
        lifetime = _REGISTERED_FOR
        try:
            key_id = await self.provider.ensure_ssh_key(fleet, key.public)
        except errors.LeaseLost:
            raise
        except errors.BramleyError as error:
            lifetime = _AFTER_FAILURE
            # The provider does not lose a key that it has registered before because it cannot be reached now.
            if before is None or not isinstance(error, errors.Unavailable | errors.RateLimited):
                result = error
            logger.warning("SSH key not registered", fleet=fleet, reason=str(error))
        else:
            if before != key_id:
                note = {"metadata": {"annotations": {annotation_names.SSH_KEY_ID: key_id}}}
                await self.kube.merge_patch(
                    core.Secret, stored.name, note, namespace=self.namespace, uid=stored.uid
                )
        self._known[fleet] = self.clock.now() + lifetime, result
        return result

    async def _stored(self, fleet: str) -> core.Secret:
        name = secrets.fleet_ssh(fleet)
        with suppress(errors.NotFound):
            return await self.reader.get(core.Secret, name, namespace=self.namespace)
        try:
            return await self.kube.create(_new_secret(name, self.namespace, fleet))
        except errors.AlreadyExists:
            # Of another manager, which was faster: all use the same key.
            return await self.reader.get(core.Secret, name, namespace=self.namespace)


def _new_secret(name: str, namespace: str, fleet: str) -> core.Secret:
    private = Ed25519PrivateKey.generate()
    text = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    marks = {labels.APP_MANAGED_BY: labels.MANAGED_BY_MACHINES, labels.FLEET: fleet}
    return core.Secret(
        metadata=ObjectMeta(name=name, namespace=namespace, labels=marks),
        type="Opaque",
        data={
            secrets.SSH_PRIVATE_KEY: text,
            secrets.SSH_PUBLIC_KEY: _public_line(private, fleet).encode() + b"\n",
        },
    )


def _key_of(stored: core.Secret) -> FleetKey:
    """Return the key in a Secret; its public part is that of the private one, whatever else is stored."""
    private = stored.data.get(secrets.SSH_PRIVATE_KEY, b"")
    fleet = stored.name.removesuffix(secrets.SSH_SUFFIX)
    return FleetKey(Secret(private.decode("utf-8", "replace")), public_line(stored, fleet))


def public_line(stored: core.Secret, comment: str) -> str:
    """Return the line of authorized_keys for the private key in a Secret; InvalidSpec if it is not Ed25519 without a passphrase."""
    place = f"key {secrets.SSH_PRIVATE_KEY} of Secret {stored.namespace}/{stored.name}"
    try:
        private = stored.data.get(secrets.SSH_PRIVATE_KEY, b"")
        key = serialization.load_ssh_private_key(private, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise errors.InvalidSpec(
            f"{place} is not a private key of OpenSSH without a passphrase"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise errors.InvalidSpec(f"{place} is not an Ed25519 key")
    return _public_line(key, comment)


def _public_line(private: Ed25519PrivateKey, comment: str) -> str:
    line = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return f"{line.decode()} {comment}"


@dataclass(slots=True)
class SharedSecrets:
    """Secrets that many machines refer to, read at most once in some minutes for all of them."""

    reader: Reader
    clock: Clock
    lifetime: timedelta = timedelta(minutes=5)
    _read: dict[tuple[str, str], tuple[float, core.Secret]] = field(default_factory=dict)

    async def value(self, namespace: str, name: str, key: str, *, is_fresh: bool = False) -> Secret:
        """Return one value; NotFound if the Secret or the key is missing."""
        since, stored = self._read.get((namespace, name), (0.0, None))
        is_old = self.clock.monotonic() >= since + self.lifetime.total_seconds()
        if stored is None or is_old or is_fresh or not stored.data.get(key):
            try:
                stored = await self.reader.get(core.Secret, name, namespace=namespace)
            except errors.NotFound:
                raise errors.NotFound(f"Secret {namespace}/{name} does not exist") from None
            self._read[namespace, name] = self.clock.monotonic(), stored
        if not stored.data.get(key):
            raise errors.NotFound(f"Secret {namespace}/{name} has no value {key}")
        return Secret(stored.data[key].decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class RentedLogins:
    """The logins of rented Macs: the key of the fleet, and the provider's password."""

    keys: FleetKeys
    secrets: BootstrapSecrets

    async def of(self, mac: Mac) -> HostLogin:
        """Return the login of a Mac."""
        key = await self.keys.find(mac.fleet)
        stored = await self.secrets.find(mac.name)
        if stored is None:
            raise errors.NotFound(f"the Secret {secrets.machine_bootstrap(mac.name)} is missing")
        login = _login(mac, stored, (key.private,))
        return HostLogin(login, (key.public,), stored)

    async def hash_key(self, mac: Mac) -> bytes:
        """Return the key of the fleet."""
        return (await self.keys.find(mac.fleet)).material


@dataclass(frozen=True, slots=True)
class OwnedLogins:
    """The logins of Macs that a team owns, in Secrets that people create."""

    reader: Reader
    shared: SharedSecrets

    async def of(self, mac: Mac) -> HostLogin:
        """Return the login of a Mac; NotFound or InvalidSpec if the Secret is missing or incomplete."""
        name = mac.credentials_secret_name
        place = f"Secret {mac.namespace}/{name}"
        try:
            stored = await self.reader.get(core.Secret, name, namespace=mac.namespace)
        except errors.NotFound:
            raise errors.NotFound(f"{_FIELD}: {place} does not exist; {_CREATE}") from None
        private = stored.data.get(secrets.SSH_PRIVATE_KEY, b"")
        if not private and not _text(stored, secrets.SUDO_PASSWORD):
            raise errors.InvalidSpec(
                f"{_FIELD}: {place} has no {secrets.SUDO_PASSWORD} and no {secrets.SSH_PRIVATE_KEY}; {_CREATE}"
            )
        lines = (public_line(stored, mac.name),) if private else ()
        keys = (Secret(private.decode("utf-8", "replace")),) if private else ()
        login = replace(_login(mac, stored, keys), connect_timeout=_OWNED_CONNECT_TIMEOUT)
        return HostLogin(login, lines, stored)

    async def hash_key(self, mac: Mac) -> bytes:
        """Return the password, or else the private key."""
        place = mac.namespace, mac.credentials_secret_name
        try:
            found = await self.shared.value(*place, secrets.SUDO_PASSWORD)
        except errors.NotFound as error:
            with suppress(errors.NotFound):
                return (await self.shared.value(*place, secrets.SSH_PRIVATE_KEY)).reveal().encode()
            raise errors.NotFound(f"{_FIELD}: {error}; {_CREATE}") from None
        return found.reveal().encode()


def _login(mac: Mac, stored: core.Secret, keys: tuple[Secret, ...]) -> Login:
    password = has_password(stored) and _text(stored, secrets.SUDO_PASSWORD)
    place = f"key {secrets.HOST_FINGERPRINT} of Secret {stored.namespace}/{stored.name}"
    try:
        pin = Pin(_text(stored, secrets.HOST_FINGERPRINT), stored_in=place)
    except errors.BadConfiguration as error:
        raise errors.InvalidSpec(f"{place}: {error}") from None
    return Login(
        name=mac.name,
        address=mac.address,
        port=mac.port,
        user=mac.user,
        private_keys=keys,
        password=Secret(password) if password else None,
        host_key=pin,
    )


async def store_host_key(kube: FencedKube, used: HostLogin) -> None:
    """Pin the host key that the Mac has presented; another write of the Secret meanwhile is no reason to lose it."""
    if not used.has_new_host_key:
        return
    encoded = base64.b64encode(used.login.host_key.text.encode()).decode()
    stored = used.stored
    with suppress(errors.NotFound, errors.Conflict):
        await kube.merge_patch(
            core.Secret,
            stored.name,
            {"data": {secrets.HOST_FINGERPRINT: encoded}},
            namespace=stored.namespace,
            uid=stored.uid,
        )


def _text(secret: core.Secret, key: str) -> str:
    return secret.data.get(key, b"").decode("utf-8", "replace").strip()
