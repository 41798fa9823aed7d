"""The garbage collector on a simulated Mac with leases, pushes, clones and full disks."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from bramley.agent.gc import leases
from bramley.agent.gc.leases import Lease
from bramley.agent.host import HostProcess
from bramley.agent.ledger import ImageRecord, LedgerUnavailable
from bramley.agent.tart import references
from bramley.api.core import Pod
from bramley.base import errors
from tests.unit.agent.clocks import a_clock
from tests.unit.agent.gc.collector_world import DAY, A, B, C, CollectorWorld, a_pod, collector_world
from tests.unit.agent.images.image_world import GB, assemble, digest


@pytest.fixture
def world(tmp_path: Path) -> AbstractAsyncContextManager[CollectorWorld]:
    return collector_world(tmp_path)


async def test_own_orphan_is_deleted_and_a_manual_vm_is_kept(world: CollectorWorld) -> None:
    golden = (await world.image_world.ready(A)).golden
    await world.a_vm("mine", golden)
    await world.image_world.tart.clone(golden, "tuist-runner")
    assert await world.collector.collect()

    assert world.removed == ["mine"]
    assert world.image_world.vms() == {golden, "tuist-runner"}


@pytest.mark.parametrize("pods", [errors.ApiUnavailable("away"), []], ids=["no answer", "empty"])
async def test_nothing_is_deleted_while_the_pods_are_unknown(
    world: CollectorWorld, pods: list[Pod] | errors.BramleyError
) -> None:
    await world.a_vm("mine", (await world.image_world.ready(A)).golden)
    world.pods = pods
    await asyncio.sleep(2 * DAY)

    assert not await world.collector.collect()
    assert not await world.collector.reclaim()
    world.pods = [a_pod("other")]
    assert await world.collector.collect()


async def test_no_image_is_deleted_while_the_pods_are_unknown(world: CollectorWorld) -> None:
    await world.image_world.ready(A)
    world.pods = errors.ApiUnavailable("away")
    await asyncio.sleep(2 * DAY)

    assert not await world.collector.reclaim()


async def test_nothing_is_deleted_while_tart_cannot_list(world: CollectorWorld) -> None:
    await world.a_vm("mine", (await world.image_world.ready(A)).golden)
    world.image_world.mac.settings.fault("list", "fail", times=2)

    assert not await world.collector.collect()
    assert await world.collector.collect()


@pytest.mark.parametrize("vms", [(), ("mine",)])
async def test_lease_is_honoured_until_it_ends(world: CollectorWorld, vms: tuple[str, ...]) -> None:
    await world.a_vm("mine", (await world.image_world.ready(A)).golden)
    await asyncio.sleep(2 * DAY)
    handle = leases.acquire(world.leases, Lease(vms=vms))
    assert not await world.collector.reclaim()

    os.close(handle)
    assert await world.collector.reclaim()
    assert world.removed == ["mine"]


async def test_plan_is_computed_again_after_every_step(world: CollectorWorld) -> None:
    """A VM that is leased during the first deletion is not deleted after it."""
    golden = (await world.image_world.ready(A)).golden
    for vm in ("mine-1", "mine-2"):
        await world.a_vm(vm, golden)
    handles: list[int] = []

    async def lease_the_other(vm: str) -> None:
        world.removed.append(vm)
        world.image_world.ledger.drop(vm)
        handles.append(a_lease_on_disk(world.leases, Lease(vms=("mine-2",))))

    world.remove_vm = lease_the_other  # type: ignore[method-assign]
    await world.collector.collect()

    assert world.removed == ["mine-1"]
    for handle in handles:
        os.close(handle)


def a_lease_on_disk(folder: Path, lease: Lease) -> int:
    """Hold a lease without the guard, which the collector has."""
    handle = os.open(folder / f"{secrets.token_hex(4)}.lease", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.write(handle, msgspec.json.encode(lease))
    return handle


async def test_collection_waits_while_a_lease_is_taken(world: CollectorWorld) -> None:
    await world.a_vm("mine", (await world.image_world.ready(A)).golden)
    with leases.guard(world.leases):
        assert not await world.collector.collect()

    assert await world.collector.collect()


async def test_no_lease_is_taken_during_a_deletion(world: CollectorWorld) -> None:
    await world.a_vm("mine", (await world.image_world.ready(A)).golden)
    seen: list[bool] = []

    async def try_the_guard(vm: str) -> None:
        world.image_world.ledger.drop(vm)
        with leases.guard(world.leases) as is_quiet:
            seen.append(is_quiet)

    world.remove_vm = try_the_guard  # type: ignore[method-assign]
    await world.collector.collect()

    assert seen == [False]


async def test_running_push_protects_all_images_and_its_vm(world: CollectorWorld) -> None:
    golden = (await world.image_world.ready(A)).golden
    await world.a_vm("mine", golden)
    await asyncio.sleep(2 * DAY)
    push = asyncio.create_task(
        world.image_world.side.programs.run(["tart", "push", "mine", "ghcr.io/tuist/new:1"])
    )
    await asyncio.sleep(10)
    assert not await world.collector.reclaim()

    assert (await push).code == 0
    assert await world.collector.reclaim()


async def test_unreadable_process_table_protects_everything(world: CollectorWorld) -> None:
    await world.a_vm("mine", (await world.image_world.ready(A)).golden)

    def fail() -> list[HostProcess]:
        raise OSError("no table")

    world.image_world.side.host.processes = fail  # type: ignore[method-assign]
    assert not await world.collector.reclaim()


@pytest.mark.parametrize("probe", ["runs", "error"])
async def test_running_vm_and_vm_of_unknown_state_are_kept(
    world: CollectorWorld, probe: str
) -> None:
    await world.a_vm("mine", (await world.image_world.ready(A)).golden)

    def is_locked(path: Path) -> bool:
        if probe == "error":
            raise PermissionError("no answer")
        return True

    world.image_world.side.host.is_locked = is_locked  # type: ignore[method-assign]
    assert not await world.collector.collect()


async def test_unused_image_is_deleted_after_a_day_with_our_pulls(world: CollectorWorld) -> None:
    await world.image_world.ready(A)
    assert not await world.collector.collect()
    await asyncio.sleep(DAY)
    assert await world.collector.collect()

    assert world.image_world.vms() == set()
    assert await world.image_world.tart.list() == []
    assert world.image_world.ledger.images() == {}


async def test_clock_jump_ages_no_image(tmp_path: Path) -> None:
    clock = a_clock()
    async with collector_world(tmp_path, clock) as world:
        await world.image_world.ready(A)
        await asyncio.sleep(3600)
        clock.jump(timedelta(days=3))
        assert not await world.collector.collect()
        await asyncio.sleep(DAY - 3700)
        assert not await world.collector.collect()
        await asyncio.sleep(100)
        assert await world.collector.collect()


async def test_new_request_counts_as_use(world: CollectorWorld) -> None:
    for _ in range(3):
        await world.image_world.ready(A)
        await asyncio.sleep(DAY - 60)
        assert not await world.collector.collect()


async def test_age_of_an_image_counts_from_its_last_pod(world: CollectorWorld) -> None:
    await world.image_world.ready(A)
    world.pods = [a_pod("u", A)]
    await asyncio.sleep(3 * DAY)
    assert not await world.collector.collect()
    world.pods = [a_pod("other")]
    await asyncio.sleep(DAY - 60)
    assert not await world.collector.collect()
    await asyncio.sleep(60)
    assert await world.collector.collect()


async def test_age_of_an_image_survives_a_restart(world: CollectorWorld) -> None:
    await world.image_world.ready(A)
    await asyncio.sleep(DAY)
    successor = assemble(world.image_world.mac)

    assert successor.ledger.images() == world.image_world.ledger.images()
    assert await world.collector.collect()


async def test_second_collection_deletes_nothing(world: CollectorWorld) -> None:
    world.pods = [a_pod("u", A)]
    await world.image_world.ready(A)
    for _ in range(24):
        await asyncio.sleep(DAY / 4)
        assert not await world.collector.collect()

    assert len(world.image_world.called("pull")) == 1
    assert world.image_world.called("delete") == []


async def test_low_disk_is_freed_only_up_to_the_floor(world: CollectorWorld) -> None:
    for image in (A, B, C):
        await world.image_world.ready(image)
        await asyncio.sleep(3600)
    # Each image takes 20 GB, 69 GB must stay free: two images too much.
    world.image_world.mac.settings.host(other_bytes=(460 - 69 - 30) * GB)
    assert await world.collector.collect()

    left = {record.digest for record in world.image_world.images.present()}
    assert left == {digest("d")}
    assert world.image_world.mac.space().free_share >= 0.15


async def test_only_as_much_is_reclaimed_as_is_needed(world: CollectorWorld) -> None:
    images = world.image_world
    for image in (A, B, C):
        await images.ready(image)
        await asyncio.sleep(3600)
    free = images.side.host.space(images.tart.home).free

    assert not await world.collector.reclaim(free - 1)
    assert await world.collector.reclaim(free + 1)

    assert [record.digest for record in images.images.present()] == [digest("c"), digest("d")]


async def test_interrupted_deletion_of_an_image_is_finished_by_the_next_pass(
    world: CollectorWorld,
) -> None:
    images = world.image_world
    await images.ready(A)
    await asyncio.sleep(2 * DAY)
    images.mac.settings.fault("delete", "hang", target=A, at="middle", times=1)
    deletion = asyncio.create_task(world.collector.collect())
    await asyncio.sleep(10)
    deletion.cancel()
    await asyncio.wait([deletion])
    reference = references.parse(A)
    assert reference is not None
    left = references.folder(images.tart.home, reference, reference.digest)
    assert left.exists()
    assert not references.is_bundle(left)

    assert await world.collector.collect()

    assert not left.exists()
    assert images.store.records() == []


async def test_base_that_is_being_cloned_is_kept(world: CollectorWorld) -> None:
    golden = (await world.image_world.ready(A)).golden
    await asyncio.sleep(2 * DAY)
    world.image_world.mac.settings.timings(clone=50)
    cloning = asyncio.create_task(world.image_world.images.clone(golden, "vm-1"))
    await asyncio.sleep(5)
    assert not await world.collector.reclaim()

    await cloning
    assert world.image_world.store.is_complete(golden)


async def test_base_with_an_open_request_is_kept(world: CollectorWorld) -> None:
    golden = (await world.image_world.ready(A)).golden
    await asyncio.sleep(2 * DAY)
    async with world.image_world.store.lock(golden).shared(), asyncio.timeout(60):
        assert not await world.collector.reclaim()


async def test_image_that_is_being_pulled_is_kept(world: CollectorWorld) -> None:
    golden = (await world.image_world.ready(A)).golden
    await world.image_world.tart.delete(golden)
    await asyncio.sleep(2 * DAY)
    world.image_world.mac.settings.timings(clone=50)
    world.image_world.request(A, "pod-2")
    await asyncio.sleep(1)
    assert not await world.collector.reclaim()

    await world.image_world.ready(A, "pod-2")


async def test_collector_runs_at_once_and_every_five_minutes(tmp_path: Path) -> None:
    async with collector_world(tmp_path) as world, asyncio.TaskGroup() as group:
        golden = (await world.image_world.ready(A)).golden
        running = group.create_task(world.collector.run())
        await asyncio.sleep(10)
        await world.a_vm("mine", golden)
        await asyncio.sleep(280)
        assert world.removed == []
        await asyncio.sleep(20)
        assert world.removed == ["mine"]
        running.cancel()


async def test_full_disk_is_freed_without_writing_a_record(tmp_path: Path) -> None:
    def refuse(record: ImageRecord) -> None:
        raise LedgerUnavailable("no space left on device")

    async with collector_world(tmp_path) as world:
        world.pods = [a_pod("u", A)]
        await world.image_world.ready(A)
        await world.image_world.ready(B)
        await asyncio.sleep(3600)
        world.image_world.ledger.put_image = refuse  # type: ignore[method-assign]
        assert await world.collector.reclaim()

        assert [each.digest for each in world.image_world.images.present()] == [digest("b")]


async def test_failed_deletion_ends_the_pass_and_not_the_collector(tmp_path: Path) -> None:
    async with collector_world(tmp_path) as world, asyncio.TaskGroup() as group:
        await world.image_world.ready(A)
        await asyncio.sleep(DAY)
        world.image_world.mac.settings.fault("delete", "fail", times=1)
        running = group.create_task(world.collector.run())
        await asyncio.sleep(400)

        assert world.image_world.vms() == set()
        running.cancel()
