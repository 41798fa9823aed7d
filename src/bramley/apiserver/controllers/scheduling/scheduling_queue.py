"""`SchedulingQueue`: the Pods to schedule, by priority and then by age, some only after a backoff.

A Pod that was unschedulable is queued again only when a change may help it, and not before its backoff has passed. The queue
has no clock: callers pass the time.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from datetime import datetime, timedelta

from bramley.apiserver.controllers.scheduling.pod_info import PodInfo
from bramley.runtime.keys import Key

Rank = tuple[int, datetime, Key, int]


@dataclass(frozen=True, slots=True)
class _Entry:
    pod: PodInfo
    not_before: float
    # Distinguishes entries of one Pod that was added twice.
    number: int

    @property
    def rank(self) -> Rank:
        return -self.pod.priority, self.pod.created, self.pod.key, self.number


@dataclass(slots=True)
class _Attempts:
    """How often a Pod was unschedulable, and when last."""

    count: int
    last: float


class SchedulingQueue:
    """Pending Pods in order."""

    def __init__(self, *, backoff: timedelta, max_backoff: timedelta) -> None:
        self._backoff = backoff.total_seconds()
        self._max_backoff = max_backoff.total_seconds()
        # The heaps keep entries that were replaced or removed; only those that are also here count.
        self._entries: dict[Key, _Entry] = {}
        self._active: list[tuple[Rank, _Entry]] = []
        self._backing_off: list[tuple[float, int, _Entry]] = []
        self._numbers = itertools.count()
        self._attempts: dict[Key, _Attempts] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def add(self, pod: PodInfo, now: float) -> float:
        """Queue the Pod for when its backoff ends; return in how many seconds that is."""
        not_before = max(now, self._backoff_end(pod.key))
        queued = self._entries.get(pod.key)
        if queued is not None and queued.pod is pod and queued.not_before <= not_before:
            return max(0.0, queued.not_before - now)
        entry = self._entries[pod.key] = _Entry(pod, not_before, next(self._numbers))
        if not_before <= now:
            heapq.heappush(self._active, (entry.rank, entry))
        else:
            heapq.heappush(self._backing_off, (not_before, entry.number, entry))
        return not_before - now

    def pop(self, now: float) -> PodInfo | None:
        """Remove and return the next Pod that is due."""
        while self._backing_off and self._backing_off[0][0] <= now:
            _, _, entry = heapq.heappop(self._backing_off)
            if self._entries.get(entry.pod.key) is entry:
                heapq.heappush(self._active, (entry.rank, entry))
        while self._active:
            _, entry = heapq.heappop(self._active)
            if self._entries.get(entry.pod.key) is entry:
                del self._entries[entry.pod.key]
                return entry.pod
        return None

    def seconds_until_due(self, key: Key, now: float) -> float | None:
        """Return in how many seconds the Pod is due, or None if it is not queued."""
        entry = self._entries.get(key)
        return None if entry is None else max(0.0, entry.not_before - now)

    def record_attempt(self, key: Key, now: float) -> None:
        """Record that the Pod was unschedulable."""
        before = self._attempts.get(key)
        self._attempts[key] = _Attempts(before.count + 1 if before else 1, now)

    def last_attempt(self, key: Key) -> float | None:
        """Return when the Pod was last unschedulable."""
        attempts = self._attempts.get(key)
        return None if attempts is None else attempts.last

    def remove(self, key: Key) -> None:
        """Remove the Pod and forget its attempts."""
        self._entries.pop(key, None)
        self._attempts.pop(key, None)

    def _backoff_end(self, key: Key) -> float:
        attempts = self._attempts.get(key)
        if attempts is None:
            return 0.0
        # The exponent is capped: a Pod may be pending for weeks.
        growth = 2.0 ** min(attempts.count - 1, 30)
        return attempts.last + min(self._backoff * growth, self._max_backoff)
