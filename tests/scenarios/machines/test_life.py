"""The life of a machine with the real controllers: from the pool to a proven Node, and back."""

from __future__ import annotations

import asyncio

from bramley.api import conditions
from bramley.api.core import Event
from bramley.api.names import conditions as types
from bramley.api.names import labels
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from tests.scenarios.machines.fleet_world import NAMESPACE, FleetWorld, a_fleet_world
from tests.scenarios.machines.provider import Provider


async def until_ready(
    world: FleetWorld, *names: str, within: float = 4 * 3600
) -> dict[str, Machine]:
    """Wait until machines are ready."""

    async def are_ready() -> dict[str, Machine] | None:
        found = await world.machines()
        is_ready = all(name in found and found[name].status.phase == "Ready" for name in names)
        return found if is_ready else None

    found: dict[str, Machine] = await world.until(are_ready, within=within)
    return found


async def reasons(world: FleetWorld, name: str) -> list[str]:
    """Return the reasons of a machine's events."""
    found = (await world.kube.list(Event, namespace=NAMESPACE)).items
    return [each.reason for each in found if each.involved_object.name == name]


async def test_machine_becomes_a_proven_node_and_goes_back_wiped() -> None:
    async with a_fleet_world(servers=1) as world:
        world.start(Provider(world=world).manager().run())
        await world.create_machine("a", fleet_name="fleet-a")
        machine = (await until_ready(world, "a"))["a"]
        node = (await world.nodes())["a"]

        assert machine.status.ready
        for type in (
            types.PROVISIONED,
            types.BOOTSTRAPPED,
            types.NODE_READY,
            types.PROVEN,
            types.READY,
        ):
            assert conditions.is_true(machine.status.conditions, type), type
        assert labels.UNPROVEN_TAINT not in {each.key for each in node.spec.taints}
        await asyncio.sleep(1200)
        assert await world.pods() == {}
        await world.invariants.check_at_rest()

        await world.delete_machine("a")
        await asyncio.sleep(3600)
        assert await world.machines() == {}
        assert await world.nodes() == {}
        await world.invariants.check_at_rest()


async def test_machine_without_a_host_is_deleted_at_once() -> None:
    async with a_fleet_world(servers=0) as world:
        world.start(Provider(world=world).manager().run())
        await world.create_machine("a", fleet_name="fleet-a")
        await asyncio.sleep(60)
        assert (await world.machines())["a"].status.phase == "Adopting"

        await world.delete_machine("a")
        await asyncio.sleep(1)
        assert await world.machines() == {}
