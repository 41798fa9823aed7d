"""Outages of the provider while machines serve: nothing is set up again, and what needs no provider goes on."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from bramley.api.core import Node, Secret
from bramley.api.names import conditions as types
from bramley.api.names import events, secrets
from bramley.sim.scaleway.faults import Fault
from bramley.sim.scaleway.records import Seal
from tests.scenarios.machines.fleet_world import NAMESPACE, FleetWorld, a_fleet_world
from tests.scenarios.machines.stories import (
    Managers,
    condition,
    events_of,
    server_of,
    until_reason,
    until_updated,
)
from tests.scenarios.machines.test_life import until_ready

HEARTBEAT = timedelta(minutes=1)
NAMES = ("a", "b", "c")


async def a_fleet(world: FleetWorld) -> Managers:
    managers = Managers(world)
    await managers.start()
    for name in NAMES:
        await world.create_machine(name, fleet_name="fleet-a")
    await until_ready(world, *NAMES)
    # Events of the bootstraps expire.
    await asyncio.sleep(2 * 3600)
    return managers


def fail(world: FleetWorld, path: str, status: int = 503) -> None:
    world.scaleway.faults.add(Fault(kind="status", path=path, status=status, times=1_000_000))


async def reasons(world: FleetWorld) -> set[str]:
    return {each.reason for name in NAMES for each in await events_of(world, name)}


@pytest.mark.parametrize("status", [503, 403])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_no_host_is_set_up_again_after_an_outage_of_the_keys(
    status: int, is_restarted: bool
) -> None:
    async with a_fleet_world(servers=3, heartbeat=HEARTBEAT) as world:
        managers = await a_fleet(world)
        fail(world, "/iam/*", status)
        if is_restarted:
            await managers.start()
        await asyncio.sleep(2 * 3600)
        for name in NAMES:
            assert (await condition(world, name, types.BOOTSTRAPPED)).status == "True"
        world.scaleway.faults.clear()
        await asyncio.sleep(1800)

        assert events.BOOTSTRAPPING not in await reasons(world)
        await world.invariants.check_at_rest()


async def test_new_machine_waits_for_its_key_and_says_so() -> None:
    async with a_fleet_world(servers=1, heartbeat=HEARTBEAT) as world:
        fail(world, "/iam/*")
        await Managers(world).start()
        await world.create_machine("a", fleet_name="fleet-a")
        await until_reason(world, "a", types.BOOTSTRAPPED, events.SSH_KEY_UNAVAILABLE)
        assert (await condition(world, "a", types.READY)).reason == events.SSH_KEY_UNAVAILABLE
        assert (await world.machines())["a"].status.server_id == ""
        world.scaleway.faults.clear()

        await until_ready(world, "a")
        await world.invariants.check_at_rest()


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_machines_are_updated_and_verified_while_the_provider_is_down(
    is_restarted: bool,
) -> None:
    async with a_fleet_world(servers=3, heartbeat=HEARTBEAT) as world:
        managers = await a_fleet(world)
        before = (await world.machines()).values()
        fail(world, "*")
        if is_restarted:
            await managers.start(agent=world.artifacts.newer_agent)
            await until_updated(world, *NAMES, before=before)
        await world.kube.delete(Node, "b")
        await until_reason(world, "b", types.PROVEN, events.SMOKE_VM_BOOTING)
        await until_reason(world, "b", types.READY, "")

        for machine in (await world.machines()).values():
            assert (machine.status.phase, machine.status.ready) == ("Ready", True)
        assert events.PROVISIONING_FAILED not in await reasons(world)
        world.scaleway.faults.clear()
        await world.invariants.check_at_rest()


async def test_host_that_serves_needs_no_login_until_the_provider_discloses_it() -> None:
    async with a_fleet_world(servers=1, heartbeat=HEARTBEAT) as world:
        await Managers(world).start()
        await world.create_machine("a", fleet_name="fleet-a")
        machine = (await until_ready(world, "a"))["a"]
        server = server_of(world, machine)
        world.scaleway.seal(server, Seal(vnc_url="<sealed>"))
        await asyncio.sleep(2 * 3600)
        name = secrets.machine_bootstrap("a")
        await world.kube.delete(Secret, name, namespace=NAMESPACE)
        await asyncio.sleep(1800)

        found = [each.reason for each in await events_of(world, "a")]
        assert events.MISSING_SUDO_PASSWORD in found
        assert events.BOOTSTRAPPING not in found
        for type in (types.BOOTSTRAPPED, types.READY):
            assert (await condition(world, "a", type)).status == "True"
        server.seal = server.sealed_at = None
        await asyncio.sleep(1800)
        assert (await world.kube.get(Secret, name, namespace=NAMESPACE)).data
        await world.invariants.check_at_rest()


async def test_host_that_others_have_renamed_is_not_ready_and_keeps_its_phase() -> None:
    async with a_fleet_world(servers=1, heartbeat=HEARTBEAT) as world:
        await Managers(world).start()
        await world.create_machine("a", fleet_name="fleet-a")
        machine = (await until_ready(world, "a"))["a"]
        world.scaleway.rename(server_of(world, machine), "other")
        await until_reason(world, "a", types.PROVISIONED, events.HOST_NAME_CHANGED)

        assert (await condition(world, "a", types.READY)).reason == events.HOST_NAME_CHANGED
        assert (await world.machines())["a"].status.phase == "Ready"
        world.scaleway.rename(server_of(world, machine), "a")
        await until_reason(world, "a", types.READY, "")
        await world.invariants.check_at_rest()
