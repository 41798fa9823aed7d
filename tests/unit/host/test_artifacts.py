"""Artifacts: hashed once per version of a file, open once for all hosts, never resident, at the speed that the manager may spend."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bramley.base import virtual_time
from bramley.base.errors import BadConfiguration
from bramley.host.artifacts import BLOCK, Artifact, Budget, Depot

CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agent.tar"
    path.write_bytes(CONTENT)
    return path


async def taken(depot: Depot, path: Path) -> Artifact:
    return await depot.take(path, name="agent", version="1.2.3")


async def read(depot: Depot, artifact: Artifact) -> bytes:
    async with depot.reading(artifact) as reading:
        return b"".join([block async for block in reading.blocks()])


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def shorten(file: Path) -> None:
    file.write_bytes(b"short")


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the bytes that are read from disk, by the descriptor."""
    reads: list[int] = []
    real = os.pread

    def pread(descriptor: int, count: int, offset: int) -> bytes:
        reads.append(descriptor)
        return real(descriptor, count, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", pread)
        yield reads


async def test_an_artifact_is_the_file_with_its_size_and_digest(file: Path) -> None:
    artifact = await taken(Depot(), file)

    assert artifact == Artifact(
        name="agent",
        version="1.2.3",
        path=file,
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )


async def test_a_host_gets_all_blocks_and_none_is_larger_than_agreed(file: Path) -> None:
    depot = Depot()
    artifact = await taken(depot, file)
    async with depot.reading(artifact) as reading:
        blocks = [block async for block in reading.blocks()]

    assert b"".join(blocks) == CONTENT
    assert {len(block) for block in blocks} == {BLOCK}


async def test_a_version_of_a_file_is_hashed_once_however_many_hosts_ask(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    depot = Depot()
    passes = len(CONTENT) // BLOCK
    with counting(monkeypatch) as reads:
        made = await asyncio.gather(*(taken(depot, file) for _ in range(5)))
        assert len(reads) == passes + 1  # and the end of the file
        for _ in range(3):
            await read(depot, made[0])

    assert len(reads) == passes + 1 + 3 * passes


async def test_hosts_share_one_open_file_and_nobody_leaves_it_open(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    depot = Depot()
    artifact = await taken(depot, file)
    before = open_files()
    with counting(monkeypatch) as reads:
        await asyncio.gather(*(read(depot, artifact) for _ in range(20)))

    assert len(set(reads)) == 1
    assert open_files() == before


async def test_nothing_of_a_file_stays_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as out:
        out.truncate(64 * 1024 * 1024)
    depot = Depot()
    artifact = await taken(depot, path)
    tracemalloc.start()
    try:
        async with depot.reading(artifact) as reading:
            async for _ in reading.blocks():
                pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 8 * BLOCK


async def test_a_file_that_is_written_into_while_it_is_sent_is_told(file: Path) -> None:
    depot = Depot()
    artifact = await taken(depot, file)
    async with depot.reading(artifact) as reading:
        blocks = reading.blocks()
        await anext(blocks)
        with file.open("r+b") as out:
            out.truncate(BLOCK + 1)
        with pytest.raises(BadConfiguration, match=r"agent\.tar changed on disk while it was read"):
            await anext(blocks)


async def test_a_file_that_is_replaced_is_sent_as_it_was_to_those_who_have_begun(
    file: Path,
) -> None:
    depot = Depot()
    artifact = await taken(depot, file)
    async with depot.reading(artifact) as reading:
        blocks = reading.blocks()
        first = await anext(blocks)
        other = file.with_name("other")
        other.write_bytes(CONTENT[::-1])
        other.replace(file)
        rest = [block async for block in blocks]
        assert b"".join([first, *rest]) == CONTENT

    with pytest.raises(BadConfiguration, match=r"is not the file that agent .* was made of"):
        await read(depot, artifact)


async def test_a_file_of_another_size_is_refused_unread(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = await taken(Depot(), file)
    shorten(file)

    with (
        counting(monkeypatch) as reads,
        pytest.raises(BadConfiguration, match="take its digest again"),
    ):
        await read(Depot(), artifact)
    assert reads == []


async def test_a_file_that_is_missing_is_told_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"none cannot be read: No such file"):
        await taken(Depot(), tmp_path / "none")


async def test_the_budget_is_kept_over_all_hosts_and_shared_equally(file: Path) -> None:
    clock = virtual_time.clock()
    rate = BLOCK * 4
    depot = Depot(budget=Budget(rate, clock=clock))
    artifact = await taken(depot, file)
    began = clock.monotonic()
    sent = [0] * 4

    async def host(number: int) -> None:
        async with depot.reading(artifact) as reading:
            async for block in reading.blocks():
                sent[number] += len(block)
                assert max(sent) - min(sent) <= 2 * BLOCK

    await asyncio.gather(*(host(number) for number in range(4)))

    passed = clock.monotonic() - began
    # The first block of all goes at once.
    assert passed == pytest.approx((4 * len(CONTENT) - BLOCK) / rate)


async def test_more_hosts_than_a_budget_can_serve_are_served_one_after_another(file: Path) -> None:
    clock = virtual_time.clock()
    depot = Depot(budget=Budget(BLOCK * 2, clock=clock))
    artifact = await taken(depot, file)
    ends = []

    async def host() -> None:
        assert await read(depot, artifact) == CONTENT
        ends.append(clock.monotonic())

    await asyncio.gather(*(host() for _ in range(10)))

    # Two at a time: the first two have all of it when a fifth of the time is over.
    assert ends[1] < ends[-1] / 4
    assert ends == sorted(ends)


async def test_without_a_budget_nobody_waits(file: Path) -> None:
    depot = Depot()
    artifact = await taken(depot, file)
    await read(depot, artifact)

    assert virtual_time.clock().monotonic() == 0


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="more than 0"):
        Budget(0)
