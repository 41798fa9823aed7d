"""Machines that the existing provider was deleting, and Nodes that are deleted after the hand-over."""

from __future__ import annotations

import asyncio

import pytest

from bramley.api.core import Node
from bramley.api.names import conditions as types
from bramley.api.names import events, machines
from bramley.sim.scaleway.records import Status
from tests.scenarios.machines.existing_provider import (
    an_existing_machine,
    boot_of,
    until_up_to_date,
)
from tests.scenarios.machines.fleet_world import FLEET
from tests.scenarios.machines.stories import (
    Managers,
    is_tainted,
    reasons,
    start_job,
    until_reason,
)


async def test_deletion_that_was_requested_waits_for_the_job_and_wipes_the_host() -> None:
    async with an_existing_machine() as (world, existing, server):
        await start_job(world, "job", "a", seconds=2 * 3600)
        await world.delete_machine("a")
        await existing.patch("a", {"status": {"phase": "Deleting"}}, "status")
        installed, _ = boot_of(world, server)
        existing.stop()
        await Managers(world).start()

        await asyncio.sleep(3600)
        assert server.name == "a"
        await asyncio.sleep(2 * 3600)
        assert await world.machines() == {}
        assert await world.nodes() == {}
        assert await existing.leftovers() == set()
        assert server.name.startswith(machines.POOL_PREFIX)
        assert boot_of(world, server)[0] != installed
        await world.invariants.check_at_rest()


@pytest.mark.parametrize("is_cleared", [False, True])
async def test_deletion_that_was_interrupted_after_the_release_loses_no_host(
    is_cleared: bool,
) -> None:
    async with an_existing_machine() as (world, existing, server):
        await world.delete_machine("a")
        world.scaleway.rename(server, f"{machines.POOL_PREFIX}0b5c")
        world.scaleway.reinstall(server, None)
        if is_cleared:
            cleared = {"status": {"serverID": None, "addresses": None, "phase": "Deleting"}}
            await existing.patch("a", cleared, "status")
        existing.stop()
        await Managers(world).start()

        await asyncio.sleep(2 * 3600)
        assert await world.machines() == {}
        assert await world.nodes() == {}
        assert await existing.leftovers() == set()
        assert server.status is Status.READY
        await world.create_machine("b", fleet_name=FLEET)
        await until_up_to_date(world, "b")
        await world.invariants.check_at_rest()


async def test_deleted_node_of_a_host_that_was_handed_over_comes_back_while_its_job_runs() -> None:
    async with an_existing_machine() as (world, existing, server):
        existing.stop()
        await Managers(world).start()
        await until_up_to_date(world, "a")
        await start_job(world, "job", "a", seconds=8 * 3600)
        before, boot = (await world.nodes())["a"], boot_of(world, server)

        await world.kube.delete(Node, "a")
        await until_reason(world, "a", types.PROVEN, events.SMOKE_VM_BOOTING)
        await until_reason(world, "a", types.PROVEN, "")
        after = (await world.until_ready("a"))["a"]
        assert after.uid != before.uid
        assert not is_tainted(after)
        assert events.BOOTSTRAP_FAILED not in await reasons(world, "a")
        await asyncio.sleep(9 * 3600)
        assert boot_of(world, server) == boot
        assert existing.provider_calls == []
        await world.invariants.check_at_rest()
