"""A disk after a power loss: what was synced is kept, of the rest any part, in sectors of 512 bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.process.durability.trace import (
    Created,
    NamesSynced,
    Removed,
    Renamed,
    Step,
    Synced,
    Truncated,
    Written,
)

SECTOR_BYTES = 512

Image = dict[str, bytes]


@dataclass
class File:
    """The synced content, and the changes since the last sync."""

    safe: bytes = b""
    unsafe: list[Written | Truncated] = field(default_factory=list)


@dataclass
class Disk:
    """One folder; names and contents are synced separately."""

    names: dict[str, File] = field(default_factory=dict)
    safe_names: dict[str, File] = field(default_factory=dict)

    def apply(self, step: Step) -> None:
        """Apply one step of the program."""
        match step:
            case Created(name):
                self.names.setdefault(name, File())
            case Written(name) | Truncated(name):
                self.names[name].unsafe.append(step)
            case Synced(name):
                file = self.names[name]
                file.safe, file.unsafe = _after(file.safe, file.unsafe), []
            case Renamed(name, new):
                self.names[new] = self.names.pop(name)
            case Removed(name):
                del self.names[name]
            case NamesSynced():
                self.safe_names = dict(self.names)

    def image(self) -> Image:
        """Return the files if nothing survives that was not synced."""
        return {name: file.safe for name, file in self.safe_names.items()}

    def torn_image(self, rng: random.Random) -> Image:
        """Return the files if any part of what was not synced survives."""
        names = rng.choice((self.names, self.safe_names))
        return {name: _torn(file, rng) for name, file in names.items()}


def _torn(file: File, rng: random.Random) -> bytes:
    survives = rng.choice((0.0, 0.2, 0.5, 0.9, 1.0))
    kept = [part for step in file.unsafe for part in _parts(step) if rng.random() < survives]
    if rng.random() < 0.3:
        rng.shuffle(kept)
    return _after(file.safe, kept)


def _parts(step: Written | Truncated) -> Iterator[Written | Truncated]:
    """Split a write at sector boundaries."""
    if isinstance(step, Truncated):
        yield step
        return
    start, end = step.offset, step.offset + len(step.content)
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield Written(step.name, start, step.content[start - step.offset : stop - step.offset])
        start = stop


def _after(content: bytes, steps: list[Written | Truncated]) -> bytes:
    result = bytearray(content)
    for step in steps:
        length = step.length if isinstance(step, Truncated) else step.offset + len(step.content)
        if len(result) < length:
            result.extend(bytes(length - len(result)))
        if isinstance(step, Truncated):
            del result[step.length :]
        else:
            result[step.offset : length] = step.content
    return bytes(result)
