"""Stored objects that cannot be read: each is told of once, and none keeps others from being read.

There are two sorts. An object without a sound envelope, as of a damaged file, is set aside when the store is opened: it is
in no list and no watch, and can only be deleted or replaced. One that is whole but has not the form that some reader needs, as of
an older release, is served like any other; that reader spares itself the object and goes on with the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TypeAlias

import msgspec

from bramley.apiserver.store.records import Key, Record, Records
from bramley.base import log

logger = log.get(__name__)

Flaw: TypeAlias = Callable[[Record], str]
"""Says what is wrong with a stored object's envelope; nothing when it is sound."""

MISFITS = (
    msgspec.MsgspecError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading an object that has not the expected form can raise."""


def flawless(_record: Record) -> str:
    """Find nothing wrong, whatever is stored."""
    return ""


class Damage:
    """Knows what in one store cannot be read."""

    __slots__ = ("_told", "aside")

    def __init__(self) -> None:
        self.aside: dict[Key, Record] = {}
        self._told: dict[Key, int] = {}

    def sound(self, records: Iterable[Record], flaw: Flaw) -> Records:
        """Return the records without those that have a flaw, which are set aside."""
        kept: Records = []
        for record in records:
            if wrong := flaw(record):
                self.aside[record.key] = record
                self._tell(record, "Set a damaged object aside", wrong)
            else:
                kept.append(record)
        return kept

    def misfits(self, get: Callable[[Key], Record | None]) -> Iterator[Key]:
        """Yield the objects that somebody could not read and that are still as they were then."""
        for key, rv in self._told.items():
            current = get(key)
            if current is not None and current.rv == rv:
                yield key

    def sparing(self, record: Record) -> Sparing:
        """Go on after the block when this object has not the form that its reader needs."""
        return Sparing(self, record)

    def tell(self, record: Record, error: BaseException) -> None:
        """Tell that somebody cannot read an object, unless that was told."""
        self._tell(record, "Cannot read a stored object", f"{type(error).__name__}: {error}")

    def _tell(self, record: Record, what: str, reason: str) -> None:
        if self._told.get(record.key) == record.rv:
            return
        self._told[record.key] = record.rv
        kind, namespace, name = record.key
        logger.error(what, resource=kind, namespace=namespace, name=name, reason=reason)


class Sparing:
    """Ends where one object is read that may not be what its reader expects."""

    __slots__ = ("_damage", "_record")

    def __init__(self, damage: Damage, record: Record) -> None:
        self._damage = damage
        self._record = record

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> bool:
        if not isinstance(error, MISFITS):
            return False
        self._damage.tell(self._record, error)
        return True
