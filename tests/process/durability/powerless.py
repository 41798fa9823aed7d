"""A disk that can lose its power: what was synced is there, of the rest anything may be, in pieces of 512 bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.process.durability.trace import (
    Cut,
    Made,
    NamesSynced,
    Removed,
    Renamed,
    Step,
    Synced,
    Written,
)

SECTOR_BYTES = 512

Image = dict[str, bytes]


@dataclass
class File:
    """What is surely on the disk, and what was done since the last sync."""

    safe: bytes = b""
    unsafe: list[Written | Cut] = field(default_factory=list)


@dataclass
class Disk:
    """One folder; names and contents become safe separately."""

    names: dict[str, File] = field(default_factory=dict)
    safe_names: dict[str, File] = field(default_factory=dict)

    def do(self, step: Step) -> None:
        """Follow one step of the program."""
        match step:
            case Made(name):
                self.names.setdefault(name, File())
            case Written(name) | Cut(name):
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

    def torn_image(self, chance: random.Random) -> Image:
        """Return the files if any part of what was not synced survives."""
        names = chance.choice((self.names, self.safe_names))
        return {name: _torn(file, chance) for name, file in names.items()}


def _torn(file: File, chance: random.Random) -> bytes:
    survives = chance.choice((0.0, 0.2, 0.5, 0.9, 1.0))
    kept = [part for step in file.unsafe for part in _parts(step) if chance.random() < survives]
    if chance.random() < 0.3:
        chance.shuffle(kept)
    return _after(file.safe, kept)


def _parts(step: Written | Cut) -> Iterator[Written | Cut]:
    """Cut a write where sectors end."""
    if isinstance(step, Cut):
        yield step
        return
    start, end = step.offset, step.offset + len(step.content)
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield Written(step.name, start, step.content[start - step.offset : stop - step.offset])
        start = stop


def _after(content: bytes, steps: list[Written | Cut]) -> bytes:
    result = bytearray(content)
    for step in steps:
        length = step.length if isinstance(step, Cut) else step.offset + len(step.content)
        if len(result) < length:
            result.extend(bytes(length - len(result)))
        if isinstance(step, Cut):
            del result[step.length :]
        else:
            result[step.offset : length] = step.content
    return bytes(result)
