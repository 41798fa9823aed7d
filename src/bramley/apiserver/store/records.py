"""What the store keeps and hands out: records, the drafts that become records, and changes.

A record is shared by the tables, the history and every watcher, so nothing in it may be altered. Records are Structs
without garbage-collector headers: ten thousand of them must cost little to keep and nothing to walk over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

import msgspec

Verb: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

NOTHING: Mapping[str, str] = MappingProxyType({})
"""The labels of what has no labels; one mapping for all of them."""


class Key(NamedTuple):
    """Which object: `pods` or `runnerpools.tuist.dev`, the namespace or an empty text, the name."""

    resource: str
    namespace: str
    name: str


class Record(msgspec.Struct, frozen=True, gc=False):
    """One state of one object: the whole JSON text, and what selectors look at."""

    key: Key
    rv: int
    body: bytes
    labels: Mapping[str, str] = NOTHING
    fields: Mapping[str, str] = NOTHING


Records: TypeAlias = list[Record]
"""For classes that have a method named `list`."""


class Draft(msgspec.Struct, frozen=True, gc=False):
    """What a write wants stored; the body already carries the revision it was given."""

    body: bytes
    labels: Mapping[str, str] = NOTHING
    fields: Mapping[str, str] = NOTHING


class Removal(msgspec.Struct, frozen=True, gc=False):
    """The last state of an object that a write wants gone; the body carries the deletion's revision."""

    body: bytes
    labels: Mapping[str, str] = NOTHING
    fields: Mapping[str, str] = NOTHING


Build: TypeAlias = Callable[[Record | None, int], Draft | Removal | None]
"""Decides a write from the object as it stands and the revision the write would get; None changes nothing."""


class Change(msgspec.Struct, gc=False):
    """One step in an object's life, as watchers see it."""

    verb: Verb
    record: Record
    previous: Record | None
    encoded: bytes = b""

    @property
    def rv(self) -> int:
        """Return the revision that this change made."""
        return self.record.rv

    @property
    def after(self) -> Record | None:
        """Return the object as it is after the change, or None if it is gone."""
        return None if self.verb == "DELETED" else self.record

    def line(self) -> bytes:
        """Return the watch event as one line; it is built once and shared by all watchers."""
        if not self.encoded:
            self.encoded = watch_line(self.verb, self.record.body)
        return self.encoded


Changes: TypeAlias = list[Change]


def watch_line(verb: str, body: bytes) -> bytes:
    """Encode a watch event around an object that is JSON text already."""
    return b'{"type":"%b","object":%b}\n' % (verb.encode(), body)
