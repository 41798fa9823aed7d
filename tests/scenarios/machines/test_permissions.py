"""The permissions of `examples/machines-rbac.yaml` suffice for the life of machines and MacHosts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path

import yaml

from bramley.api.core import ConfigMap, Event, Namespace, Secret, ServiceAccount
from bramley.api.mac_host import MacHost, MacHostSpec
from bramley.api.meta import ObjectMeta, Resource
from bramley.api.names import annotations as marks
from bramley.api.names import conditions as types
from bramley.api.names import events, groups, secrets
from bramley.api.rbac import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.app import machine_definitions
from bramley.kube.client import Client
from bramley.kube.transport import Request, Response, Stream, Transport
from bramley.sim.scaleway.records import Server
from tests import virtual_time
from tests.scenarios.machines.fleet_world import NAMESPACE, FleetWorld, a_fleet_world
from tests.scenarios.machines.provider import Provider
from tests.scenarios.machines.stories import reasons, until_reason
from tests.scenarios.machines.test_life import until_ready

EXAMPLE = Path(__file__).parents[3] / "examples/machines-rbac.yaml"
ACCOUNT = "bramley-machines"
KINDS: dict[str, Resource] = {
    kind.resource.kind: kind.resource
    for kind in (Namespace, ServiceAccount, ClusterRole, ClusterRoleBinding, Role, RoleBinding)
}


RECONCILED = {"scalewayapplesiliconmachines", "machosts"}
CONFLICT = Response(
    HTTPStatus.CONFLICT,
    {"content-type": "application/json"},
    b'{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409}',
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A transport that records the requests which are forbidden."""

    transport: Transport
    forbidden: list[str] = field(default_factory=list)
    # Kinds whose next patch is answered with a conflict, after which the controller reads the object from the server.
    conflicting: set[str] = field(default_factory=set)

    async def send(self, request: Request) -> Response:
        if request.method == "PATCH" and (found := self.conflicting & {*request.path.split("/")}):
            self.conflicting.difference_update(found)
            return CONFLICT
        response = await self.transport.send(request)
        self._record(request, response.status)
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        async with self.transport.stream(request) as stream:
            self._record(request, stream.status)
            yield stream

    async def close(self) -> None:
        await self.transport.close()

    def _record(self, request: Request, status: int) -> None:
        if status == HTTPStatus.FORBIDDEN:
            self.forbidden.append(f"{request.method} {request.path}")


async def restricted(world: FleetWorld) -> Recorded:
    """Apply the example, and return a transport with a token of its ServiceAccount."""
    runners = Namespace(metadata=ObjectMeta(name=groups.RUNNERS_NAMESPACE))
    await world.kube.create(runners)
    for body in yaml.safe_load_all(EXAMPLE.read_text()):
        namespace = body["metadata"].get("namespace")
        await world.kube.create_wire(KINDS[body["kind"]], body, namespace=namespace)
    issued = await world.kube.request_token(
        ACCOUNT, NAMESPACE, audiences=(), expires=timedelta(days=1)
    )
    return Recorded(world.api.transport(issued.token))


async def create_mac_host(world: FleetWorld, name: str, server: Server) -> None:
    """Create a MacHost with the login of a Mac."""
    login = Secret(
        metadata=ObjectMeta(name=f"{name}-login", namespace=NAMESPACE),
        data={secrets.SUDO_PASSWORD: server.password.encode()},
    )
    await world.kube.create(login)
    spec = MacHostSpec(address=server.ip, credentials_secret_name=login.name)
    await world.kube.create(MacHost(metadata=ObjectMeta(name=name, namespace=NAMESPACE), spec=spec))


async def is_ready(world: FleetWorld, name: str) -> bool:
    found = await world.kube.get(MacHost, name, namespace=NAMESPACE)
    return found.status.phase == "Ready" and bool(found.status.host_config_hash)


async def test_provider_needs_only_the_permissions_of_the_example() -> None:
    async with a_fleet_world(servers=2) as world:
        transport = await restricted(world)
        client = Client(transport, clock=virtual_time.clock())
        await machine_definitions.require(client, is_rented=True)
        transport.conflicting.update(RECONCILED)
        manager = Provider(world=world, identity="one", client=client).manager()
        task = world.start(manager.run())
        await world.create_machine("a", fleet_name="fleet-a")
        await until_ready(world, "a")
        free = next(each for each in world.scaleway.servers.values() if each.name != "a")
        # Not of the pool any more.
        world.scaleway.rename(free, "own")
        await create_mac_host(world, "own", free)
        await world.until(lambda: is_ready(world, "own"))
        await world.create_pod("job", node="a")
        manager.stop()
        await task

        newer = Provider(
            world=world, identity="two", client=client, agent=world.artifacts.newer_agent
        ).manager()
        world.start(newer.run())
        await world.until(lambda: is_rolled(world))
        await world.kube.delete(MacHost, "own", namespace=NAMESPACE)
        mark = {"metadata": {"annotations": {marks.QUARANTINE_HOST: "noisy"}}}
        await world.kube.merge_patch(Machine, "a", mark, namespace=NAMESPACE)
        await world.until(lambda: is_quarantined(world))
        await world.delete_machine("a")
        await world.until(lambda: is_gone(world))

    assert transport.forbidden == []
    assert transport.conflicting == set()


async def test_missing_permission_for_smoke_pods_is_reported_and_its_grant_lets_the_mac_serve() -> (
    None
):
    async with a_fleet_world(servers=1) as world:
        transport = await restricted(world)
        client = Client(transport, clock=virtual_time.clock())
        name = "bramley-machines-pods"
        binding = await world.kube.get(RoleBinding, name, namespace=NAMESPACE)
        await world.kube.delete(RoleBinding, name, namespace=NAMESPACE)
        world.start(Provider(world=world, client=client).manager().run())
        await world.create_machine("a", fleet_name="fleet-a")

        found = await until_reason(world, "a", types.READY, events.SMOKE_VM_FAILED)
        assert (found.message or "").startswith("the smoke Pod is not created: ")
        assert "pods" in (found.message or "")
        await asyncio.sleep(1800)
        assert (await reasons(world, "a")).count(events.SMOKE_VM_FAILED) == 1

        metadata = ObjectMeta(name=name, namespace=NAMESPACE)
        granted = RoleBinding(
            metadata=metadata, role_ref=binding.role_ref, subjects=binding.subjects
        )
        await world.kube.create(granted)
        await asyncio.sleep(300)
        await until_reason(world, "a", types.READY, "")


async def is_rolled(world: FleetWorld) -> bool:
    """Return whether both Macs were updated."""
    found = (await world.kube.list(Event, namespace=NAMESPACE)).items
    return {"a", "own"} <= {
        each.involved_object.name for each in found if each.reason == events.AGENT_ROLLED
    }


async def is_quarantined(world: FleetWorld) -> bool:
    found = (await world.kube.list(ConfigMap, namespace=NAMESPACE)).items
    return any("noisy" in text for each in found for text in each.data.values())


async def is_gone(world: FleetWorld) -> bool:
    hosts = (await world.kube.list(MacHost)).items
    return not hosts and not await world.machines()
