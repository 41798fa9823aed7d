"""Artifacts: files on the manager's disk that are sent to Macs, identified by their digest, and the bandwidth limit.

A file is opened once for all hosts and hashed once per version. Blocks are read when they are sent, so memory use depends neither on
the size of a file nor on the number of hosts.
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
    """One file to be sent to Macs, as it was when its digest was computed."""

    name: str
    version: str
    path: Path
    size: int
    sha256: str


class _Version(NamedTuple):
    """Identifies a state of a file without reading it."""

    device: int
    inode: int
    size: int
    changed: int


@dataclass(slots=True)
class _OpenFile:
    """One open file, shared by `readers` hosts."""

    descriptor: int
    version: _Version
    readers: int = 0
    hashing: asyncio.Lock = field(default_factory=asyncio.Lock)


class BandwidthLimit:
    """Bytes per second that all hosts of a manager share, first come first served and one block at a time, so shares are equal.

    At most as many hosts send at once as blocks are sent per second; the others wait. Otherwise a hundred hosts would all finish at
    the very end, and all start again if that is too late.
    """

    def __init__(
        self, bytes_per_second: float | None = None, *, clock: Clock | None = None
    ) -> None:
        if bytes_per_second is not None and bytes_per_second <= 0:
            raise BadConfiguration("the bandwidth limit must be positive")
        self._rate = bytes_per_second
        self._clock = clock or SystemClock()
        self._slots = asyncio.Semaphore(max(1, int(bytes_per_second or 0) // BLOCK))
        # When all bytes that were granted so far are sent at this rate.
        self._granted_until = 0.0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait until another host may send; without a limit all may at once."""
        async with self._slots if self._rate is not None else nullcontext():
            yield

    async def acquire(self, count: int) -> None:
        """Wait until this many bytes may be sent."""
        if self._rate is None:
            return
        now = self._clock.monotonic()
        start = max(now, self._granted_until)
        # Before the sleep: the next caller must queue behind this one.
        self._granted_until = start + count / self._rate
        if start > now:
            await asyncio.sleep(start - now)


class ArtifactReader:
    """Reads an artifact for one host."""

    def __init__(self, artifact: Artifact, opened: _OpenFile, limit: BandwidthLimit) -> None:
        self._artifact = artifact
        self._opened = opened
        self._limit = limit

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield the file's blocks, as the bandwidth limit allows; BadConfiguration if the file changes meanwhile."""
        offset = 0
        while offset < self._artifact.size:
            await self._limit.acquire(min(BLOCK, self._artifact.size - offset))
            block = _read(self._artifact.path, self._opened, offset)
            # After the read: a block that was read during a change must not be sent.
            _require_unchanged(self._artifact.path, self._opened)
            offset += len(block)
            yield block


class ArtifactStore:
    """The artifacts of one manager: each version of a file is hashed once, and opened once while hosts read it."""

    def __init__(self, *, limit: BandwidthLimit | None = None) -> None:
        self._limit = limit or BandwidthLimit()
        self._opened: dict[_Version, _OpenFile] = {}
        self._digests: dict[_Version, str] = {}

    async def load(self, path: Path, *, name: str, version: str) -> Artifact:
        """Return the artifact of a file, with its digest."""
        with self._open(path) as file:
            digest = await self._digest(path, file)
            return Artifact(
                name=name, version=version, path=path, size=file.version.size, sha256=digest
            )

    @asynccontextmanager
    async def open(self, artifact: Artifact) -> AsyncIterator[ArtifactReader]:
        """Open an artifact for one host; BadConfiguration if the file is no longer the one that the artifact describes."""
        with self._open(artifact.path) as file:
            if file.version.size != artifact.size:
                raise _has_changed(artifact)
            if await self._digest(artifact.path, file) != artifact.sha256:
                raise _has_changed(artifact)
            async with self._limit.slot():
                yield ArtifactReader(artifact, file, self._limit)

    @contextmanager
    def _open(self, path: Path) -> Iterator[_OpenFile]:
        opened = self._find_or_open(path)
        opened.readers += 1
        try:
            yield opened
        finally:
            opened.readers -= 1
            if not opened.readers:
                self._opened.pop(opened.version, None)
                os.close(opened.descriptor)

    def _find_or_open(self, path: Path) -> _OpenFile:
        try:
            opened = self._opened.get(_version(path.stat()))
            if opened is not None:
                return opened
            # The name may refer to another file by now, so the version is read from the open file.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise BadConfiguration(
                f"the artifact {path} cannot be read: {error.strerror}"
            ) from error
        version = _version(os.fstat(descriptor))
        if (opened := self._opened.get(version)) is not None:
            os.close(descriptor)
            return opened
        return self._opened.setdefault(version, _OpenFile(descriptor, version))

    async def _digest(self, path: Path, opened: _OpenFile) -> str:
        # The lock makes concurrent callers wait for one hash instead of computing it again.
        async with opened.hashing:
            if opened.version not in self._digests:
                digest = await _hash(path, opened)
                _require_unchanged(path, opened)
                self._digests[opened.version] = digest
        return self._digests[opened.version]


def _read(path: Path, opened: _OpenFile, offset: int) -> bytes:
    try:
        return os.pread(opened.descriptor, BLOCK, offset)
    except OSError as error:
        raise BadConfiguration(f"the artifact {path} cannot be read: {error.strerror}") from error


async def _hash(path: Path, opened: _OpenFile) -> str:
    digest = hashlib.sha256()
    offset = 0
    while block := _read(path, opened, offset):
        digest.update(block)
        offset += len(block)
        # Other tasks run between two blocks; a thread would not work with virtual time.
        await asyncio.sleep(0)
    return digest.hexdigest()


def _version(stat: os.stat_result) -> _Version:
    return _Version(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _require_unchanged(path: Path, opened: _OpenFile) -> None:
    if _version(os.fstat(opened.descriptor)) != opened.version:
        raise BadConfiguration(
            f"the artifact {path} changed on disk while it was read; add a new version under another name "
            "or rename it into place, instead of writing to the file"
        )


def _has_changed(artifact: Artifact) -> BadConfiguration:
    return BadConfiguration(
        f"the artifact {artifact.path} is no longer the file of {artifact.name} {artifact.version} "
        f"(SHA-256 {artifact.sha256[:12]}…); restore that file, or start again with the new one"
    )
