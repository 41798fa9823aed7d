"""Artifacts: hashed once per version of a file, opened once for all hosts, never held in memory, within the bandwidth limit."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bramley.base.errors import BadConfiguration
from bramley.host.artifacts import BLOCK, Artifact, ArtifactStore, BandwidthLimit
from tests import virtual_time

CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agent.tar"
    path.write_bytes(CONTENT)
    return path


async def load(store: ArtifactStore, path: Path) -> Artifact:
    return await store.load(path, name="agent", version="1.2.3")


async def read(store: ArtifactStore, artifact: Artifact) -> bytes:
    async with store.open(artifact) as reading:
        return b"".join([block async for block in reading.blocks()])


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def shorten(file: Path) -> None:
    file.write_bytes(b"short")


@contextmanager
def recorded_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Record the descriptor of each read from disk."""
    reads: list[int] = []
    real = os.pread

    def pread(descriptor: int, count: int, offset: int) -> bytes:
        reads.append(descriptor)
        return real(descriptor, count, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", pread)
        yield reads


async def test_artifact_has_the_size_and_digest_of_its_file(file: Path) -> None:
    artifact = await load(ArtifactStore(), file)

    assert artifact == Artifact(
        name="agent",
        version="1.2.3",
        path=file,
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )


async def test_all_blocks_have_the_agreed_size(file: Path) -> None:
    store = ArtifactStore()
    artifact = await load(store, file)
    async with store.open(artifact) as reading:
        blocks = [block async for block in reading.blocks()]

    assert b"".join(blocks) == CONTENT
    assert {len(block) for block in blocks} == {BLOCK}


async def test_file_is_hashed_once_for_all_hosts(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore()
    passes = len(CONTENT) // BLOCK
    with recorded_reads(monkeypatch) as reads:
        artifacts = await asyncio.gather(*(load(store, file) for _ in range(5)))
        assert len(reads) == passes + 1  # and the end of the file
        for _ in range(3):
            await read(store, artifacts[0])

    assert len(reads) == passes + 1 + 3 * passes


async def test_hosts_share_one_descriptor_and_it_is_closed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore()
    artifact = await load(store, file)
    before = open_files()
    with recorded_reads(monkeypatch) as reads:
        await asyncio.gather(*(read(store, artifact) for _ in range(20)))

    assert len(set(reads)) == 1
    assert open_files() == before


async def test_file_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as out:
        out.truncate(64 * 1024 * 1024)
    store = ArtifactStore()
    artifact = await load(store, path)
    tracemalloc.start()
    try:
        async with store.open(artifact) as reading:
            async for _ in reading.blocks():
                pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 8 * BLOCK


async def test_change_while_sending_is_reported(file: Path) -> None:
    store = ArtifactStore()
    artifact = await load(store, file)
    async with store.open(artifact) as reading:
        blocks = reading.blocks()
        await anext(blocks)
        with file.open("r+b") as out:
            out.truncate(BLOCK + 1)
        with pytest.raises(BadConfiguration, match=r"agent\.tar changed on disk while it was read"):
            await anext(blocks)


async def test_replaced_file_is_sent_unchanged_to_started_readers(file: Path) -> None:
    store = ArtifactStore()
    artifact = await load(store, file)
    async with store.open(artifact) as reading:
        blocks = reading.blocks()
        first = await anext(blocks)
        other = file.with_name("other")
        other.write_bytes(CONTENT[::-1])
        other.replace(file)
        rest = [block async for block in blocks]
        assert b"".join([first, *rest]) == CONTENT

    with pytest.raises(BadConfiguration, match=r"is no longer the file of agent 1\.2\.3"):
        await read(store, artifact)


async def test_file_of_another_size_is_refused_without_reading(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = await load(ArtifactStore(), file)
    shorten(file)

    with (
        recorded_reads(monkeypatch) as reads,
        pytest.raises(BadConfiguration, match="start again with the new one"),
    ):
        await read(ArtifactStore(), artifact)
    assert reads == []


async def test_missing_file_is_reported_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"none cannot be read: No such file"):
        await load(ArtifactStore(), tmp_path / "none")


async def test_bandwidth_is_limited_and_shared_equally(file: Path) -> None:
    clock = virtual_time.clock()
    rate = BLOCK * 4
    store = ArtifactStore(limit=BandwidthLimit(rate, clock=clock))
    artifact = await load(store, file)
    began = clock.monotonic()
    sent = [0] * 4

    async def host(number: int) -> None:
        async with store.open(artifact) as reading:
            async for block in reading.blocks():
                sent[number] += len(block)
                assert max(sent) - min(sent) <= 2 * BLOCK

    await asyncio.gather(*(host(number) for number in range(4)))

    passed = clock.monotonic() - began
    # The very first block is not delayed.
    assert passed == pytest.approx((4 * len(CONTENT) - BLOCK) / rate)


async def test_too_many_hosts_are_served_in_turn(file: Path) -> None:
    clock = virtual_time.clock()
    store = ArtifactStore(limit=BandwidthLimit(BLOCK * 2, clock=clock))
    artifact = await load(store, file)
    finished = []

    async def host() -> None:
        assert await read(store, artifact) == CONTENT
        finished.append(clock.monotonic())

    await asyncio.gather(*(host() for _ in range(10)))

    # Two at a time: the first two are finished after a fifth of the time.
    assert finished[1] < finished[-1] / 4
    assert finished == sorted(finished)


async def test_no_limit_means_no_wait(file: Path) -> None:
    store = ArtifactStore()
    artifact = await load(store, file)
    await read(store, artifact)

    assert virtual_time.clock().monotonic() == 0


def test_zero_bandwidth_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="must be positive"):
        BandwidthLimit(0)
