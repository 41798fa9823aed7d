"""The existing provider: what it has written to the API, and done at Scaleway and on Macs, when it is scaled down.

It knows nothing of Leases, marks and conditions that this product adds. Afterwards `provider_calls` are only those of its successor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from bramley.api.core import Node, NodeSpec, Secret, ServiceAccount, Taint
from bramley.api.meta import ObjectMeta
from bramley.api.names import agent, finalizers, host, labels, machines, secrets
from bramley.api.names import annotations as annotation_names
from bramley.api.names import conditions as types
from bramley.api.rbac import (
    GROUP,
    ClusterRole,
    ClusterRoleBinding,
    PolicyRule,
    RoleRef,
    Subject,
)
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.providers.scaleway import ScalewayProvider
from bramley.sim.scaleway.records import USER, Server
from tests import provider_peer, virtual_time
from tests.scenarios.machines import existing_host
from tests.scenarios.machines.existing_host import ExistingHost
from tests.scenarios.machines.fleet_world import FLEET, NAMESPACE, FleetWorld, a_fleet_world
from tests.scenarios.machines.mac_connections import host_key
from tests.scenarios.machines.stories import until_reason

BINARY_SHA = "ab" * 32
HASH = "cd" * 32
MARKS = {labels.APP_MANAGED_BY: labels.MANAGED_BY_MACHINES}
_RESOURCES = {
    "": ["nodes", "nodes/status", "pods", "pods/status", "events", "secrets", "configmaps"],
    "coordination.k8s.io": ["leases"],
}


@dataclass(slots=True, eq=False)
class ExistingProvider:
    """The provider of one world."""

    world: FleetWorld
    _seen: Counter[str] = field(default_factory=Counter)

    async def add_fleet(self, fleet: str, servers: int, *, is_builder: bool = False) -> None:
        """Make and register the SSH key of a fleet, then order the hosts of its pool, which get the key."""
        world, private = self.world, Ed25519PrivateKey.generate()
        public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        cloud = ScalewayProvider(
            lambda: provider_peer.account(world.scaleway),
            transport=provider_peer.in_place(world.scaleway),
        )
        key_id = await cloud.ensure_ssh_key(fleet, public.decode())
        data = {
            secrets.SSH_PRIVATE_KEY: private.private_bytes(
                Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()
            ),
            secrets.SSH_PUBLIC_KEY: public + b"\n",
        }
        await self._create_secret(
            secrets.fleet_ssh(fleet), data, **{annotation_names.SSH_KEY_ID: key_id}
        )
        names = [f"{machines.POOL_PREFIX}{fleet}-{number}" for number in range(servers)]
        await world.scaleway.add_servers(names, is_builder=is_builder)

    async def bind(self, name: str, server: Server, *, is_secret_missing: bool = False) -> None:
        """Claim a host for a machine, which exists, and write what belongs to it."""
        self.world.scaleway.rename(server, name)
        provider_id = machines.provider_id(server.zone, server.id)
        await self.patch(
            name,
            {
                "metadata": {"finalizers": [finalizers.MACHINE]},
                "spec": {"providerID": provider_id},
            },
        )
        addresses = [{"type": "ExternalIP", "address": server.ip}]
        await self.set_status(
            name,
            [condition(types.PROVISIONED, self._now)],
            serverID=server.id,
            addresses=addresses,
            phase="Bootstrapping",
        )
        if not is_secret_missing:
            await self.store_login(name, server.password)

    async def store_login(self, name: str, password: str, *, fingerprint: str = "") -> None:
        """Write the Secret with the login of a host."""
        data = {
            secrets.SUDO_PASSWORD: password.encode(),
            secrets.SSH_USERNAME: USER.encode(),
            secrets.HOST_FINGERPRINT: fingerprint.encode(),
        }
        await self._create_secret(secrets.machine_bootstrap(name), data)

    async def bootstrap(self, name: str, server: Server, **differences: bool) -> None:
        """Set the Mac of a bound machine up; the machine is ready, and its Node is registered."""
        world, machine = self.world, (await self.world.machines())[name]
        mac, is_builder = world.mac(server), machine.spec.gh_actions_runner is not None
        node_labels = {labels.FLEET: machine.spec.fleet_name}
        arguments = (
            *("--host-cpu=8", "--host-memory-mb=14336", "--max-pods=2"),
            f"--node-labels={labels.FLEET}={machine.spec.fleet_name}",
            f"--provider-id={machine.spec.provider_id}",
            *(["--disable-vm-gc"] if is_builder else []),
        )
        token = await self._identity(name)
        existing = ExistingHost(
            name=name,
            user=USER,
            password=server.password,
            token=token,
            arguments=arguments,
            **differences,
        )
        taint = Taint(key=labels.MACOS_TAINT, value="true", effect=labels.NO_SCHEDULE)
        spec = NodeSpec(provider_id=machine.spec.provider_id or "", taints=[taint])
        shown = {labels.OS: labels.DARWIN, labels.RUNTIME: labels.RUNTIME_TART, **node_labels}
        await world.kube.create(
            Node(metadata=ObjectMeta(name=name, labels={**shown, labels.HOSTNAME: name}), spec=spec)
        )
        await existing.install(mac, world.macs.connect(server.ip, user=USER))
        await self.pin(name, host_key(mac).fingerprint)
        conditions = [
            condition(each, self._now) for each in (types.PROVISIONED, types.BOOTSTRAPPED)
        ]
        await self.set_status(
            name,
            conditions,
            ready=True,
            phase="Ready",
            hostConfigHash=HASH,
            tartKubeletBinarySHA=BINARY_SHA,
        )

    async def pin(self, name: str, fingerprint: str) -> None:
        """Store the host key of a machine's host, if its Secret exists."""
        found = {each.name for each in (await self.world.kube.list(Secret)).items}
        secret = secrets.machine_bootstrap(name)
        if secret in found:
            body = {"stringData": {secrets.HOST_FINGERPRINT: fingerprint}}
            await self.world.kube.merge_patch(Secret, secret, body, namespace=NAMESPACE)

    async def adopt_all(self, *names: str) -> list[Server]:
        """Bind and bootstrap these machines, each with a free host of its fleet's pool."""
        found, hosts = await self.world.machines(), []
        for number, name in enumerate(names):
            server = self.free_host(found[name].spec.fleet_name)
            await self.bind(name, server)
            await self.bootstrap(name, server, has_allow_list=number % 2 == 0)
            hosts.append(server)
        await self.world.until_ready(*(await self.world.nodes()))
        return hosts

    def free_host(self, fleet: str) -> Server:
        """Return a host of the pool with the key of a fleet."""
        prefix = f"{machines.POOL_PREFIX}{fleet}"
        return next(each for key, each in self.world.hosts().items() if key.startswith(prefix))

    async def set_status(self, name: str, conditions: list[dict[str, Any]], **fields: Any) -> None:
        """Write fields of a status, as they are in manifests."""
        await self.patch(name, {"status": {"conditions": conditions, **fields}}, "status")

    async def patch(self, name: str, body: dict[str, Any], subresource: str | None = None) -> None:
        """Patch a machine."""
        await self.world.kube.merge_patch(
            Machine, name, body, namespace=NAMESPACE, subresource=subresource
        )

    def stop(self) -> None:
        """Do nothing any more: from now on, calls are those of the successor."""
        self._seen = Counter(self.world.scaleway.calls)

    @property
    def provider_calls(self) -> list[str]:
        """Return the calls of the successor that have changed something at Scaleway."""
        new = self.world.scaleway.calls - self._seen
        return sorted(each for each in new if not each.startswith("GET"))

    async def leftovers(self) -> set[str]:
        """Return the machines of which objects of the old identity exist."""
        kube, prefix = self.world.kube, agent.service_account("")
        accounts = (await kube.list(ServiceAccount, namespace=NAMESPACE)).items
        stored = (await kube.list(Secret, namespace=NAMESPACE)).items
        bindings = (await kube.list(ClusterRoleBinding)).items
        found = {each.name for each in (*accounts, *stored, *bindings)}
        return {
            each.removeprefix(prefix).removesuffix("-token")
            for each in found
            if each.startswith(prefix)
        }

    @property
    def _now(self) -> datetime:
        return virtual_time.clock().now()

    async def _identity(self, name: str) -> Any:
        """Make the identity of an agent, whose token is valid as long as its ServiceAccount."""
        kube, account = self.world.kube, agent.service_account(name)
        marks = {**MARKS, labels.APP_COMPONENT: labels.COMPONENT_AGENT}
        metadata = ObjectMeta(name=account, namespace=NAMESPACE, labels=marks)
        await kube.create(ServiceAccount(metadata=metadata))
        role = machines.AGENT_CLUSTER_ROLE
        if role not in {each.name for each in (await kube.list(ClusterRole)).items}:
            rules = [
                PolicyRule(verbs=["*"], api_groups=[group], resources=resources)
                for group, resources in _RESOURCES.items()
            ]
            await kube.create(ClusterRole(metadata=ObjectMeta(name=role), rules=rules))
        await kube.create(
            ClusterRoleBinding(
                metadata=ObjectMeta(name=account, labels=marks),
                role_ref=RoleRef(api_group=GROUP, kind="ClusterRole", name=role),
                subjects=[Subject(kind="ServiceAccount", name=account, namespace=NAMESPACE)],
            )
        )
        issued = await kube.request_token(
            account, NAMESPACE, audiences=(), expires=timedelta(days=365)
        )
        metadata = ObjectMeta(
            name=agent.token_secret(name),
            namespace=NAMESPACE,
            labels=marks,
            annotations={secrets.SERVICE_ACCOUNT_NAME: account},
        )
        data = {secrets.TOKEN: issued.token.reveal().encode(), secrets.CA_CERTIFICATE: b"MIIB"}
        kind = secrets.SERVICE_ACCOUNT_TOKEN_TYPE
        await kube.create(Secret(metadata=metadata, type=kind, data=data))
        return issued.token

    async def _create_secret(self, name: str, data: dict[str, bytes], **annotations: str) -> None:
        metadata = ObjectMeta(name=name, namespace=NAMESPACE, labels=MARKS, annotations=annotations)
        await self.world.kube.create(Secret(metadata=metadata, type="Opaque", data=data))


