"""The former way to send artifacts, for comparison: all are resident from the start, and each call copies a whole one.

It replaces the artifact store, so that everything else of a run, flow control of the connection included, is the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bramley.host.artifacts import BLOCK, Artifact


@dataclass(frozen=True, slots=True)
class CopyReader:
    """The copy of an artifact of one call."""

    content: bytes

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield it in the same blocks as the artifact store."""
        for begin in range(0, len(self.content), BLOCK):
            yield self.content[begin : begin + BLOCK]


class ResidentStore:
    """All artifacts, in memory."""

    def __init__(self, files: list[Path]) -> None:
        self._contents: Mapping[Path, bytearray] = {
            path: bytearray(path.read_bytes()) for path in files
        }

    @asynccontextmanager
    async def open(self, artifact: Artifact) -> AsyncIterator[CopyReader]:
        """Open a copy of an artifact for one host."""
        yield CopyReader(bytes(self._contents[artifact.path]))
