"""All that is kept of one resource: its committed objects, their recent history, and who watches them."""

from __future__ import annotations

from collections.abc import Sequence

from bramley.apiserver.store.history import History
from bramley.apiserver.store.records import Change, Changes, Records
from bramley.apiserver.store.subscriptions import Subscription, total_bytes
from bramley.apiserver.store.tables import Table


class Kind:
    """One resource's committed state, moved forward by whole commit groups."""

    __slots__ = ("_history", "latest", "table", "watchers")

    def __init__(self, table: Table, history: History) -> None:
        self.table = table
        self._history = history
        self.latest = history.floor
        # A dict for its order: under virtual time the same seed must wake the watchers in the same order.
        self.watchers: dict[Subscription, None] = {}

    def publish(self, changes: Sequence[Change], *, now: float) -> None:
        """Show one commit group's changes to readers and to later watchers."""
        for change in changes:
            self.table.apply(change)
            self._history.append(change, now=now)
        self.latest = changes[-1].rv

    def tell(self, changes: Sequence[Change]) -> None:
        """Put one commit group's changes before the present watchers."""
        size_bytes = total_bytes(changes)
        for watcher in self.watchers:
            watcher.offer(changes, size_bytes=size_bytes)

    def since(self, rv: int, *, now: float) -> Changes:
        """Return every change after a revision; raise Compacted if some of them are forgotten."""
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
        """Forget all history."""
        self._history.clear()
