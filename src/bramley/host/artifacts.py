"""What is brought to Macs: files on the manager's disk, by their digest, and how fast they may leave it.

A file is opened once for all hosts and hashed once per version of it; blocks are read where they are needed and go at once,
so nothing of a file stays in memory, whatever its size and however many hosts get it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bramley.base.clock import Clock, SystemClock
from bramley.base.errors import BadConfiguration

BLOCK = 128 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One file to be brought to Macs, as it was when its digest was taken."""

    name: str
    version: str
    path: Path
    size: int
    sha256: str


class _Version(NamedTuple):
    """What tells two states of a file apart without reading it."""

    device: int
    inode: int
    size: int
    changed: int


@dataclass(slots=True)
class _Opened:
    """One open file that several hosts may read; `readers` counts them."""

    descriptor: int
    version: _Version
    readers: int = 0
    hashing: asyncio.Lock = field(default_factory=asyncio.Lock)


class Budget:
    """Bytes per second that all hosts of a manager share; who asks first goes first, one block at a time, so shares are equal.

    No more hosts get a share at once than blocks go in a second; the others wait for their turn. A hundred that began together
    would all end at the very last, and all begin anew if that is too late.
    """

    def __init__(
        self, bytes_per_second: float | None = None, *, clock: Clock | None = None
    ) -> None:
        if bytes_per_second is not None and bytes_per_second <= 0:
            raise BadConfiguration("a bandwidth budget must be more than 0 bytes per second")
        self._rate = bytes_per_second
        self._clock = clock or SystemClock()
        self._turns = asyncio.Semaphore(max(1, int(bytes_per_second or 0) // BLOCK))
        # When the bytes that were granted so far have left at this rate.
        self._spent_until = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until one host more gets a share; without a limit all do at once."""
        async with self._turns if self._rate is not None else nullcontext():
            yield

    async def take(self, count: int) -> None:
        """Wait until so many bytes may be sent."""
        if self._rate is None:
            return
        now = self._clock.monotonic()
        begins = max(now, self._spent_until)
        self._spent_until = begins + count / self._rate
        if begins > now:
            await asyncio.sleep(begins - now)


class Reading:
    """An artifact that is being read by one host."""

    def __init__(self, artifact: Artifact, opened: _Opened, budget: Budget) -> None:
        self._artifact = artifact
        self._opened = opened
        self._budget = budget

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield the file's blocks as the budget lets them go; BadConfiguration if it changes meanwhile."""
        offset = 0
        while offset < self._artifact.size:
            await self._budget.take(min(BLOCK, self._artifact.size - offset))
            block = _read(self._artifact.path, self._opened, offset)
            _require_unchanged(self._artifact.path, self._opened)
            offset += len(block)
            yield block


class Depot:
    """The artifacts of one manager: each file version is hashed once, and open once while hosts read it."""

    def __init__(self, *, budget: Budget | None = None) -> None:
        self._budget = budget or Budget()
        self._opened: dict[_Version, _Opened] = {}
        self._digests: dict[_Version, str] = {}

    async def take(self, path: Path, *, name: str, version: str) -> Artifact:
        """Return a file as an artifact, with its digest."""
        with self._open(path) as opened:
            digest = await self._digest(path, opened)
            return Artifact(
                name=name, version=version, path=path, size=opened.version.size, sha256=digest
            )

    @asynccontextmanager
    async def reading(self, artifact: Artifact) -> AsyncIterator[Reading]:
        """Let one host read an artifact; BadConfiguration if the file is not the one that the artifact was made of."""
        with self._open(artifact.path) as opened:
            if opened.version.size != artifact.size:
                raise _is_another(artifact)
            if await self._digest(artifact.path, opened) != artifact.sha256:
                raise _is_another(artifact)
            async with self._budget.turn():
                yield Reading(artifact, opened, self._budget)

    @contextmanager
    def _open(self, path: Path) -> Iterator[_Opened]:
        opened = self._find_or_open(path)
        opened.readers += 1
        try:
            yield opened
        finally:
            opened.readers -= 1
            if not opened.readers:
                self._opened.pop(opened.version, None)
                os.close(opened.descriptor)

    def _find_or_open(self, path: Path) -> _Opened:
        try:
            known = self._opened.get(_version(path.stat()))
            if known is not None:
                return known
            # Another file may have got the name meanwhile, so the open one is asked who it is.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise BadConfiguration(
                f"the artifact {path} cannot be read: {error.strerror}"
            ) from error
        version = _version(os.fstat(descriptor))
        if (known := self._opened.get(version)) is not None:
            os.close(descriptor)
            return known
        return self._opened.setdefault(version, _Opened(descriptor, version))

    async def _digest(self, path: Path, opened: _Opened) -> str:
        # Those who ask while the file is being hashed wait for the one who does it.
        async with opened.hashing:
            if opened.version not in self._digests:
                digest = await _hash(path, opened)
                _require_unchanged(path, opened)
                self._digests[opened.version] = digest
        return self._digests[opened.version]


def _read(path: Path, opened: _Opened, offset: int) -> bytes:
    try:
        return os.pread(opened.descriptor, BLOCK, offset)
    except OSError as error:
        raise BadConfiguration(f"the artifact {path} cannot be read: {error.strerror}") from error


async def _hash(path: Path, opened: _Opened) -> str:
    digest = hashlib.sha256()
    offset = 0
    while block := _read(path, opened, offset):
        digest.update(block)
        offset += len(block)
        # Others go on between two blocks; a thread would have no place under virtual time.
        await asyncio.sleep(0)
    return digest.hexdigest()


def _version(seen: os.stat_result) -> _Version:
    return _Version(seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)


def _require_unchanged(path: Path, opened: _Opened) -> None:
    if _version(os.fstat(opened.descriptor)) != opened.version:
        raise BadConfiguration(
            f"the artifact {path} changed on disk while it was read; put a new version beside it "
            "or rename it into place, instead of writing into it"
        )


def _is_another(artifact: Artifact) -> BadConfiguration:
    return BadConfiguration(
        f"the artifact {artifact.path} is not the file that {artifact.name} {artifact.version} was "
        f"made of (SHA-256 {artifact.sha256[:12]}…); take its digest again, or put the right file there"
    )
