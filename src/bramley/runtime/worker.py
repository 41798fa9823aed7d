"""The workers of one controller: take a key, make a pass, judge how it ended, and act on that.

Here any error of a reconciler is caught, judged by `verdict`, counted and logged; no reconcile can end the process, and a
reconcile that overruns its deadline is cut off.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Generic

from bramley.api.meta import K
from bramley.base import log
from bramley.base.backoff import Backoff
from bramley.runtime.controller import Controller
from bramley.runtime.deadline import Deadline, Seat
from bramley.runtime.fresh import Desk
from bramley.runtime.informer import Informer
from bramley.runtime.keys import Key
from bramley.runtime.queue import Priority, QueueMeter, ShutDown, WorkQueue
from bramley.runtime.reconciling import Reconciling, Surroundings
from bramley.runtime.verdict import SETTLED, Then, Verdict, judge

logger = log.get(__name__)

# Reconciles that never wait for anything must not keep the loop to themselves for longer than this.
_TURN_SECONDS = 0.005
# The first conflict is retried at once; a fight over an object is not fought at full speed.
_FIGHT = Backoff(timedelta(milliseconds=20), timedelta(seconds=10))


class Told:
    """Something that a log line shows as it is when the line is written."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[], object]) -> None:
        self._tell = tell

    def __str__(self) -> str:
        return str(self._tell())


class Place:
    """Which key a worker is at; bound to its logs once, since binding anew for each key costs more than a key does."""

    __slots__ = ("key", "number", "object", "reconcile")

    def __init__(self) -> None:
        self.key = Key("", "")
        self.number = 0
        self.object = Told(lambda: self.key)
        self.reconcile = Told(lambda: self.number)


class Workers(Generic[K]):
    """Runs one controller: N workers on one queue."""

    def __init__(
        self, controller: Controller[K], informer: Informer[K], around: Surroundings
    ) -> None:
        self.name = controller.name
        self._settings = controller.settings
        self._cache = informer.cache
        self._clock = around.clock
        self._rng = around.rng
        self._outcomes = around.metrics.outcomes
        self._settled = self._outcomes.of(self.name, SETTLED.outcome, SETTLED.reason)
        self._duration = around.metrics.work_duration.of(self.name)
        self._freshness = around.freshness
        self._deadline = Deadline(controller.settings.deadline)
        self._pass = Reconciling(controller, informer, around)
        self._conflicts: dict[Key, int] = {}
        self._ids = itertools.count(1)
        self.queue = WorkQueue[Key](
            clock=around.clock,
            rng=around.rng,
            meter=QueueMeter(around.metrics, self.name),
            backoff=controller.settings.backoff,
        )

    async def run(self) -> None:
        """Work until `stop`, then return when the last reconcile has ended."""
        async with asyncio.TaskGroup() as group:
            resync = group.create_task(self._resync())
            workers = [group.create_task(self._work()) for _ in range(self._settings.workers)]
            await asyncio.wait(workers)
            resync.cancel()

    def stop(self) -> None:
        """Take no more keys; what runs may end."""
        self.queue.shut_down()

    def wake_all(self) -> None:
        """Have every object looked at again, after everything that is more urgent."""
        for key in self._cache:
            self.queue.add(key, Priority.RESYNC)

    async def _work(self) -> None:
        place = Place()
        with (
            self._freshness.at_desk() as desk,
            self._deadline.seat() as seat,
            log.bound(controller=self.name, object=place.object, reconcile=place.reconcile),
        ):
            turn = self._clock.monotonic()
            while True:
                try:
                    place.key = self.queue.take() or await self.queue.get()
                except ShutDown:
                    return
                now = await self._serve(place, desk, seat)
                if now - turn > _TURN_SECONDS:
                    await asyncio.sleep(0)
                    turn = self._clock.monotonic()

    async def _serve(self, place: Place, desk: Desk, seat: Seat) -> float:
        """Make a pass over the key, act on how it ended, and return when that was."""
        key = place.key
        place.number = next(self._ids)
        try:
            verdict = judge(await seat.of(self._pass.once(key, desk)))
        except Exception as error:  # noqa: BLE001 - the one place where a reconciler's error ends
            self._act(key, judge(error), error)
        else:
            self._act(key, verdict)
        finally:
            taken = self.queue.done(key)
        ended = self._clock.monotonic()
        self._duration.observe(ended - taken)
        return ended

    def _act(self, key: Key, verdict: Verdict, error: Exception | None = None) -> None:
        # Nearly all passes end like this, so it is not looked up how.
        if verdict is SETTLED:
            self._settled.inc()
            self._conflicts.pop(key, None)
            self.queue.forget(key)
            return
        self._outcomes.of(self.name, verdict.outcome, verdict.reason).inc()
        if verdict.why or verdict.is_bug:
            self._tell(verdict, error)
        self._queue_again(key, verdict)

    def _queue_again(self, key: Key, verdict: Verdict) -> None:
        if verdict.then is Then.AT_ONCE:
            self._retry_conflict(key)
            return
        self._conflicts.pop(key, None)
        if verdict.then is Then.BACK_OFF:
            self.queue.add_rate_limited(key)
            return
        self.queue.forget(key)
        if verdict.then is Then.AFTER:
            self.queue.add_after(key, verdict.after)

    def _retry_conflict(self, key: Key) -> None:
        before = self._conflicts.get(key, 0)
        self._conflicts[key] = before + 1
        self._pass.doubt(key)
        self.queue.add_after(key, _FIGHT.delay(before, self._rng) if before else timedelta())

    def _tell(self, verdict: Verdict, error: Exception | None) -> None:
        if verdict.is_bug:
            logger.error("Reconcile has a bug", exc=error, reason=verdict.reason)
        elif verdict.outcome in {"unavailable", "refused", "failed"}:
            logger.warning("Reconcile failed", reason=verdict.reason, error=verdict.why)
        else:
            logger.debug("Reconcile waits", outcome=verdict.outcome, why=verdict.why)

    async def _resync(self) -> None:
        period = self._settings.resync.total_seconds()
        while True:
            await asyncio.sleep(period * (0.9 + 0.2 * self._rng.random()))
            self.wake_all()
