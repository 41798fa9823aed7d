"""Free space is checked before a clone and a pull, reclaimed if it is short, and missing space is reported with both figures."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bramley.agent.host import Space
from bramley.agent.images.disk_space import MAX_GROWTH, MIN_FREE, DiskSpace
from bramley.agent.images.image_requests import Failed, PullPolicy
from bramley.agent.ledger import ImageRecord
from bramley.agent.tart.failures import NotEnoughSpace
from tests.unit.agent.images.image_world import GB, REPOSITORY, TAGGED, digest, image_world, pinned
from tests.unit.agent.node.worlds import Host

B, C = pinned("b"), pinned("c")
DISK = 460 * GB


@dataclass
class Reclaiming:
    """A collector that frees this many bytes each time."""

    host: Host
    frees: int = 0
    calls: list[int | None] = field(default_factory=list)

    async def __call__(self, needed: int | None = None) -> bool:
        self.calls.append(needed)
        assert isinstance(self.host.room, Space)
        self.host.room = Space(DISK, self.host.room.free + self.frees)
        return self.frees > 0


@pytest.mark.parametrize(
    ("free", "expected", "frees", "reclaims", "fails"),
    [
        (50 * GB, 40 * GB, 0, False, False),
        (50 * GB, 60 * GB, 0, True, False),
        (50 * GB, 60 * GB, 30 * GB, True, False),
        (MIN_FREE, 0, 0, False, False),
        (MIN_FREE - 1, 0, 0, True, True),
        (MIN_FREE - 1, 0, 1, True, False),
        (0, 60 * GB, 10 * GB, True, False),
        (0, 60 * GB, 0, True, True),
    ],
)
async def test_space_is_reclaimed_for_what_is_expected_and_only_too_little_is_an_error(
    tmp_path: Path, free: int, expected: int, frees: int, *, reclaims: bool, fails: bool
) -> None:
    host = Host(room=Space(DISK, free))
    reclaim = Reclaiming(host, frees)
    error: NotEnoughSpace | None = None
    try:
        await DiskSpace(host, tmp_path, reclaim).ensure("clone", expected=expected)
    except NotEnoughSpace as raised:
        error = raised

    assert reclaim.calls == ([MIN_FREE + expected] if reclaims else [])
    assert (error is not None) is fails
    if error is not None:
        assert f"needs at least 2.0 GB, and {(free + frees) / GB:.1f} GB are free" in str(error)


async def test_unknown_space_is_no_error(tmp_path: Path) -> None:
    await DiskSpace(Host(room=OSError("no volume")), tmp_path).ensure("pull", expected=GB)


async def test_error_names_what_to_do_where_nothing_is_reclaimed(tmp_path: Path) -> None:
    with pytest.raises(NotEnoughSpace, match="garbage collection is disabled"):
        await DiskSpace(Host(room=Space(DISK, GB)), tmp_path).ensure("clone", expected=0)


@pytest.mark.parametrize(
    ("virtual", "growth"), [(0, 0), (50 * GB, 50 * GB), (300 * GB, MAX_GROWTH), (None, 0)]
)
def test_clone_may_grow_to_its_virtual_size(
    tmp_path: Path, virtual: int | None, growth: int
) -> None:
    folder = tmp_path / "vms" / "base"
    folder.mkdir(parents=True)
    if virtual is not None:
        with (folder / "disk.img").open("wb") as file:
            file.truncate(virtual)

    assert DiskSpace(Host(), tmp_path).growth("base") == growth


@pytest.mark.parametrize(
    ("total", "free", "reclaimed"),
    [
        (1000 * GB, 103 * GB, []),
        (1000 * GB, 101 * GB, [MIN_FREE + MAX_GROWTH]),
        # A small disk with two images of 40 GB keeps both.
        (256 * GB, 96 * GB, []),
        (256 * GB, 65 * GB, [MIN_FREE + 64 * GB]),
    ],
)
def test_growth_is_reclaimed_up_to_a_quarter_of_the_volume(
    tmp_path: Path, total: int, free: int, reclaimed: list[int]
) -> None:
    folder = tmp_path / "vms" / "base"
    folder.mkdir(parents=True)
    with (folder / "disk.img").open("wb") as file:
        file.truncate(140 * GB)
    calls: list[int] = []
    space = DiskSpace(Host(room=Space(total, free)), tmp_path, reclaim_later=calls.append)

    space.reclaim_for_growth("base")

    assert calls == reclaimed


async def test_pull_that_cannot_fit_is_stopped_when_its_size_is_known(tmp_path: Path) -> None:
    async with image_world(tmp_path) as world:
        world.mac.settings.image(B, size_bytes=300 * GB, compressed_bytes=150 * GB)
        world.mac.settings.host(other_bytes=DISK - 100 * GB)
        began = asyncio.get_running_loop().time()

        answer = await world.failed(B)

        assert isinstance(answer.error, NotEnoughSpace)
        assert "tart pull needs at least 150.0 GB, and 100.0 GB are free" in str(answer.error)
        assert asyncio.get_running_loop().time() - began < 30
        assert world.mac.table.living() == []


async def test_resumed_pull_needs_only_what_is_missing(tmp_path: Path) -> None:
    async with image_world(tmp_path) as world:
        world.mac.settings.image(B, size_bytes=100 * GB, compressed_bytes=90 * GB)
        world.mac.settings.host(other_bytes=DISK - 110 * GB)
        world.mac.settings.fault("pull", "status", code=429, percent=80, times=1)

        await world.ready(B)

        assert len(world.called("pull")) == 2


async def test_pull_that_has_moved_its_download_into_the_cache_needs_nothing_more(
    tmp_path: Path,
) -> None:
    async with image_world(tmp_path) as world:
        await world.ready(TAGGED)
        world.mac.settings.image(
            TAGGED, digest=digest("e"), size_bytes=100 * GB, compressed_bytes=90 * GB
        )
        world.mac.settings.host(other_bytes=DISK - 130 * GB)
        # tart removes the image that the tag had before, and ends after that.
        world.mac.settings.timings(delete=30.0)

        answer = await world.ready(TAGGED, "pod-2", policy=PullPolicy.ALWAYS)

        assert answer.digest == digest("e")
        assert len(world.called("pull")) == 2


async def test_space_for_the_next_image_of_a_repository_is_reclaimed_before_its_pull(
    tmp_path: Path,
) -> None:
    calls: list[tuple[int | None, int]] = []

    async def reclaim(needed: int | None = None) -> bool:
        calls.append((needed, len(world.called("pull"))))
        return False

    async with image_world(tmp_path, reclaim=reclaim) as world:
        record = ImageRecord(
            digest=digest("d"),
            references=(pinned("d"),),
            size_bytes=80 * GB,
            pulled_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        world.ledger.put_image(record)
        world.mac.settings.image(pinned("e", "quay.io/other/image"), size_bytes=GB)
        world.mac.settings.host(other_bytes=DISK - 70 * GB)

        await world.ready(pinned("e", "quay.io/other/image"))
        assert calls == []
        await world.ready(B)

        assert REPOSITORY in B
        assert calls == [(82 * GB, 1)]


async def test_clone_without_space_fails_with_figures_and_keeps_the_base(tmp_path: Path) -> None:
    async with image_world(tmp_path) as world:
        answer = await world.ready(B)
        world.mac.settings.host(other_bytes=DISK - 21 * GB)

        with pytest.raises(NotEnoughSpace, match=r"tart clone needs at least 2\.0 GB, and 1\.0 GB"):
            await world.images.clone(answer.golden, "vm-1")

        assert world.vms() == {answer.golden}
        assert not isinstance(world.request(B), Failed)
