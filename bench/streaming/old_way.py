"""How artifacts were sent before: all of them resident from the start, and the whole of one copied again for every call.

It stands in for the depot, so that everything else of a run, the connection and its brakes included, is the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bramley.host.artifacts import BLOCK, Artifact


@dataclass(frozen=True, slots=True)
class Copy:
    """One call's own copy of an artifact."""

    content: bytes

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield it in the same blocks as the depot does."""
        for begin in range(0, len(self.content), BLOCK):
            yield self.content[begin : begin + BLOCK]


class Resident:
    """All artifacts, in memory."""

    def __init__(self, files: list[Path]) -> None:
        self._contents: Mapping[Path, bytearray] = {
            path: bytearray(path.read_bytes()) for path in files
        }

    @asynccontextmanager
    async def reading(self, artifact: Artifact) -> AsyncIterator[Copy]:
        """Let one host read an artifact, as a copy."""
        yield Copy(bytes(self._contents[artifact.path]))
