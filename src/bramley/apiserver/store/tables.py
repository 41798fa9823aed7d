"""The committed objects of one resource, found by key and walked in order.

Reads outnumber inserts by far, so the order is kept while inserting and a list is one pass without sorting.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from bramley.apiserver.store.records import Change, Key, Record


class Table:
    """One resource's objects, sorted by namespace and name."""

    __slots__ = ("_order", "_records")

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records = {record.key: record for record in records}
        self._order = sorted(self._records)

    def __len__(self) -> int:
        return len(self._order)

    def get(self, key: Key) -> Record | None:
        """Return one object, or None."""
        return self._records.get(key)

    def ordered(self, namespace: str | None = None) -> list[Record]:
        """Return all objects, or those of one namespace, in order."""
        return [self._records[key] for key in self._keys(namespace)]

    def apply(self, change: Change) -> None:
        """Move the object to its state after the change."""
        self._put(change.record.key, change.after)

    def undo(self, change: Change) -> None:
        """Move the object back to its state before the change."""
        self._put(change.record.key, change.previous)

    def copy(self) -> Table:
        """Return a table that can be changed without changing this one."""
        twin = Table()
        twin._records = self._records.copy()
        twin._order = self._order.copy()
        return twin

    def _put(self, key: Key, record: Record | None) -> None:
        if record is not None:
            if key not in self._records:
                insort(self._order, key)
            self._records[key] = record
        elif self._records.pop(key, None) is not None:
            del self._order[bisect_left(self._order, key)]

    def _keys(self, namespace: str | None) -> list[Key]:
        if namespace is None or not self._order:
            return self._order
        resource = self._order[0].resource
        first = bisect_left(self._order, Key(resource, namespace, ""))
        # No name holds a NUL, so this stands just behind the namespace's last object.
        last = bisect_left(self._order, Key(resource, namespace + "\0", ""), first)
        return self._order[first:last]
