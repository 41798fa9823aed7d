"""What a manager holds while hosts in other processes are in flight, with artifacts that are smaller than real ones."""

from __future__ import annotations

import hashlib
import sys

import pytest

from bench.streaming import measuring
from bench.streaming.artifacts import MEGABYTE, SIZES, Staged, stage
from bench.streaming.measuring import Held

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from Linux's /proc")
SHRUNK = 4
HOSTS = 4
LARGEST = max(SIZES.values()) // SHRUNK
HELD_AT = LARGEST // 10


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Staged:
    return stage(tmp_path_factory.mktemp("staged"), shrunk=SHRUNK)


async def held(staged: Staged, *, is_whole: bool = False, the_old_way: bool = False) -> Held:
    return await measuring.hold(
        staged, HOSTS, held_at=HELD_AT, is_whole=is_whole, the_old_way=the_old_way
    )


async def test_no_host_has_a_copy_of_its_own_and_all_bytes_arrive(staged: Staged) -> None:
    seen = await held(staged, is_whole=True)

    assert seen.seconds is not None
    assert seen.above_idle < LARGEST, f"{seen.above_idle / MEGABYTE:.1f} MB for {HOSTS} hosts"


async def test_the_old_way_is_seen_as_what_it_is(staged: Staged) -> None:
    seen = await held(staged, the_old_way=True)

    assert seen.above_idle > staged.size + HOSTS * LARGEST


def test_what_travels_is_what_was_said(staged: Staged) -> None:
    assert [path.stat().st_size for path in staged.files] == [
        size // SHRUNK for size in SIZES.values()
    ]
    assert len({hashlib.sha256(path.read_bytes()).digest() for path in staged.files}) == len(SIZES)
