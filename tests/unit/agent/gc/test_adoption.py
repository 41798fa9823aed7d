"""Golden bases and images of an agent without a ledger are adopted, and then deleted by the usual rules; nothing else is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from bramley.agent.gc import leases
from bramley.agent.gc.leases import Lease
from bramley.agent.ledger import ImageRecord, LedgerUnavailable
from bramley.api.names import agent
from tests.unit.agent.gc.collector_world import DAY, A, B, CollectorWorld, a_pod, collector_world
from tests.unit.agent.images.image_world import GB, REPOSITORY, TAGGED, digest, pinned


@pytest.fixture
def world(tmp_path: Path) -> AbstractAsyncContextManager[CollectorWorld]:
    return collector_world(tmp_path)


async def run_tart(world: CollectorWorld, *words: str) -> None:
    result = await world.image_world.side.programs.run(("tart", *words), environment={})
    assert result.code == 0, result.stderr


async def make_base(world: CollectorWorld, image: str) -> str:
    """Pull an image and make its base as an older agent does: named by the hash of what the Pod names."""
    golden = agent.golden_vm(image)
    await run_tart(world, "pull", image)
    await run_tart(world, "clone", image, golden)
    return golden


def on_disk(world: CollectorWorld) -> set[str]:
    return world.image_world.vms()


def cached(world: CollectorWorld) -> set[str]:
    folder = world.image_world.tart.home / "cache" / "OCIs" / "ghcr.io" / "tuist" / "runner"
    return {each.name for each in folder.iterdir()}


@pytest.mark.parametrize(
    ("image", "letter"), [(A, "b"), (TAGGED, "a"), (REPOSITORY, "f"), (f"{REPOSITORY}:latest", "f")]
)
async def test_base_of_an_older_agent_is_deleted_a_day_after_its_adoption(
    world: CollectorWorld, image: str, letter: str
) -> None:
    world.image_world.mac.settings.image(
        f"{REPOSITORY}:latest", digest=digest("f"), size_bytes=20 * GB
    )
    golden = await make_base(world, image)
    await world.collector.collect()
    record = world.image_world.ledger.image(digest(letter))
    assert record is not None
    assert record.is_pulled
    assert pinned(letter) in record.references
    sizes = {each.golden: each.size_bytes for each in world.image_world.store.present()}
    assert sizes == {golden: 20 * GB}
    await asyncio.sleep(DAY - 60)
    assert not await world.collector.collect()
    assert on_disk(world) == {golden}

    await asyncio.sleep(120)
    assert await world.collector.collect()

    assert on_disk(world) == set()
    assert cached(world) == set()


@pytest.mark.parametrize("image", [A, TAGGED])
async def test_image_of_an_older_agent_is_used_without_a_pull(
    world: CollectorWorld, image: str
) -> None:
    golden = await make_base(world, image)
    await world.collector.collect()
    world.image_world.calls.clear()

    answer = await world.image_world.ready(image)

    assert (answer.golden == golden) is (image == A)
    assert world.image_world.called("pull") == []


async def test_base_of_a_tag_that_has_moved_is_deleted_and_never_cloned(
    world: CollectorWorld,
) -> None:
    golden = await make_base(world, TAGGED)
    world.image_world.mac.settings.image(TAGGED, digest=digest("e"), size_bytes=30 * GB)
    await run_tart(world, "pull", TAGGED)
    await world.collector.collect()
    assert world.image_world.images.present() == []

    for image in (TAGGED, pinned("e")):
        answer = await world.image_world.ready(image)
        assert (answer.golden, answer.digest) == (agent.golden_vm(pinned("e")), digest("e"))

    await asyncio.sleep(DAY)
    world.pods = [a_pod("one", TAGGED)]
    assert await world.collector.collect()
    assert golden not in on_disk(world)
    assert cached(world) == {digest("e"), "15.4"}


async def test_both_bases_of_one_digest_are_adopted(world: CollectorWorld) -> None:
    made = {await make_base(world, pinned("a")), await make_base(world, TAGGED)}
    await world.collector.collect()
    assert {each.golden for each in world.image_world.store.present()} == made

    await asyncio.sleep(DAY)
    assert await world.collector.collect()

    assert on_disk(world) == set()
    assert cached(world) == set()


async def test_adopted_base_that_a_pod_needs_is_kept(world: CollectorWorld) -> None:
    golden = await make_base(world, A)
    world.pods = [a_pod("one", A)]
    for _ in range(3):
        await world.collector.collect()
        await asyncio.sleep(DAY)

    assert on_disk(world) == {golden}


@pytest.mark.parametrize("image", [A, TAGGED])
async def test_image_that_a_pod_requests_at_the_start_is_adopted_first(
    world: CollectorWorld, image: str
) -> None:
    await make_base(world, image)
    task = asyncio.create_task(world.collector.collect())
    # The Pods are listed now.
    await asyncio.sleep(0)
    await world.image_world.ready(image)
    await task

    await asyncio.sleep(DAY)
    assert await world.collector.collect()

    assert on_disk(world) == set()
    assert cached(world) == set()


async def test_base_that_cannot_be_adopted_does_not_block_the_collector(
    world: CollectorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = await world.image_world.ready(B)
    await asyncio.sleep(DAY)
    golden = await make_base(world, A)

    def refuse(_: ImageRecord) -> None:
        raise LedgerUnavailable("the disk is full")

    monkeypatch.setattr(world.image_world.ledger, "put_image", refuse)

    assert await world.collector.collect()
    assert on_disk(world) == {golden}
    assert ours.golden not in on_disk(world)


async def foreign_image(world: CollectorWorld) -> None:
    await run_tart(world, "pull", A)


async def foreign_vm(world: CollectorWorld) -> None:
    await run_tart(world, "clone", A, "tuist-golden-by-hand")


async def base_without_its_image(world: CollectorWorld) -> None:
    await make_base(world, A)
    await run_tart(world, "delete", A)


async def base_of_another_name(world: CollectorWorld) -> None:
    await run_tart(world, "pull", A)
    await run_tart(world, "clone", A, f"{agent.GOLDEN_VM_PREFIX}0123456789abcdef")


@pytest.mark.parametrize(
    "make", [foreign_image, foreign_vm, base_without_its_image, base_of_another_name]
)
async def test_what_is_not_recognized_is_kept(
    world: CollectorWorld, make: Callable[[CollectorWorld], object]
) -> None:
    made = make(world)
    assert asyncio.iscoroutine(made)
    await made
    before = on_disk(world), cached(world)

    for _ in range(3):
        await world.collector.collect()
        await asyncio.sleep(DAY)
    assert not await world.collector.reclaim()

    assert (on_disk(world), cached(world)) == before
    assert world.image_world.store.records() == []


async def test_leased_base_is_kept(world: CollectorWorld) -> None:
    golden = await make_base(world, A)
    await world.collector.collect()
    await asyncio.sleep(2 * DAY)
    handle = leases.acquire(world.leases, Lease(vms=(golden,), pid=1))
    assert not await world.collector.reclaim()
    assert on_disk(world) == {golden}
    os.close(handle)

    assert await world.collector.reclaim()


async def test_link_that_leaves_the_cache_is_not_adopted(
    world: CollectorWorld, tmp_path: Path
) -> None:
    await make_base(world, B)
    link = world.image_world.tart.home / "cache" / "OCIs" / "ghcr.io" / "tuist" / "runner" / "x"
    outside = tmp_path / "outside" / digest("f")
    outside.mkdir(parents=True)
    for name in ("config.json", "disk.img", "nvram.bin"):
        (outside / name).write_text("{}")
    link.symlink_to(outside)
    golden = agent.golden_vm("ghcr.io/tuist/runner:x")
    await run_tart(world, "clone", B, golden)

    await world.collector.collect()

    assert world.image_world.ledger.image(digest("f")) is None
