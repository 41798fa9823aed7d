"""Agents renew their own tokens: Nodes stay Ready and jobs run while no manager runs, and after the API server was down."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from bramley.api import conditions
from bramley.api.core import Node
from bramley.api.names import conditions as types
from bramley.api.names import events, launchd
from tests.scenarios.machines.fleet_world import FleetWorld, a_fleet_world
from tests.scenarios.machines.stories import (
    Managers,
    is_tainted,
    reasons,
    start_job,
    until_reason,
)
from tests.scenarios.machines.test_fleets import until_fleet

LIFETIME = timedelta(hours=24)
HOUR = 3600


def processes(world: FleetWorld) -> dict[str, int]:
    """Return the process of each Mac's agent."""
    jobs = {
        server.name: world.mac(server).state["launchd"]["jobs"][launchd.in_system(launchd.AGENT)]
        for server in world.scaleway.servers.values()
    }
    return {name: job["pid"] for name, job in jobs.items()}


async def test_nodes_stay_ready_and_jobs_run_for_three_days_without_a_manager() -> None:
    async with a_fleet_world(servers=2, heartbeat=timedelta(minutes=10)) as world:
        managers = Managers(world)
        await managers.start(defaults={"token_lifetime": LIFETIME})
        await world.create_fleet(2)
        before = await until_fleet(world, 2)
        nodes, running = await world.nodes(), processes(world)
        await managers.stop()

        for day in range(3):
            for name in nodes:
                await start_job(world, f"job-{day}-{name[-5:]}", name, seconds=20 * HOUR)
            await world.until(lambda: is_quiet(world), within=24 * HOUR)
            await asyncio.sleep(2 * HOUR)
            assert set(await world.until_ready(*nodes)) == set(nodes)
        pods = await world.pods()
        assert {each.status.phase for each in pods.values()} == {"Succeeded"}
        assert len(pods) == 3 * len(nodes)

        await managers.start(defaults={"token_lifetime": LIFETIME})
        await asyncio.sleep(2 * HOUR)
        after = await world.machines()
        for name, machine in after.items():
            assert machine.status.host_config_hash == before[name].status.host_config_hash
            assert conditions.is_true(machine.status.conditions, types.READY)
            assert conditions.is_true(machine.status.conditions, types.UP_TO_DATE)
            assert (await world.nodes())[name].uid == nodes[name].uid
            assert await reasons(world, name) == []
        assert processes(world) == running
        await world.invariants.check_at_rest()


async def is_quiet(world: FleetWorld) -> bool:
    """Return whether all jobs have ended; the Nodes must be Ready meanwhile."""
    for node in (await world.nodes()).values():
        assert conditions.is_true(node.status.conditions, types.READY), node.name
    await asyncio.sleep(300)
    pods = (await world.pods()).values()
    return all(each.status.phase not in {"Pending", "Running"} for each in pods)


async def test_node_deleted_after_days_comes_back_with_its_jobs_also_without_a_manager() -> None:
    """By then the token of the kubeconfig has expired, and the agent has only one that it has renewed."""
    async with a_fleet_world(servers=1) as world:
        managers = Managers(world)
        await managers.start(defaults={"token_lifetime": timedelta(hours=1)})
        await world.create_fleet(1)
        [name] = await until_fleet(world, 1)
        await managers.stop()
        await asyncio.sleep(4 * HOUR)
        await start_job(world, "job", name, seconds=6 * HOUR)
        before, running = (await world.nodes())[name], processes(world)

        await world.kube.delete(Node, name)
        await asyncio.sleep(60)
        after = (await world.until_ready(name))[name]
        assert after.uid != before.uid
        assert is_tainted(after)

        await managers.start(defaults={"token_lifetime": timedelta(hours=1)})
        await until_reason(world, name, types.PROVEN, events.SMOKE_VM_BOOTING)
        await until_reason(world, name, types.PROVEN, "")
        assert not is_tainted((await world.nodes())[name])
        found = await reasons(world, name)
        assert not {events.BOOTSTRAPPING, events.REBOOTING_FOR_RECOVERY} & set(found)
        assert processes(world) == running
        await asyncio.sleep(7 * HOUR)
        await world.invariants.check_at_rest()
