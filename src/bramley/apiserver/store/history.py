"""The recent changes of one resource, from which watches resume and lists of the past are rebuilt.

It is kept in memory only: after a restart it is empty and its floor is the resource's last stored revision, so whoever is
further behind is told to list again instead of missing a change.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from bramley.apiserver.store.errors import Compacted
from bramley.apiserver.store.records import Change
from bramley.apiserver.store.settings import HistoryLimits

OVERHEAD_BYTES = 256
"""About what a change costs besides its texts."""


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
        """Remember a change and forget what no longer fits."""
        entry = _Entry(change, now, cost_bytes(change))
        self._entries.append(entry)
        self._size_bytes += entry.cost_bytes
        self.trim(now)

    def trim(self, now: float) -> None:
        """Forget the oldest changes until count, size and age are within their limits."""
        oldest = now - self._limits.age.total_seconds()
        while self._entries and (
            len(self._entries) > self._limits.count
            or self._size_bytes > self._limits.size_bytes
            or self._entries[0].at < oldest
        ):
            self._forget_oldest()

    def clear(self) -> None:
        """Forget everything."""
        while self._entries:
            self._forget_oldest()

    def since(self, rv: int) -> list[Change]:
        """Return every change after a revision, or raise Compacted if some of them are forgotten."""
        if rv < self.floor:
            raise Compacted(self._resource, asked=rv, oldest=self.floor)
        # Whoever resumes is nearly up to date, so the walk from the new end is short.
        newer: list[Change] = []
        for entry in reversed(self._entries):
            if entry.change.rv <= rv:
                break
            newer.append(entry.change)
        newer.reverse()
        return newer

    def _forget_oldest(self) -> None:
        entry = self._entries.popleft()
        self._size_bytes -= entry.cost_bytes
        self.floor = entry.change.rv


def cost_bytes(change: Change) -> int:
    """Return what a change holds in memory at most: its body, its watch line and the state before it."""
    before = len(change.previous.body) if change.previous else 0
    return 2 * len(change.record.body) + before + OVERHEAD_BYTES
