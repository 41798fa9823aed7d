"""The store's values: records, the drafts that become records, and changes.

A record is shared by the cache, the history and every watcher, so it must never be modified. Records are Structs without
garbage-collector headers, so that ten thousand of them cost little memory and no collector time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

import msgspec

Verb: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]

NO_VALUES: Mapping[str, str] = MappingProxyType({})
"""The labels of what has no labels; one mapping for all of them."""


class Key(NamedTuple):
    """An object's key: the resource (`pods`, `runnerpools.tuist.dev`), the namespace or an empty text, and the name."""

    resource: str
    namespace: str
    name: str


class Record(msgspec.Struct, frozen=True, gc=False):
    """One state of one object: its JSON, and the values that selectors match."""

    key: Key
    rv: int
    body: bytes
    labels: Mapping[str, str] = NO_VALUES
    fields: Mapping[str, str] = NO_VALUES


Records: TypeAlias = list[Record]
"""For classes that have a method named `list`."""


class Draft(msgspec.Struct, frozen=True, gc=False):
    """The new state of an object; the body already contains the revision of the write."""

    body: bytes
    labels: Mapping[str, str] = NO_VALUES
    fields: Mapping[str, str] = NO_VALUES


class Removal(msgspec.Struct, frozen=True, gc=False):
    """The last state of an object that is removed; the body contains the revision of the removal."""

    body: bytes
    labels: Mapping[str, str] = NO_VALUES
    fields: Mapping[str, str] = NO_VALUES


Build: TypeAlias = Callable[[Record | None, int], Draft | Removal | None]
"""Returns an object's next state from its current one and the revision of the write; None changes nothing."""


class Change(msgspec.Struct, gc=False):
    """One change of one object, as watchers see it."""

    verb: Verb
    record: Record
    previous: Record | None
    encoded: bytes = b""

    @property
    def rv(self) -> int:
        """Return the revision of this change."""
        return self.record.rv

    @property
    def after(self) -> Record | None:
        """Return the object after the change, or None if it was removed."""
        return None if self.verb == "DELETED" else self.record

    def line(self) -> bytes:
        """Return the watch event as one line; it is encoded once and shared by all watchers."""
        if not self.encoded:
            self.encoded = watch_line(self.verb, self.record.body)
        return self.encoded


Changes: TypeAlias = list[Change]


def watch_line(verb: str, body: bytes) -> bytes:
    """Return a watch event with an object that is already encoded."""
    return b'{"type":"%b","object":%b}\n' % (verb.encode(), body)
