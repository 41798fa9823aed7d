"""When a call may be made again, and when it may not.

A read changes nothing, so it is repeated with growing pauses until its deadline. A write is never repeated blindly: after a
timeout or a broken connection nobody knows whether it happened. The one exception is a 429 with Retry-After, by which the
server says that it did not look at the request.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from bramley.base import errors, log
from bramley.base.backoff import Backoff

T = TypeVar("T")

logger = log.get(__name__)

PASSING = (errors.ApiUnavailable, errors.TimedOut, errors.RateLimited)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call may take in all, how long one try of a read, and how to pause between tries."""

    deadline: timedelta = timedelta(seconds=30)
    attempt: timedelta = timedelta(seconds=10)
    backoff: Backoff = field(default_factory=lambda: Backoff(maximum=timedelta(seconds=5)))
    rng: random.Random = field(default_factory=random.Random)

    async def read(self, attempt: Callable[[timedelta], Awaitable[T]]) -> T:
        """Make an attempt with the time it has, again and again until one answers or time is up."""
        ends = _now() + self.deadline.total_seconds()
        failures = 0
        while True:
            try:
                return await attempt(min(self.attempt, _left(ends)))
            except PASSING as error:
                failures += 1
                pause = self._pause(error, failures)
                if _now() + pause.total_seconds() >= ends:
                    raise
                logger.debug("Trying again", after=pause, failures=failures, reason=error.reason)
            await asyncio.sleep(pause.total_seconds())

    async def write(
        self,
        attempt: Callable[[timedelta], Awaitable[T]],
        *,
        wait_asked_by: Callable[[T], timedelta | None],
    ) -> T:
        """Make an attempt; make another only if the answer says that this one was not looked at."""
        ends = _now() + self.deadline.total_seconds()
        while True:
            answer = await attempt(_left(ends))
            pause = wait_asked_by(answer)
            if pause is None or _now() + pause.total_seconds() >= ends:
                return answer
            logger.debug("Waiting as the server asked", after=pause)
            await asyncio.sleep(pause.total_seconds())

    def _pause(self, error: errors.BramleyError, failures: int) -> timedelta:
        growing = self.backoff.delay(failures, self.rng)
        return max(error.after, growing) if isinstance(error, errors.RateLimited) else growing


def _now() -> float:
    # The loop's time and not a clock's, because the pauses are the loop's too.
    return asyncio.get_running_loop().time()


def _left(ends: float) -> timedelta:
    return timedelta(seconds=max(ends - _now(), 0.0))
