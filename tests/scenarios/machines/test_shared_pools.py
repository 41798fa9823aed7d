"""Managers that race for the hosts of one pool: never do two machines share a host."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta

import pytest

from tests.scenarios import world as clusters
from tests.scenarios.machines.world import CLOUD, World, a_world

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 12))]
# Of managers in two clusters. With each of these two, a host that is used right after its claim gets two machines.
CLUSTER_SEEDS = [
    2,
    3,
    *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(4, 60)),
]


@pytest.mark.parametrize("seed", SEEDS)
async def test_two_managers_that_both_lead_share_no_host(seed: int) -> None:
    """Without the leader election, as after a restore of its Lease: only the Leases of hosts keep them apart."""
    cloud = dataclasses.replace(CLOUD, list_shows_old_name=timedelta(seconds=20), seed=seed)
    async with a_world(servers=3, seed=seed, stale=0.5, cloud=cloud) as world:
        for name in ("first", "second"):
            world.start(name, latency=1, leads_always=True)
        names = [f"m{number}" for number in range(5)]
        for name in names:
            await world.create(name)
        # Each may take a Lease for the same machine; one that is not used is removed by a sweep.
        await asyncio.sleep(900)
        await world.observe()
        found = await world.machines()
        bound = [name for name in names if found[name].spec.provider_id]
        assert len(bound) == len(await world.leases()) == 3
        await world.delete(bound[0])
        await asyncio.sleep(1800)
        await world.observe()
        assert len(await world.leases()) == 3
        for server in world.scaleway.servers.values():
            assert server.name == (await world.leases())[server.id]


@pytest.mark.parametrize("seed", CLUSTER_SEEDS)
async def test_managers_of_two_clusters_share_no_host(seed: int) -> None:
    """Each has the Leases of its own API only, so the names of the hosts alone keep them apart.

    Requests and responses of the provider take up to a second each, and a read shows the name of a second ago.
    """
    cloud = dataclasses.replace(CLOUD, list_shows_old_name=timedelta(seconds=20), seed=seed)
    async with (
        a_world(servers=3, seed=seed, cloud=cloud) as one,
        clusters.a_world(seed + 1) as cluster,
    ):
        # Who has used an installation of a host is checked over both.
        two = World(cluster, one.scaleway, one.group, seed, one.stale, one.users)
        for world, name in ((one, "one"), (two, "two")):
            world.start(name, latency=1)
            for number in range(3):
                await world.create(f"{name}-{number}")
        await asyncio.sleep(600)
        await _check_shared(one, two, hosts=3)

        for world in (one, two):
            for name, machine in (await world.machines()).items():
                if machine.spec.provider_id:
                    await world.delete(name)
        await asyncio.sleep(2700)
        await _check_shared(one, two, hosts=3)
        for _, task in two.managers:
            task.cancel()


async def _check_shared(one: World, two: World, *, hosts: int) -> None:
    """Check that all hosts are used, each by one machine of one cluster."""
    found = {**await one.machines(), **await two.machines()}
    users = {each.status.server_id: name for name, each in found.items() if each.spec.provider_id}
    bound = [name for name, each in found.items() if each.spec.provider_id]
    assert len(users) == len(bound) == hosts
    assert {server.id: server.name for server in one.scaleway.servers.values()} == users
    for world in (one, two):
        await world.observe()
