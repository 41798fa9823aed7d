"""Fleets of machines: scaling while jobs run, and rolls of a new agent."""

from __future__ import annotations

import asyncio

from bramley.api import conditions
from bramley.api.cluster_api import Machine as ApiMachine
from bramley.api.names import cluster_api as capi
from bramley.api.names import conditions as types
from bramley.api.names import events
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from tests.scenarios.machines.fleet_world import FleetWorld, a_fleet_world
from tests.scenarios.machines.provider import Provider
from tests.scenarios.machines.test_life import reasons, until_ready


async def until_fleet(world: FleetWorld, count: int) -> dict[str, Machine]:
    """Wait until exactly this number of machines exist, and are ready."""

    async def are_ready() -> dict[str, Machine] | None:
        found = await world.machines()
        is_ready = all(each.status.phase == "Ready" for each in found.values())
        return found if len(found) == count and is_ready else None

    found: dict[str, Machine] = await world.until(are_ready)
    return found


async def test_scale_down_waits_for_the_job_and_takes_idle_machines_first() -> None:
    async with a_fleet_world(servers=3) as world:
        world.start(Provider(world=world).manager().run())
        await world.create_fleet(3)
        found = await until_fleet(world, 3)
        busy = sorted(found)[1]
        await world.create_pod("job", node=busy, runner="true")
        await asyncio.sleep(60)
        await world.give_job("job", seconds=7200)
        await asyncio.sleep(60)
        marks = {
            each.spec.infrastructure_ref.name: each.metadata.annotations.get(capi.DELETE_MACHINE)
            for each in (await world.kube.list(ApiMachine)).items
        }
        assert marks == {name: None if name == busy else "idle" for name in found}

        await world.scale(1)
        await asyncio.sleep(3600)
        assert set(await world.machines()) == {busy}
        await world.scale(0)
        await asyncio.sleep(1800)
        assert set(await world.nodes()) == {busy}
        await asyncio.sleep(7200)
        assert await world.machines() == {}
        assert await world.nodes() == {}
        await world.invariants.check_at_rest()


async def test_new_agent_reaches_one_host_first_and_then_few_at_a_time() -> None:
    async with a_fleet_world(servers=12) as world:
        first = Provider(world=world).manager()
        task = world.start(first.run())
        await world.create_fleet(12)
        before = await until_fleet(world, 12)
        first.stop()
        await task

        second = Provider(world=world, agent=world.artifacts.newer_agent).manager()
        world.start(second.run())
        updating: list[set[str]] = []

        async def are_updated() -> bool:
            found = await world.machines()
            at_once = {
                each.name
                for each in found.values()
                if (c := conditions.find(each.status.conditions, types.UP_TO_DATE)) is not None
                and c.reason == "Updating"
            }
            if not updating or updating[-1] != at_once:
                updating.append(at_once)
            return all(
                each.status.host_config_hash != before[each.name].status.host_config_hash
                and conditions.is_true(each.status.conditions, types.UP_TO_DATE)
                for each in found.values()
            )

        await world.until(are_updated)
        assert max(map(len, updating)) == 1
        await world.invariants.check_at_rest()


async def test_host_that_only_an_installation_repairs_is_rebooted_once_and_then_released() -> None:
    async with a_fleet_world(servers=1) as world:
        world.start(Provider(world=world).manager().run())
        [server] = world.scaleway.servers.values()
        password = server.password
        world.faults(server).fail_until_reinstalled()
        await world.create_machine("a", fleet_name="fleet-a")
        machine = (await until_ready(world, "a"))["a"]
        await asyncio.sleep(30)

        found = await reasons(world, "a")
        assert found.count(events.REBOOTING_FOR_RECOVERY) == 1
        assert {events.BOOTSTRAP_EXHAUSTED, events.RELEASED} <= set(found)
        assert server.password != password
        assert machine.status.bootstrap_attempts == 0
        await world.invariants.check_at_rest()


async def test_host_that_fails_under_two_machines_is_not_adopted_again() -> None:
    async with a_fleet_world(servers=1) as world:
        world.start(Provider(world=world).manager().run())
        [server] = world.scaleway.servers.values()
        world.faults(server).is_silent = True
        for name in ("a", "b"):
            await world.create_machine(name, fleet_name="fleet-a")
        await asyncio.sleep(12 * 3600)
        world.faults(server).is_silent = False
        await asyncio.sleep(3600)

        for machine in (await world.machines()).values():
            condition = conditions.find(machine.status.conditions, types.PROVISIONED)
            assert condition is not None
            assert condition.reason == events.NO_AVAILABLE_HOST
        await world.invariants.check_at_rest()


async def test_bootstraps_of_fifty_minutes_delay_no_deletion() -> None:
    """They take all slots; a machine that serves, and one of them, are deleted all the same."""
    async with a_fleet_world(servers=6) as world:
        world.start(Provider(world=world, settings={"operations": 4}).manager().run())
        await world.create_machine("a", fleet_name="fleet-a")
        await until_ready(world, "a")
        for server in world.scaleway.servers.values():
            faults = world.faults(server)
            faults.is_silent, faults.timeout = server.name != "a", 3000
        slow = [f"slow-{number}" for number in range(5)]
        for name in slow:
            await world.create_machine(name, fleet_name="fleet-b")
        # The last claims have settled.
        await asyncio.sleep(600)
        for name in ("a", slow[0]):
            await world.delete_machine(name)
        await asyncio.sleep(20)

        found = await world.machines()
        assert set(found) == set(slow[1:])
        assert {each.status.phase for each in found.values()} == {"Bootstrapping"}
        await world.invariants.check_at_rest()