def condition(type: str, now: datetime, reason: str = "", message: str = "") -> dict[str, Any]:
    """Return a condition as Cluster API writes it: with a reason it is false."""
    made = {
        "type": type,
        "status": "False" if reason else "True",
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    failed = {"reason": reason, "message": message, "severity": "Warning"}
    return {**made, **failed} if reason else made


@asynccontextmanager
async def an_existing_fleet(
    servers: int, *, builders: bool = False
) -> AsyncIterator[tuple[FleetWorld, ExistingProvider]]:
    """Run a world with a pool of the existing provider."""
    async with a_fleet_world(servers=0, builders=builders) as world:
        existing = ExistingProvider(world)
        await existing.add_fleet(FLEET, servers, is_builder=builders)
        yield world, existing


@asynccontextmanager
async def an_existing_machine(
    name: str = "a",
) -> AsyncIterator[tuple[FleetWorld, ExistingProvider, Server]]:
    """Run a world with one machine of the existing provider, which serves."""
    async with an_existing_fleet(1) as (world, existing):
        await world.create_machine(name, fleet_name=FLEET)
        [server] = await existing.adopt_all(name)
        yield world, existing, server


def has_new_agent(world: FleetWorld, server: Server) -> bool:
    """Return whether a host has another agent than that of the existing provider."""
    return world.mac(server).files.read(host.AGENT_BINARY) != existing_host.AGENT


def boot_of(world: FleetWorld, server: Server) -> tuple[str, str]:
    """Return the installation and the boot of a host."""
    state = world.mac(server).state
    return state["host_key_id"], state["boot"]["boot_id"]


async def until_up_to_date(world: FleetWorld, name: str) -> Machine:
    """Wait until the host of a machine has the desired configuration."""
    await until_reason(world, name, types.UP_TO_DATE, "")
    return (await world.machines())[name]
