"""The committed objects of one resource, their recent history, and their watchers.

Watches resume from the history, and lists of past revisions are rebuilt from it. It is in memory only: after a restart it is
empty and its floor is the resource's last stored revision, so a client that is further behind must list again instead of
missing a change. Reads outnumber inserts by far, so objects are kept in order and a list needs no sorting.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bramley.apiserver.store.errors import Compacted
from bramley.apiserver.store.records import Change, Changes, Key, Record, Records
from bramley.apiserver.store.settings import HistoryLimits
from bramley.apiserver.store.subscriptions import Subscription, total_bytes


class WatchCache:
    """One resource's committed state; it advances by whole commit groups."""

    __slots__ = ("_history", "latest", "table", "watchers")

    def __init__(self, table: ObjectTable, history: History) -> None:
        self.table = table
        self._history = history
        self.latest = history.floor
        # A dict because it is ordered: under virtual time the same seed must wake the watchers in the same order.
        self.watchers: dict[Subscription, None] = {}

    def publish(self, changes: Sequence[Change], *, now: float) -> None:
        """Apply one commit group's changes for readers and for later watchers."""
        for change in changes:
            self.table.apply(change)
            self._history.append(change, now=now)
        self.latest = changes[-1].rv

    def notify(self, changes: Sequence[Change]) -> None:
        """Send one commit group's changes to the current watchers."""
        size_bytes = total_bytes(changes)
        for watcher in self.watchers:
            watcher.offer(changes, size_bytes=size_bytes)

    def since(self, rv: int, *, now: float) -> Changes:
        """Return every change after a revision; raise Compacted if some of them were dropped."""
        # Entries also expire while nothing is written.
        self._history.trim(now)
        return self._history.since(rv)

    def list_before(self, newer: Sequence[Change], namespace: str | None) -> Records:
        """Return the objects as they were before these changes, which must be the newest ones."""
        table = self.table
        if newer:
            table = table.copy()
        for change in reversed(newer):
            table.undo(change)
        return table.ordered(namespace)

    def compact(self) -> None:
        """Drop all history."""
        self._history.clear()


class ObjectTable:
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

    def copy(self) -> ObjectTable:
        """Return a table that can be changed without changing this one."""
        copied = ObjectTable()
        copied._records = self._records.copy()
        copied._order = self._order.copy()
        return copied

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
        # No namespace contains a NUL, so this sorts just after the namespace's last object.
        last = bisect_left(self._order, Key(resource, namespace + "\0", ""), first)
        return self._order[first:last]


OVERHEAD_BYTES = 256
"""About what a change costs in addition to its bodies."""


class _Entry(NamedTuple):
    change: Change
    at: float
    cost_bytes: int


class History:
    """Changes in order of revision, complete above the floor."""

    __slots__ = ("_entries", "_limits", "_resource", "_size_bytes", "floor")

    def __init__(self, resource: str, limits: HistoryLimits, *, floor: int) -> None:
        self._resource = resource
        self._limits = limits
        self._entries: deque[_Entry] = deque()
        self._size_bytes = 0
        self.floor = floor

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, change: Change, *, now: float) -> None:
        """Add a change and drop the oldest ones that exceed a limit."""
        entry = _Entry(change, now, cost_bytes(change))
        self._entries.append(entry)
        self._size_bytes += entry.cost_bytes
        self.trim(now)

    def trim(self, now: float) -> None:
        """Drop the oldest changes until count, size and age are within their limits."""
        oldest = now - self._limits.age.total_seconds()
        while self._entries and (
            len(self._entries) > self._limits.count
            or self._size_bytes > self._limits.size_bytes
            or self._entries[0].at < oldest
        ):
            self._drop_oldest()

    def clear(self) -> None:
        """Drop everything."""
        while self._entries:
            self._drop_oldest()

    def since(self, rv: int) -> list[Change]:
        """Return every change after a revision, or raise Compacted if some of them were dropped."""
        if rv < self.floor:
            raise Compacted(self._resource, requested=rv, oldest=self.floor)
        # Watches that resume are nearly up to date, so the walk from the new end is short.
        newer: list[Change] = []
        for entry in reversed(self._entries):
            if entry.change.rv <= rv:
                break
            newer.append(entry.change)
        newer.reverse()
        return newer

    def _drop_oldest(self) -> None:
        entry = self._entries.popleft()
        self._size_bytes -= entry.cost_bytes
        # A watch from exactly this revision has seen the dropped change, so it can still resume.
        self.floor = entry.change.rv


def cost_bytes(change: Change) -> int:
    """Return how much memory a change uses at most: its body, its watch line and the state before it."""
    before = len(change.previous.body) if change.previous else 0
    return 2 * len(change.record.body) + before + OVERHEAD_BYTES
