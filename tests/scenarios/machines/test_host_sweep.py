"""Hosts without an owner are reported, and put back into the pool; all hosts are counted."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from bramley.api.names import machines
from bramley.api.names import metrics as names
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.machines.host_leases import Holder
from bramley.machines.host_sweep import HOLDER_UID
from bramley.providers.provider import HostRef
from bramley.sim.scaleway.faults import Fault
from bramley.sim.scaleway.records import Server, Status
from tests.scenarios.machines.gates import Gate
from tests.scenarios.machines.managers import NAMESPACE
from tests.scenarios.machines.sweepers import (
    FLEET,
    SETTINGS,
    Sweeper,
    a_swept_world,
    holders,
    leases_of,
    minutes,
)
from tests.scenarios.machines.world import CLOUD, World

ORPHANS, RECLAIMED = names.ORPHAN_SERVERS.name, names.ORPHAN_SERVERS_RECLAIMED.name
FAILURES = names.HOST_SWEEP_FAILURES.name
ZONE = machines.DEFAULT_ZONE


async def a_host(world: World, name: str, **fields: Any) -> Server:
    [server] = await world.scaleway.add_servers([name], **fields)
    return server


def is_back(server: Server, password: str) -> bool:
    """Return whether a host is in the pool, and was or is being reinstalled."""
    is_wiped = server.status is Status.REINSTALLING or server.password != password
    return server.name == f"{machines.POOL_PREFIX}{server.id}" and is_wiped


def uses(sweeper: Sweeper, zone: str = ZONE) -> dict[str, float]:
    return {
        sample.labels["state"]: sample.value
        for family in sweeper.registry.collect()
        for sample in family.samples
        if sample.name == names.HOSTS.name and sample.labels["zone"] == zone
    }


@pytest.mark.parametrize("name", [f"{FLEET}7", f"{machines.CLAIM_PREFIX}0"])
async def test_host_without_an_owner_is_wiped_and_put_back_into_the_pool(name: str) -> None:
    async with a_swept_world(servers=1) as (world, sweepers):
        server = await a_host(world, name)
        password = server.password
        sweeper = sweepers.start()
        await asyncio.sleep(minutes(4))
        assert sweeper.value(ORPHANS) == 1
        assert server.name == name

        await asyncio.sleep(minutes(13))
        assert is_back(server, password)
        assert await holders(world) == {}
        await asyncio.sleep(minutes(20))
        assert (sweeper.value(ORPHANS), sweeper.value(RECLAIMED)) == (0, 1)
        assert uses(sweeper) == {"available": 2}
        assert sweeper.value(FAILURES, step="orphan") is None


@pytest.mark.parametrize("name", ["other-7", f"{FLEET}7", f"{machines.CLAIM_PREFIX}0"])
async def test_without_a_prefix_of_ours_hosts_are_only_counted(name: str) -> None:
    prefix = "another-" if name.startswith("other") else ""
    async with a_swept_world(servers=1) as (world, sweepers):
        server = await a_host(world, name)
        sweeper = sweepers.start(settings=dataclasses.replace(SETTINGS, claim_name_prefix=prefix))
        await asyncio.sleep(minutes(60))
        assert server.name == name
        assert sweeper.value(ORPHANS) == 1
        assert uses(sweeper) == {"available": 1, "claimed": 1}
        assert not [call for call in sweeper.gate.calls if "rename" in call]


async def test_without_a_prefix_of_the_pool_no_host_is_an_orphan() -> None:
    async with a_swept_world(servers=1) as (world, sweepers):
        server = await a_host(world, f"{FLEET}7")
        sweeper = sweepers.start(settings=dataclasses.replace(SETTINGS, default_pool_prefix=""))
        await asyncio.sleep(minutes(60))
        assert server.name == f"{FLEET}7"
        assert sweeper.value(ORPHANS) == 0


async def test_hosts_with_an_owner_are_left_alone() -> None:
    async with a_swept_world(servers=1) as (world, sweepers):
        named, recorded, bound, leased = [
            await a_host(world, f"{FLEET}{name}") for name in ("named", "x", "y", "z")
        ]
        await world.create(f"{FLEET}named")
        await world.create("recorder")
        status = {"status": {"serverID": recorded.id}}
        await world.kube.merge_patch(
            Machine, "recorder", status, namespace=NAMESPACE, subresource="status"
        )
        # In another zone than its machine's present one.
        await world.create(
            "binder", zone="fr-par-3", provider_id=machines.provider_id(ZONE, bound.id)
        )
        holder = Holder.of(await world.create("holder"))
        assert await leases_of(world).acquire(HostRef(ZONE, leased.id), holder)
        sweeper = sweepers.start()
        await asyncio.sleep(minutes(60))
        names_now = [each.name for each in (named, recorded, bound, leased)]
        assert names_now == [f"{FLEET}{name}" for name in ("named", "x", "y", "z")]
        assert sweeper.value(ORPHANS) == 0
        assert sweeper.value(RECLAIMED) == 0


async def test_host_that_gets_an_owner_at_the_last_moment_is_left_alone() -> None:
    """Its machine is created between the decision and the Lease, which no machine can acquire afterwards."""
    async with a_swept_world(servers=0) as (world, sweepers):
        server = await a_host(world, f"{FLEET}7")
        sweeper = sweepers.start()

        async def observe() -> None:
            if await holders(world) and not await world.machines():
                await world.create(f"{FLEET}7")

        sweeper.gate.observe = observe
        await asyncio.sleep(minutes(40))
        assert list(await world.machines()) == [f"{FLEET}7"]
        assert server.name == f"{FLEET}7"
        assert server.status is Status.READY
        assert await holders(world) == {}
        assert sweeper.value(RECLAIMED) == 0


async def test_host_that_is_renamed_at_the_last_moment_is_left_alone() -> None:
    async with a_swept_world(servers=0) as (world, sweepers):
        server = await a_host(world, f"{machines.CLAIM_PREFIX}1")
        sweeper = sweepers.start()

        async def observe() -> None:
            if await holders(world) and server.name.endswith("1"):
                world.scaleway.rename(server, f"{machines.CLAIM_PREFIX}2")
                # Until then, the provider shows the old name.
                await asyncio.sleep(CLOUD.get_shows_old_name.total_seconds() + 0.1)

        sweeper.gate.observe = observe
        await asyncio.sleep(minutes(20))
        assert server.name == f"{machines.CLAIM_PREFIX}2"
        assert server.status is Status.READY
        assert await holders(world) == {}


async def test_lease_of_an_interrupted_attempt_is_freed_and_not_used() -> None:
    """The last process ended after it had acquired the Lease, and the host has an owner now."""
    async with a_swept_world(servers=0) as (world, sweepers):
        server = await a_host(world, f"{FLEET}7")
        holder = Holder(NAMESPACE, f"{FLEET}7", HOLDER_UID)
        assert await leases_of(world).acquire(HostRef(ZONE, server.id), holder)
        await world.create(f"{FLEET}7")
        sweepers.start()
        await asyncio.sleep(minutes(30))
        assert server.name == f"{FLEET}7"
        assert await holders(world) == {}


async def test_failures_are_counted_and_do_not_end_the_sweep() -> None:
    async with a_swept_world(servers=1) as (world, sweepers):
        server = await a_host(world, f"{FLEET}7")
        password = server.password
        faults = world.scaleway.faults
        faults.add(Fault(kind="status", path="*/reinstall", times=4))
        settings = dataclasses.replace(SETTINGS, zones=(ZONE, "no/zone"))
        sweeper = sweepers.start(settings=settings)
        await asyncio.sleep(minutes(10))
        before = uses(sweeper)
        faults.add(Fault(kind="status", path="*/servers", times=40))
        await asyncio.sleep(minutes(3))
        assert uses(sweeper) == before == {"available": 1, "claimed": 1}
        faults.add(Fault(kind="status", method="POST", path="*/reinstall", times=1))
        await asyncio.sleep(minutes(30))

        assert (sweeper.value(FAILURES, step="list") or 0) > 0
        assert (sweeper.value(FAILURES, step="orphan") or 0) > 0
        assert is_back(server, password)
        assert await holders(world) == {}


async def test_host_of_a_machine_without_its_finalizer_is_reclaimed_by_the_sweep() -> None:
    async with a_swept_world(servers=1) as (world, sweepers):
        [server] = world.scaleway.servers.values()
        password = server.password
        machine = await world.create("a")
        assert await leases_of(world).acquire(HostRef(ZONE, server.id), Holder.of(machine))
        world.scaleway.rename(server, "a")
        await world.delete("a")
        sweepers.start()
        await asyncio.sleep(minutes(5))
        assert is_back(server, password)
        assert await holders(world) == {}


async def test_hosts_are_counted_once_by_state_and_zones_that_are_gone_are_dropped() -> None:
    async with a_swept_world(servers=3) as (world, sweepers):
        server = await a_host(world, f"{machines.POOL_PREFIX}x")
        await a_host(world, f"{machines.POOL_PREFIX}y", zone="fr-par-3")
        await world.create("b", zone="fr-par-3")
        sweeper = sweepers.start()
        await asyncio.sleep(minutes(2))
        assert uses(sweeper) == {"available": 4}
        assert uses(sweeper, "fr-par-3") == {"available": 1}

        await world.delete("b")
        world.scaleway.reinstall(server, None)
        bad = next(iter(world.scaleway.servers.values()))
        await sweeper.sweep.failures.quarantine(HostRef(ZONE, bad.id), "loud fan")
        await asyncio.sleep(minutes(2))
        assert uses(sweeper) == {"available": 2, "reinstalling": 1, "quarantined": 1}
        assert uses(sweeper, "fr-par-3") == {}
        assert sweeper.value(names.QUARANTINED_HOSTS.name) == 1


async def life(stop_at: int | None, *, is_pause: bool) -> Gate:
    """Sweep two hosts; the first manager is killed or paused at one of its calls."""
    async with a_swept_world(servers=0) as (world, sweepers):
        claimed, stray = await world.scaleway.add_servers(
            [f"{machines.CLAIM_PREFIX}1", f"{FLEET}7"]
        )
        passwords = [claimed.password, stray.password]
        settings = dataclasses.replace(SETTINGS, interval=timedelta(minutes=3))
        first = sweepers.start(settings=settings, stop_at=stop_at)
        if stop_at is not None:
            await first.gate.stopped.wait()
            if not is_pause:
                await first.stop()
            sweepers.start("second", settings=settings)
        await asyncio.sleep(minutes(8))
        first.gate.resume()
        await asyncio.sleep(minutes(20))
        assert is_back(claimed, passwords[0])
        assert is_back(stray, passwords[1])
        assert await holders(world) == {}
        return first.gate


@pytest.mark.parametrize("is_pause", [False, True], ids=["killed", "paused"])
@pytest.mark.parametrize(
    ("first", "step"),
    [(3, 9), *(pytest.param(each, 8, marks=pytest.mark.soak) for each in range(1, 9))],
)
async def test_sweep_that_is_stopped_is_completed_by_the_next_one(
    first: int, step: int, is_pause: bool
) -> None:
    calls = len((await life(None, is_pause=False)).checkpoints)
    for stop_at in range(first, calls + 1, step):
        await life(stop_at, is_pause=is_pause)
