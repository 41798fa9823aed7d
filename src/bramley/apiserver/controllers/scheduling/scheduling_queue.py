"""Who waits for a Node, and who is next: the most important Pod, of those alike the oldest; some only after a while.

A Pod that was tried in vain is not in the line until something changed that may help it, and then not sooner than its
backoff allows. No time of its own: whoever asks says what time it is.
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
    # Makes heaps tell apart what was added twice.
    number: int

    @property
    def rank(self) -> Rank:
        return -self.pod.priority, self.pod.created, self.pod.key, self.number


@dataclass(slots=True)
class _Tried:
    """How often a Pod was tried in vain, and when last."""

    times: int
    at: float


class SchedulingQueue:
    """Pods that wait, in order."""

    def __init__(self, *, backoff: timedelta, most: timedelta) -> None:
        self._backoff = backoff.total_seconds()
        self._most = most.total_seconds()
        self._entries: dict[Key, _Entry] = {}
        self._due: list[tuple[Rank, _Entry]] = []
        self._later: list[tuple[float, int, _Entry]] = []
        self._numbers = itertools.count()
        self._tried: dict[Key, _Tried] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def add(self, pod: PodInfo, now: float) -> float:
        """Let the Pod wait, as soon as its backoff allows; return in how many seconds that is."""
        not_before = max(now, self._ready_at(pod.key))
        waits = self._entries.get(pod.key)
        if waits is not None and waits.pod is pod and waits.not_before <= not_before:
            return max(0.0, waits.not_before - now)
        entry = self._entries[pod.key] = _Entry(pod, not_before, next(self._numbers))
        if not_before <= now:
            heapq.heappush(self._due, (entry.rank, entry))
        else:
            heapq.heappush(self._later, (not_before, entry.number, entry))
        return not_before - now

    def next(self, now: float) -> PodInfo | None:
        """Take the Pod out that is next, if any is due."""
        while self._later and self._later[0][0] <= now:
            _, _, entry = heapq.heappop(self._later)
            if self._entries.get(entry.pod.key) is entry:
                heapq.heappush(self._due, (entry.rank, entry))
        while self._due:
            _, entry = heapq.heappop(self._due)
            if self._entries.get(entry.pod.key) is entry:
                del self._entries[entry.pod.key]
                return entry.pod
        return None

    def waits_for(self, key: Key, now: float) -> float | None:
        """Return in how many seconds the Pod is due, or None if it does not wait."""
        entry = self._entries.get(key)
        return None if entry is None else max(0.0, entry.not_before - now)

    def tried(self, key: Key, now: float) -> None:
        """Note that the Pod was tried in vain."""
        before = self._tried.get(key)
        self._tried[key] = _Tried(before.times + 1 if before else 1, now)

    def last_tried(self, key: Key) -> float | None:
        """Return when the Pod was last tried in vain."""
        tried = self._tried.get(key)
        return None if tried is None else tried.at

    def remove(self, key: Key) -> None:
        """Let the Pod wait no more, and forget how often it was tried."""
        self._entries.pop(key, None)
        self._tried.pop(key, None)

    def _ready_at(self, key: Key) -> float:
        tried = self._tried.get(key)
        if tried is None:
            return 0.0
        # The exponent is capped: a Pod may wait for weeks.
        growth = 2.0 ** min(tried.times - 1, 30)
        return tried.at + min(self._backoff * growth, self._most)
