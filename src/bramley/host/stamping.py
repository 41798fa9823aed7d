"""The file on a Mac that says which parts were applied to it, each by its hash."""

from __future__ import annotations

from collections.abc import Iterator

from bramley.api.names import host
from bramley.host import drift
from bramley.host.commands import Command, Folder, LookAt, Write
from bramley.host.facts import Facts

FILE = LookAt(host.STAMPS, most=drift.LONGEST_FILE + 1)


def read(seen: Facts) -> drift.Stamps:
    """Return what was applied; nothing if that is not known."""
    return drift.load(seen.file(FILE) or b"")


def write(stamps: drift.Stamps) -> Iterator[Command]:
    """Yield what puts the stamps on the Mac."""
    yield Folder(path=host.STAMPS_FOLDER, purpose="make the folder of the stamps")
    yield Write(
        path=host.STAMPS,
        content=drift.dump(stamps),
        purpose="note which parts were applied",
    )
