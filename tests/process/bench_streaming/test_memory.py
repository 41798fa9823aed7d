"""The memory of a manager while transfers to hosts in other processes are in flight, with small artifacts."""

from __future__ import annotations

import hashlib
import sys

import pytest

from bench.streaming import measurement
from bench.streaming.artifacts import MEGABYTE, SIZES, Staged, stage
from bench.streaming.measurement import MemoryUse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from Linux's /proc")
SHRUNK = 4
HOSTS = 4
LARGEST = max(SIZES.values()) // SHRUNK
HELD_AT = LARGEST // 10


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Staged:
    return stage(tmp_path_factory.mktemp("staged"), shrunk=SHRUNK)


async def measure(
    staged: Staged, *, is_complete: bool = False, copy_per_call: bool = False
) -> MemoryUse:
    return await measurement.measure_memory(
        staged, HOSTS, held_at=HELD_AT, is_complete=is_complete, copy_per_call=copy_per_call
    )


async def test_hosts_share_one_copy_and_all_bytes_arrive(staged: Staged) -> None:
    use = await measure(staged, is_complete=True)

    assert use.seconds is not None
    assert use.above_idle < LARGEST, f"{use.above_idle / MEGABYTE:.1f} MB for {HOSTS} hosts"


async def test_copy_per_call_needs_memory_for_each_host(staged: Staged) -> None:
    use = await measure(staged, copy_per_call=True)

    assert use.above_idle > staged.size + HOSTS * LARGEST


def test_artifacts_have_the_expected_sizes_and_differ(staged: Staged) -> None:
    assert [path.stat().st_size for path in staged.files] == [
        size // SHRUNK for size in SIZES.values()
    ]
    assert len({hashlib.sha256(path.read_bytes()).digest() for path in staged.files}) == len(SIZES)
