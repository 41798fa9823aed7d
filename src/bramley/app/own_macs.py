"""The Macs of `bramley up --mac`: a MacHost and the Secret with its login for each."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from bramley.api import core
from bramley.api.mac_host import MacHost
from bramley.api.names import secrets
from bramley.app.listen_address import ANY_ADDRESS, Address, is_loopback
from bramley.app.pools import NAMESPACE
from bramley.app.ssh_options import parse_target
from bramley.base import errors, log
from bramley.base.secret import Secret
from bramley.kube.client import Client

logger = log.get(__name__)

FLEET = "own"
_DEFAULT_PORT = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMac:
    """One Mac: how to reach it and to log in."""

    user: str
    host: str
    port: int
    password: Secret | None = None
    private_key: Secret | None = None

    @classmethod
    def parse(cls, target: str, *, user: str, **login: Secret | None) -> OwnMac:
        """Return the Mac of user@host:port."""
        user, host, port = parse_target(target, user=user, field="--mac")
        return cls(user=user, host=host, port=port, **login)

    @property
    def name(self) -> str:
        """Return the name of its MacHost and Node, from the address: 10.0.0.5 is mac-10-0-0-5."""
        name = re.sub(r"[^a-z0-9]+", "-", self.host.lower()).strip("-")
        if self.port != _DEFAULT_PORT:
            name = f"{name}-{self.port}"
        return name if name[:1].isalpha() else f"mac-{name}"

    @property
    def is_local(self) -> bool:
        """Return whether its address is one of this machine, such as that of a simulated Mac."""
        return is_loopback(self.host)

    @property
    def _secret_name(self) -> str:
        return f"{self.name}-login"

    async def create(self, kube: Client) -> None:
        """Create its MacHost, unless there is one with this address, and store the login."""
        found = (await kube.list(MacHost)).items
        existing = [each for each in found if (each.spec.address, each.spec.port) == (self.host, self.port)]  # fmt: skip
        if existing:
            logger.info("Mac has a MacHost already", mac=existing[0].name)
            place = existing[0].namespace or NAMESPACE, existing[0].spec.credentials_secret_name
            await self._store_login(kube, *place)
            return
        await self._store_login(kube, NAMESPACE, self._secret_name)
        resource = MacHost.resource
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {
                "address": self.host,
                "port": self.port,
                "user": self.user,
                "credentialsSecretName": self._secret_name,
                "fleetName": FLEET,
            },
        }
        await kube.create_wire(resource, body, namespace=NAMESPACE)

    async def _store_login(self, kube: Client, namespace: str, name: str) -> None:
        """Write what was given; all else in the Secret stays, such as the pinned host key."""
        given = {secrets.SUDO_PASSWORD: self.password, secrets.SSH_PRIVATE_KEY: self.private_key}
        data = {
            key: base64.b64encode(value.reveal().encode()).decode()
            for key, value in given.items()
            if value is not None
        }
        try:
            await kube.merge_patch(core.Secret, name, {"data": data}, namespace=namespace)
        except errors.NotFound:
            if not data:
                raise errors.BadConfiguration(
                    f"--mac {self.host}: no login; give the password with --ask-password or --password-file"
                ) from None
            metadata = {"name": name, "namespace": namespace}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
            await kube.create_wire(core.Secret.resource, body, namespace=namespace)


def require_reachable(macs: tuple[OwnMac, ...], listen: Address) -> None:
    """Raise unless the agents of these Macs can reach a server that listens on an address."""
    remote = [each for each in macs if not each.is_local]
    if not remote:
        return
    is_local = is_loopback(listen.host)
    if is_local or listen.host in ANY_ADDRESS:
        why = "is an address of this machine only" if is_local else "names no address"
        raise errors.BadConfiguration(
            f"the agent on {remote[0].host} must reach the API server, and --listen {listen} {why}; "
            f"give an address of this machine that {remote[0].host} reaches, such as --listen 192.168.1.10:6443"
        )
