"""Agents renew their own tokens: Nodes stay Ready and jobs run while no manager runs, and after the API server was down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from bramley.api import conditions
from bramley.api.core import Node
from bramley.api.mac_host import MacHost
from bramley.api.names import conditions as types
from bramley.api.names import events, launchd
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.kube.transport import Request, Response, Stream, Transport
from tests.scenarios.machines import test_mac_hosts
from tests.scenarios.machines.fleet_world import FleetWorld, a_fleet_world
from tests.scenarios.machines.stories import (
    Managers,
    create_secret,
    is_tainted,
    reasons,
    server_of,
    start_job,
    until_reason,
)
from tests.scenarios.machines.test_fleets import until_fleet

LIFETIME = timedelta(hours=24)
HOUR = 3600


@dataclass(slots=True)
class Network:
    """The network between agents and the API server."""

    connect: Callable[[Secret], Transport]
    is_down: bool = False

    def __call__(self, token: Secret) -> Transport:
        return cast("Transport", self) if self.is_down else self.connect(token)

    async def send(self, request: Request) -> Response:
        raise errors.ApiUnavailable(f"no response to {request.method}")

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        raise errors.ApiUnavailable(f"no response to {request.method}")


@asynccontextmanager
async def a_fleet(
    lifetime: timedelta,
) -> AsyncIterator[tuple[FleetWorld, Network, Managers, str]]:
    """Run a world with a fleet of one machine, whose agent may be cut off."""
    async with a_fleet_world(servers=1) as world:
        network = world.agents.connect = Network(world.agents.connect)
        managers = Managers(world, {"defaults": {"token_lifetime": lifetime}})
        await managers.start()
        await world.create_fleet(1)
        [name] = await until_fleet(world, 1)
        yield world, network, managers, name


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
    async with a_fleet(timedelta(hours=1)) as (world, _, managers, name):
        await managers.stop()
        await asyncio.sleep(4 * HOUR)
        await start_job(world, "job", name, seconds=6 * HOUR)
        before, running = (await world.nodes())[name], processes(world)

        await world.kube.delete(Node, name)
        await asyncio.sleep(60)
        after = (await world.until_ready(name))[name]
        assert after.uid != before.uid
        assert is_tainted(after)

        await managers.start()
        await until_reason(world, name, types.PROVEN, events.SMOKE_VM_BOOTING)
        await until_reason(world, name, types.PROVEN, "")
        assert not is_tainted((await world.nodes())[name])
        found = await reasons(world, name)
        assert not {events.BOOTSTRAPPING, events.REBOOTING_FOR_RECOVERY} & set(found)
        assert processes(world) == running
        await asyncio.sleep(7 * HOUR)
        await world.invariants.check_at_rest()


async def test_node_of_an_own_mac_that_is_deleted_after_hours_comes_back_with_its_job() -> None:
    async with a_fleet_world(servers=0) as world:
        await Managers(world).start(defaults={"token_lifetime": timedelta(hours=1)})
        mac = await world.add_own_mac("one")
        await create_secret(world, test_mac_hosts.LOGIN, sudo_password=mac.password)
        await test_mac_hosts.create(world, "own", "one")
        await test_mac_hosts.until_serving(world, "own")
        await asyncio.sleep(3 * HOUR)
        await start_job(world, "job", "own", seconds=3 * HOUR)
        before = (await world.nodes())["own"]

        await world.kube.delete(Node, "own")
        await until_reason(world, "own", types.PROVEN, events.SMOKE_VM_BOOTING, kind=MacHost)
        await test_mac_hosts.until_serving(world, "own")
        after = (await world.until_ready("own"))["own"]
        assert after.uid != before.uid
        assert not is_tainted(after)
        await asyncio.sleep(4 * HOUR)
        assert (await world.pods())["job"].status.phase == "Succeeded"


async def test_agent_that_was_cut_off_when_its_token_was_due_renews_it_afterwards() -> None:
    async with a_fleet(timedelta(hours=1)) as (world, network, managers, name):
        await managers.stop()
        running = processes(world)
        for _ in range(4):
            network.is_down = True
            await asyncio.sleep(0.6 * HOUR)
            network.is_down = False
            await asyncio.sleep(0.4 * HOUR)
            await world.until_ready(name)
        await managers.start()
        await asyncio.sleep(HOUR)
        assert await reasons(world, name) == []
        assert processes(world) == running


async def test_agent_whose_tokens_have_expired_gets_another_one() -> None:
    async with a_fleet(timedelta(hours=1)) as (world, network, _, name):
        machine, before = (await world.machines())[name], (await world.nodes())[name]
        boot = world.mac(server_of(world, machine)).state["boot"]["boot_id"]
        # As after an outage of the API server, or of the network of the Mac.
        network.is_down = True
        await asyncio.sleep(5 * HOUR)
        network.is_down = False
        await asyncio.sleep(HOUR)

        after = (await world.until_ready(name, within=60))[name]
        assert after.uid == before.uid
        found = set(await reasons(world, name)) - {"NodeNotReady", "NodeReady"}
        assert not {events.REBOOTING_FOR_RECOVERY, events.BOOTSTRAPPING} & found
        assert world.mac(server_of(world, machine)).state["boot"]["boot_id"] == boot
        await asyncio.sleep(2 * HOUR)
        await until_reason(world, name, types.READY, "")
        await until_reason(world, name, types.UP_TO_DATE, "")
        await world.invariants.check_at_rest()
