"""The work queue: which key is due, in which order, and never the same key twice at once.

The rules are those of client-go: a key that waits is not added twice, a key that is added while it is being processed
waits again when that ends, delayed adds keep the earliest time, and each key has its own backoff.
The queue knows nothing of objects or errors.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from datetime import timedelta
from enum import IntEnum
from typing import Generic, TypeVar

from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.runtime.keys import Key
from bramley.runtime.metrics import RuntimeMetrics

T = TypeVar("T", bound=Hashable)

# One take in this many goes to the lowest priority that waits, so that a flood of changes cannot starve it.
_FAIRNESS = 16
# Timers may fire slightly early; what is due within this many seconds counts as due.
_TIMER_SLACK_SECONDS = 0.001


class Priority(IntEnum):
    """The order of keys: deletions, then changes, then periodic resyncs."""

    DELETION = 0
    CHANGE = 1
    RESYNC = 2


class ShutDown(Exception):
    """The queue hands out no more keys."""


class QueueMetrics:
    """The metrics of one queue, looked up once."""

    def __init__(self, metrics: RuntimeMetrics, name: str) -> None:
        self.adds = metrics.queue_adds.of(name)
        self.latency = metrics.queue_latency.of(name)
        self.retries = metrics.queue_retries.of(name)
        self.depth = metrics.queue_depth.of(name)
        self.longest_running = metrics.longest_running.of(name)


class DelayedKeys(Generic[T]):
    """Calls `on_due` with each key at its time: one timer for all keys, and only the earliest time of each key."""

    def __init__(self, clock: Clock, on_due: Callable[[T], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._times: dict[T, float] = {}
        self._heap: list[tuple[float, int, T]] = []
        # Breaks ties between equal times, since keys need not be comparable.
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, key: T, when: float) -> None:
        """Set the key's time, unless an earlier one is set already."""
        current = self._times.get(key)
        if current is not None and current <= when:
            return
        self._times[key] = when
        heapq.heappush(self._heap, (when, next(self._order), key))
        if self._heap[0][2] == key:
            self._arm()

    def clear(self) -> None:
        """Drop all keys."""
        self._times.clear()
        self._heap.clear()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            wait = max(0.0, self._heap[0][0] - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._fire)

    def _fire(self) -> None:
        self._timer = None
        horizon = self._clock.monotonic() + _TIMER_SLACK_SECONDS
        while self._heap and self._heap[0][0] <= horizon:
            when, _, key = heapq.heappop(self._heap)
            # A heap entry is outdated when its key got an earlier time afterwards.
            if self._times.get(key) == when:
                del self._times[key]
                self._on_due(key)
        self._arm()


class WorkQueue(Generic[T]):
    """Keys to process, each at most once at a time."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        metrics: QueueMetrics,
        backoff: Backoff | None = None,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._backoff = backoff or Backoff()
        # One mapping per priority, from each waiting key to the time it was added.
        self._ready: list[OrderedDict[T, float]] = [OrderedDict() for _ in Priority]
        self._priorities: dict[T, Priority] = {}
        self._dirty: dict[T, tuple[Priority, float]] = {}
        self._processing: dict[T, float] = {}
        self._failures: dict[T, int] = {}
        self._delayed = DelayedKeys[T](clock, self.add)
        self._getters: deque[asyncio.Future[None]] = deque()
        self._takes = 0
        self._closed = False
        metrics.depth.set_function(self.__len__)
        metrics.longest_running.set_function(self._longest_running)

    def __len__(self) -> int:
        return len(self._priorities) + len(self._dirty)

    def add(self, key: T, priority: Priority = Priority.CHANGE) -> None:
        """Queue the key; it is processed once, however often it is added before a worker takes it."""
        if self._closed:
            return
        if key in self._processing:
            self._mark_dirty(key, priority)
            return
        current = self._priorities.get(key)
        if current is None:
            self._push(key, priority, self._clock.monotonic())
        elif priority < current:
            # Keeps the time of the first add, from which the latency is measured.
            self._ready[priority][key] = self._ready[current].pop(key)
            self._priorities[key] = priority

    def add_after(self, key: T, delay: timedelta) -> None:
        """Queue the key after a delay, or earlier if an earlier time is already set."""
        if delay <= timedelta():
            self.add(key)
        elif not self._closed:
            self._delayed.add(key, self._clock.monotonic() + delay.total_seconds())

    def add_rate_limited(self, key: T) -> timedelta:
        """Queue the key after its own backoff, which grows until `forget`; return the delay."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._backoff.delay(failures, self._rng)
        self._metrics.retries.inc()
        self.add_after(key, delay)
        return delay

    def forget(self, key: T) -> None:
        """Reset the key's backoff; it stays queued or in process as it is."""
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
            # Then tried again: a worker that did not wait may have taken the key first.
            await self._wait_for_key()
        raise ShutDown

    def take(self) -> T | None:
        """Return the next key as `get` does, or None if none waits; a worker that finds one need not enter the event loop."""
        if self._closed or not self._priorities:
            return None
        key, since = self._next_ready().popitem(last=False)
        del self._priorities[key]
        self._processing[key] = now = self._clock.monotonic()
        self._metrics.latency.observe(now - since)
        return key

    def done(self, key: T) -> float:
        """Finish the key and return when it was taken; if it was added meanwhile, it waits again."""
        started_at = self._processing.pop(key)
        if self._dirty:
            self._push_dirty(key)
        return started_at

    def shut_down(self) -> None:
        """Accept and hand out no more keys; those in process may finish."""
        self._closed = True
        self._delayed.clear()
        while self._getters:
            self._wake_one()

    def _push(self, key: T, priority: Priority, since: float) -> None:
        self._priorities[key] = priority
        self._ready[priority][key] = since
        self._metrics.adds.inc()
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
        current = self._dirty.get(key)
        if current is None:
            self._dirty[key] = (priority, self._clock.monotonic())
        elif priority < current[0]:
            self._dirty[key] = (priority, current[1])

    async def _wait_for_key(self) -> None:
        getter = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        try:
            await getter
        except asyncio.CancelledError:
            if not getter.cancelled():
                # The wake-up reached a worker that was cancelled at the same time: pass it on, or a waiting key is not processed.
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


Enqueue = Callable[[Key, Priority], None]


class Trigger:
    """Enqueues keys from sources outside the API, such as the end of a process.

    It may be used before a controller is connected; those keys are kept until one is.
    """

    def __init__(self) -> None:
        self._queues: list[Enqueue] = []
        self._pending: dict[Key, None] = {}

    def enqueue(self, key: Key) -> None:
        """Enqueue the key in every connected controller."""
        if not self._queues:
            self._pending[key] = None
        for add in self._queues:
            add(key, Priority.CHANGE)

    def connect(self, add: Enqueue) -> None:
        """Add every key to this queue from now on, and the pending ones at once."""
        self._queues.append(add)
        pending, self._pending = self._pending, {}
        for key in pending:
            add(key, Priority.CHANGE)
