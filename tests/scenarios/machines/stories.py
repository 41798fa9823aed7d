"""What stories do by kubectl and see by it, and managers that are replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bramley.api import conditions
from bramley.api.core import Event, Node, Secret
from bramley.api.mac_host import MacHost
from bramley.api.mac_status import MachineCondition
from bramley.api.meta import ObjectMeta
from bramley.api.names import labels, secrets
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.host.commands import Run
from bramley.runtime.manager import Manager
from bramley.sim.scaleway.records import Server
from tests.scenarios.machines.fleet_world import NAMESPACE, FleetWorld
from tests.scenarios.machines.mac_connections import MacFaults
from tests.scenarios.machines.provider import Provider

# Within which events are written.
_EVENT_SECONDS = 30
Kind = type[Machine] | type[MacHost]


@dataclass(slots=True, eq=False)
class Managers:
    """The one manager of a story, which may be replaced by another release or other settings."""

    world: FleetWorld
    settings: dict[str, Any] = field(default_factory=dict)
    _manager: Manager | None = None
    _task: asyncio.Task[None] | None = None

    async def start(self, **changes: Any) -> Provider:
        """Start a manager, after the present one has ended."""
        await self.stop()
        provider = Provider(world=self.world, **{**self.settings, **changes})
        self._manager = provider.manager()
        self._task = self.world.start(self._manager.run())
        return provider

    async def stop(self) -> None:
        """End the manager; nothing happens without one."""
        if self._manager is not None and self._task is not None:
            self._manager.stop()
            await self._task
        self._manager = None


async def annotate(
    world: FleetWorld, name: str, key: str, value: str | None = "true", *, kind: Any = Machine
) -> None:
    """Set an annotation, or remove it with None."""
    patch = {"metadata": {"annotations": {key: value}}}
    await world.kube.merge_patch(kind, name, patch, namespace=NAMESPACE)


async def change_spec(world: FleetWorld, name: str, kind: Any = Machine, **spec: Any) -> None:
    """Change fields of a spec, as they are in manifests."""
    await world.kube.merge_patch(kind, name, {"spec": spec}, namespace=NAMESPACE)


async def condition(
    world: FleetWorld, name: str, type: str, *, kind: Kind = Machine
) -> MachineCondition:
    """Return a condition of a machine; an empty one if it is not reported."""
    found = await world.kube.get(kind, name, namespace=NAMESPACE)
    empty = MachineCondition(type=type, status="Unknown")
    return conditions.find(found.status.conditions, type) or empty


async def until_reason(
    world: FleetWorld, name: str, type: str, reason: str, *, kind: Kind = Machine
) -> MachineCondition:
    """Wait until a condition has this reason, or is true without a reason to wait for."""

    async def has_reason() -> MachineCondition | None:
        found = await condition(world, name, type, kind=kind)
        is_reached = found.reason == reason if reason else found.status == "True"
        return found if is_reached else None

    found: MachineCondition = await world.until(has_reason)
    return found


async def until_updated(world: FleetWorld, *names: str, before: Iterable[Machine] = ()) -> None:
    """Wait until machines are up to date with another configuration than before."""
    old = {each.name: each.status.host_config_hash for each in before}

    async def are_updated() -> bool:
        found = await world.machines()
        return all(
            conditions.is_true(found[name].status.conditions, "UpToDate")
            and found[name].status.host_config_hash != old.get(name)
            for name in names
        )

    await world.until(are_updated)


async def start_job(world: FleetWorld, name: str, node: str, *, seconds: float = 7200) -> None:
    """Run a job in a VM of a Node."""
    await world.create_pod(name, node=node, runner="true")

    async def runs() -> bool:
        return (await world.pods())[name].status.phase == "Running"

    await world.until(runs, within=900)
    await world.give_job(name, seconds=seconds)


async def reasons(world: FleetWorld, name: str) -> list[str]:
    """Return the reasons of a machine's events, once they are written."""
    return [each.reason for each in await events_of(world, name) for _ in range(each.count or 1)]


async def events_of(world: FleetWorld, name: str) -> list[Event]:
    """Return the events of a machine, once they are written."""
    await asyncio.sleep(_EVENT_SECONDS)
    found = (await world.kube.list(Event, namespace=NAMESPACE)).items
    return [each for each in found if each.involved_object.name == name]


async def create_secret(world: FleetWorld, name: str, **values: str) -> None:
    """Create a Secret; keywords are its keys with underscores instead of hyphens."""
    data = {key.replace("_", "-"): value.encode() for key, value in values.items()}
    metadata = ObjectMeta(name=name, namespace=NAMESPACE)
    await world.kube.create(Secret(metadata=metadata, data=data))


async def bootstrap_secret(world: FleetWorld, machine: str) -> Secret:
    """Return the Secret with the login of a machine's host."""
    name = secrets.machine_bootstrap(machine)
    return await world.kube.get(Secret, name, namespace=NAMESPACE)


def server_of(world: FleetWorld, machine: Machine) -> Server:
    """Return the host of a machine."""
    return world.scaleway.servers[machine.status.server_id]


def is_tainted(node: Node) -> bool:
    """Return whether a Node has the taint of an unproven one."""
    return any(each.key == labels.UNPROVEN_TAINT for each in node.spec.taints)


async def run_on(world: FleetWorld, server_id: str, *argv: str) -> None:
    """Run a command as root on a Mac, as a person does."""
    mac = world.macs.mac(server_id)
    settings = mac.state["settings"]
    connection = world.macs.connect(
        world.macs.address(server_id), user=settings["user"], faults=MacFaults(mac)
    )
    await connection.execute(Run(argv=argv, purpose="by hand", as_root=True))
