"""How much the store keeps and buffers; every bound is a number here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """How far one resource's history reaches back: whichever of the three is passed first."""

    count: int
    size_bytes: int
    age: timedelta


@dataclass(frozen=True, slots=True)
class Settings:
    """The store's bounds."""

    history: HistoryLimits = HistoryLimits(10_000, 16 * MIB, timedelta(minutes=15))
    # Heartbeats and events are most of the writes of an idle fleet, and few watchers come back for old ones.
    brief_history: HistoryLimits = HistoryLimits(500, MIB, timedelta(minutes=5))
    brief: frozenset[str] = frozenset(
        {"events", "events.events.k8s.io", "leases.coordination.k8s.io"}
    )
    watch_buffer_bytes: int = 8 * MIB
    group_bytes: int = 8 * MIB
    checkpoint_pages: int = 4_000
    wal_limit_bytes: int = 32 * MIB
    # Off under virtual time, where a thread's timing would leak into the run: each write is then its own commit.
    writer_thread: bool = True

    def history_of(self, resource: str) -> HistoryLimits:
        """Return the limits of one resource's history."""
        return self.brief_history if resource in self.brief else self.history
