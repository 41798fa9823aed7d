"""Fetches what dispatch reports about pools that roll, in the background: a server that is away delays no pool."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NoReturn

from bramley.api.runner_pool import RunnerPool
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.runners.dispatch_client import Signals
from bramley.runners.judgement import JobCounts, RollSignals
from bramley.runtime.cache import Cache
from bramley.runtime.keys import Key
from bramley.runtime.queue import Trigger

logger = log.get(__name__)

_PERIOD = timedelta(seconds=5)
# After this long without an answer, signals count as missing, and missing ones are ignored.
_MAX_AGE = timedelta(minutes=2)
# How far back the jobs of the last good image count.
_HISTORY = timedelta(days=1)
_PHASES = frozenset({"Canary", "Rolling", "Paused"})
_AWAITED = RollSignals(is_awaited=True)
_NEVER = (float("-inf"), None)


@dataclass(slots=True, eq=False)
class RollSignalsPoller:
    """Keeps the last answer for each pool that rolls, and enqueues the pool when there is a new one."""

    signals: Signals
    pools: Cache[RunnerPool]
    clock: Clock
    trigger: Trigger = field(default_factory=Trigger)
    # When dispatch last answered, and what; pools for which no request has ended yet are absent.
    _answers: dict[str, tuple[float, RollSignals | None]] = field(default_factory=dict)

    def find(self, pool: str) -> RollSignals | None:
        """Return the last answer for a pool, unless it is too old; awaited signals until the first request has ended."""
        if pool not in self._answers:
            return _AWAITED
        answered_at, answer = self._answers[pool]
        is_recent = self.clock.monotonic() - answered_at <= _MAX_AGE.total_seconds()
        return answer if is_recent else None

    async def run(self) -> NoReturn:
        """Fetch signals until cancelled."""
        while True:
            rolling = [pool for pool in self.pools.all() if _needs_signals(pool)]
            for name in self._answers.keys() - {pool.name for pool in rolling}:
                del self._answers[name]
            async with asyncio.TaskGroup() as group:
                for pool in rolling:
                    group.create_task(self._fetch(pool))
            await asyncio.sleep(_PERIOD.total_seconds())

    async def _fetch(self, pool: RunnerPool) -> None:
        before = self.find(pool.name)
        answer = await self._request(pool)
        if answer is not None:
            self._answers[pool.name] = (self.clock.monotonic(), answer)
        else:
            self._answers.setdefault(pool.name, _NEVER)
        if self.find(pool.name) != before:
            self.trigger.enqueue(Key(pool.namespace or "", pool.name))

    async def _request(self, pool: RunnerPool) -> RollSignals | None:
        since = (pool.status.roll_started_at or self.clock.now()) - _HISTORY
        try:
            answer = await self.signals.roll_signals(pool.name, since)
        except errors.BramleyError as error:
            logger.warning("Fetching roll signals failed", pool=pool.name, error=str(error))
            return None
        if answer is None:
            return None
        return RollSignals(
            first_polls={name: pod.first_poll_at for name, pod in answer.pods.items()},
            jobs={
                image: JobCounts(each.finished, each.failed)
                for image, each in answer.images.items()
            },
        )


def _needs_signals(pool: RunnerPool) -> bool:
    # Also while the canaries of a rejected image are drained: one that has never polled will not leave by itself.
    return pool.status.roll_phase in _PHASES or bool(pool.status.draining)
