"""The work queue: which key is due, in which order, and never the same key twice at once.

The rules are those of client-go: a key that waits is not added twice, a key that is added while it is being processed
waits again when that ends, delayed adds keep the earliest time, and retries of one key back off on their own.
The queue knows nothing of objects or errors.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict, deque
from collections.abc import Hashable
from datetime import timedelta
from enum import IntEnum
from typing import Generic, TypeVar

from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.runtime.delays import Delays
from bramley.runtime.metrics import RuntimeMetrics

T = TypeVar("T", bound=Hashable)

# One take in this many goes to the lowest priority that waits, so that a flood of changes cannot starve it.
_FAIRNESS = 16


class Priority(IntEnum):
    """Who goes first: deletions, then changes that somebody made, then what is only looked at again."""

    DELETION = 0
    CHANGE = 1
    RESYNC = 2


class ShutDown(Exception):
    """The queue hands out no more keys."""


class QueueMeter:
    """The metrics of one queue, looked up once."""

    def __init__(self, metrics: RuntimeMetrics, name: str) -> None:
        self.adds = metrics.queue_adds.of(name)
        self.latency = metrics.queue_latency.of(name)
        self.retries = metrics.queue_retries.of(name)
        self.depth = metrics.queue_depth.of(name)
        self.longest_running = metrics.longest_running.of(name)


class WorkQueue(Generic[T]):
    """Keys to process, each at most once at a time."""

    def __init__(
        self, *, clock: Clock, rng: random.Random, meter: QueueMeter, backoff: Backoff | None = None
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._meter = meter
        self._backoff = backoff or Backoff()
        # By priority; for each key, since when it waits.
        self._ready: list[OrderedDict[T, float]] = [OrderedDict() for _ in Priority]
        self._waits_as: dict[T, Priority] = {}
        self._dirty: dict[T, tuple[Priority, float]] = {}
        self._processing: dict[T, float] = {}
        self._failures: dict[T, int] = {}
        self._delays = Delays[T](clock, self.add)
        self._getters: deque[asyncio.Future[None]] = deque()
        self._takes = 0
        self._closed = False
        meter.depth.set_function(self.__len__)
        meter.longest_running.set_function(self._longest_running)

    def __len__(self) -> int:
        return len(self._waits_as) + len(self._dirty)

    def add(self, key: T, priority: Priority = Priority.CHANGE) -> None:
        """Have the key processed; once, however often it is added before a worker takes it."""
        if self._closed:
            return
        if key in self._processing:
            self._mark_dirty(key, priority)
            return
        waits_as = self._waits_as.get(key)
        if waits_as is None:
            self._push(key, priority, self._clock.monotonic())
        elif priority < waits_as:
            self._ready[priority][key] = self._ready[waits_as].pop(key)
            self._waits_as[key] = priority

    def add_after(self, key: T, delay: timedelta) -> None:
        """Have the key processed after a delay, or earlier if an earlier time is already set."""
        if delay <= timedelta():
            self.add(key)
        elif not self._closed:
            self._delays.add(key, self._clock.monotonic() + delay.total_seconds())

    def add_rate_limited(self, key: T) -> timedelta:
        """Have the key processed after its own backoff, which grows until `forget`; return the delay."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._backoff.delay(failures, self._rng)
        self._meter.retries.inc()
        self.add_after(key, delay)
        return delay

    def forget(self, key: T) -> None:
        """End the key's backoff; what waits or runs stays as it is."""
        self._failures.pop(key, None)

    def failures(self, key: T) -> int:
        """Return how often the key failed since it was last forgotten."""
        return self._failures.get(key, 0)

    async def get(self) -> T:
        """Wait for the next key and take it; `done` must follow. Raise ShutDown when there will be none."""
        while not self._closed:
            key = self.take()
            if key is not None:
                return key
            await self._wait_for_a_key()
        raise ShutDown

    def take(self) -> T | None:
        """Take the next key as `get` does, or nothing if none waits; a worker that finds one need not ask the loop."""
        if self._closed or not self._waits_as:
            return None
        key, since = self._next_ready().popitem(last=False)
        del self._waits_as[key]
        self._processing[key] = now = self._clock.monotonic()
        self._meter.latency.observe(now - since)
        return key

    def done(self, key: T) -> float:
        """Give the key back and return when it was taken; if it was added meanwhile, it waits again."""
        taken = self._processing.pop(key)
        if self._dirty:
            self._push_dirty(key)
        return taken

    def shut_down(self) -> None:
        """Hand out no more keys and take no more; the keys in process may end."""
        self._closed = True
        self._delays.clear()
        while self._getters:
            self._wake_one()

    def _push(self, key: T, priority: Priority, since: float) -> None:
        self._waits_as[key] = priority
        self._ready[priority][key] = since
        self._meter.adds.inc()
        if self._getters:
            self._wake_one()

    def _push_dirty(self, key: T) -> None:
        dirty = self._dirty.pop(key, None)
        if dirty is not None and not self._closed:
            self._push(key, *dirty)

    def _next_ready(self) -> OrderedDict[T, float]:
        self._takes += 1
        for keys in self._ready if self._takes % _FAIRNESS else reversed(self._ready):
            if keys:
                return keys
        raise RuntimeError("no key waits")

    def _mark_dirty(self, key: T, priority: Priority) -> None:
        known = self._dirty.get(key)
        if known is None:
            self._dirty[key] = (priority, self._clock.monotonic())
        elif priority < known[0]:
            self._dirty[key] = (priority, known[1])

    async def _wait_for_a_key(self) -> None:
        getter = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        try:
            await getter
        except asyncio.CancelledError:
            if not getter.cancelled():
                # The wake-up reached a worker that was cancelled at the same moment: it is another one's.
                self._wake_one()
            elif getter in self._getters:
                self._getters.remove(getter)
            raise

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _longest_running(self) -> float:
        if not self._processing:
            return 0.0
        return self._clock.monotonic() - min(self._processing.values())
