"""A small controller on the embedded API, under virtual time."""

from __future__ import annotations

import asyncio

import pytest

from bramley.api.coordination import Lease
from bramley.api.core import ConfigMap
from bramley.api.runner_pool import RunnerPool
from bramley.base import errors
from tests import virtual_time
from tests.scenarios.world import NAMESPACE, World, a_world, running
from tests.unit import example_counts


def names(pool: str, count: int) -> list[str]:
    return [f"{pool}-{number}" for number in range(count)]


async def holder(world: World) -> str | None:
    lease = await world.kube.get(Lease, "shelf", namespace=NAMESPACE)
    return lease.spec.holder_identity


async def test_children_follow_the_replicas_and_are_deleted_with_the_pool() -> None:
    async with a_world() as world, running(world.manager()):
        await world.pool("a", replicas=3)
        await asyncio.sleep(1)
        assert await world.children("a") == names("a", 3)

        await world.scale("a", 5)
        await asyncio.sleep(1)
        assert await world.children("a") == names("a", 5)

        await world.scale("a", 1)
        await asyncio.sleep(1)
        assert await world.children("a") == names("a", 1)

        await world.kube.delete(RunnerPool, "a", namespace=NAMESPACE)
        await asyncio.sleep(1)
        assert await world.children("a") == []
        with pytest.raises(errors.NotFound):
            await world.kube.get(RunnerPool, "a", namespace=NAMESPACE)


async def test_deleted_child_is_created_again() -> None:
    async with a_world() as world, running(world.manager()):
        await world.pool("a", replicas=2)
        await asyncio.sleep(1)

        await world.kube.delete(ConfigMap, "a-1", namespace=NAMESPACE)
        await asyncio.sleep(1)

        assert await world.children("a") == names("a", 2)


async def test_converged_controller_writes_nothing_for_a_day() -> None:
    """A fast run covers only the first hours."""
    async with a_world() as world, running(world.manager()):
        for number in range(20):
            await world.pool(f"p{number}", replicas=3)
        await asyncio.sleep(60)
        revision = world.api.store.revision

        await asyncio.sleep(86_400 * example_counts.share())

        assert world.api.store.revision == revision


async def test_compacted_history_costs_a_list_and_loses_nothing() -> None:
    async with a_world() as world:
        manager = world.manager()
        async with running(manager):
            await world.pool("a", replicas=2)
            for hour in range(12):
                # Watches end within the hour; the revision they would resume from is compacted by then.
                await world.scale("a", hour % 4)
                world.api.store.compact()
                await asyncio.sleep(3600)
                assert await world.children("a") == names("a", hour % 4)


async def test_stopped_manager_releases_its_lease_to_the_next() -> None:
    async with a_world() as world:
        first, second = world.manager("first"), world.manager("second")
        async with asyncio.TaskGroup() as group:
            group.create_task(first.run())
            await first.leading.wait()
            async with running(second):
                await world.pool("a", replicas=1)
                await asyncio.sleep(60)
                assert not second.leading.is_set()

                first.stop()
                stopped = virtual_time.clock().monotonic()
                await second.leading.wait()
                assert virtual_time.clock().monotonic() - stopped < 5
                assert await holder(world) == "second"

                await world.scale("a", 4)
                await asyncio.sleep(1)
                assert await world.children("a") == names("a", 4)


async def test_after_a_crash_the_next_manager_waits_only_for_the_lease() -> None:
    async with a_world() as world:
        async with asyncio.TaskGroup() as group:
            crashing = group.create_task(world.manager("first").run())
            await asyncio.sleep(5)
            crashing.cancel()
        await world.pool("a", replicas=2)
        crashed = virtual_time.clock().monotonic()

        second = world.manager("second")
        async with running(second):
            await second.leading.wait()
            waited = virtual_time.clock().monotonic() - crashed
            await asyncio.sleep(1)

            assert 5 < waited < 20
            assert await world.children("a") == names("a", 2)


@pytest.mark.parametrize("seed", range(5))
def test_same_seed_gives_the_same_objects(seed: int) -> None:
    async def scenario() -> tuple[bytes, ...]:
        async with a_world(seed) as world, running(world.manager()):
            async with asyncio.TaskGroup() as group:
                for number in range(10):
                    group.create_task(world.pool(f"p{number}", replicas=number % 3))
            await asyncio.sleep(60)
            async with asyncio.TaskGroup() as group:
                for number in range(10):
                    group.create_task(world.scale(f"p{number}", 3 - number % 4))
            await asyncio.sleep(60)
            return tuple(record.body for record in world.api.store.list("configmaps"))

    runs = {virtual_time.run(scenario(), seed=seed) for _ in range(2)}

    assert len(runs) == 1
