"""A deletion that takes minutes, is killed, or outlives its agent: the Node stays alive and the files go."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

from bramley.api.coordination import Lease
from bramley.api.names import agent as names
from tests.scenarios.agent_images.pods import is_gone, start_with_pod
from tests.scenarios.agent_life.world import NODE, World, a_world, is_ready

MINUTES = 4


async def renewed_at(world: World) -> float:
    lease = await world.kube.get(Lease, NODE, namespace="kube-node-lease")
    assert lease.spec.renew_time is not None
    return datetime.fromisoformat(lease.spec.renew_time).timestamp()


def removed_folders(world: World) -> list[Path]:
    folder = world.mac.folders.tart_home / names.REMOVED_FOLDER
    return list(folder.iterdir()) if folder.exists() else []


async def kill_deletion_halfway(world: World) -> None:
    """Delete the Pod, and kill its `tart delete` after it has removed a file."""
    world.mac.faults.add("tart delete", "hang", at="middle", times=1)
    world.mac.faults.add("rm", "slow", seconds=60.0 * MINUTES, times=1)
    await world.delete("job", grace=timedelta())

    async def is_deleting() -> bool:
        return any(each.argv[1:2] == ("delete",) for each in world.mac.table.living())

    await world.until(is_deleting, within=timedelta(minutes=2), what="tart deletes the VM")
    await asyncio.sleep(1)
    for process in world.mac.table.living():
        if process.argv[1:2] == ("delete",):
            world.mac.table.kill(process.pid)
    await world.until(
        lambda: _has(bool(removed_folders(world))), within=timedelta(minutes=2), what="renamed"
    )


async def _has(fact: bool) -> bool:
    return fact


async def test_lease_is_renewed_while_a_large_disk_is_removed(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await start_with_pod(world)
        await kill_deletion_halfway(world)
        gaps: list[float] = []
        for _ in range(MINUTES * 6 - 3):
            await asyncio.sleep(10)
            assert removed_folders(world)
            gaps.append(world.clock.now().timestamp() - await renewed_at(world))

        assert await is_gone(world, "job")
        await asyncio.sleep(60)
        assert max(gaps) <= 15
        assert not removed_folders(world)


async def test_removal_of_a_killed_agent_is_finished_by_the_next_one(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await start_with_pod(world)
        await kill_deletion_halfway(world)
        await world.kill()
        for process in world.mac.table.living():
            world.mac.table.kill(process.pid)
        assert removed_folders(world)

        world.start()
        await world.until(
            lambda: _has(not removed_folders(world)), within=timedelta(minutes=1), what="removed"
        )

        assert await is_gone(world, "job")
        assert await is_ready(world.kube)


async def test_agent_stops_at_once_while_a_disk_is_removed(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await start_with_pod(world)
        await kill_deletion_halfway(world)
        agent, task = world.agent, world.task
        assert agent is not None
        assert task is not None
        began = world.clock.monotonic()

        agent.stop()
        await asyncio.wait([task])

        assert world.clock.monotonic() - began < 15
        assert removed_folders(world)
        assert not any(each.argv[0].endswith("/rm") for each in world.mac.table.living())
