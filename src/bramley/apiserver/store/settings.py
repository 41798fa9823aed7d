"""The store's limits: how much it keeps and buffers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How far one resource's history reaches back; the first limit that is reached counts."""

    count: int
    size_bytes: int
    age: timedelta


@dataclass(frozen=True, slots=True)
class Settings:
    """The store's bounds."""

    history: HistoryLimits = HistoryLimits(10_000, 16 * MIB, timedelta(minutes=15))
    # Heartbeats and events are most of the writes of an idle fleet, and few watchers resume from old ones.
    short_history: HistoryLimits = HistoryLimits(500, MIB, timedelta(minutes=5))
    short_history_resources: frozenset[str] = frozenset(
        {"events", "events.events.k8s.io", "leases.coordination.k8s.io"}
    )
    watch_buffer_bytes: int = 8 * MIB
    group_bytes: int = 8 * MIB
    checkpoint_pages: int = 4_000
    wal_limit_bytes: int = 32 * MIB
    # Off under virtual time, where a thread would make runs differ; each write is then its own commit.
    writer_thread: bool = True

    def history_of(self, resource: str) -> HistoryLimits:
        """Return the limits of one resource's history."""
        return self.short_history if resource in self.short_history_resources else self.history
