"""For how long a command may take: to its end, or, where a file is brought, without a block of it being taken.

How long a large file takes depends on how many hosts share the line; that it stands still does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from bramley.base import errors

Renew = Callable[[], None]


@asynccontextmanager
async def to_its_end(within: timedelta, told: str) -> AsyncIterator[Renew]:
    """Raise TimedOut unless the block ends in time; nothing gives it more."""
    async with _deadline(within, f"{told}: no end"):
        yield lambda: None


@asynccontextmanager
async def of_standstill(within: timedelta, told: str) -> AsyncIterator[Renew]:
    """Raise TimedOut unless the block ends in time after it was last renewed by what is given out."""
    async with _deadline(within, f"{told}: nothing was taken") as deadline:
        loop = asyncio.get_running_loop()

        def renew() -> None:
            # A block may still be taken while the end is on its way to whoever waits.
            if not deadline.expired():
                deadline.reschedule(loop.time() + within.total_seconds())

        yield renew


@asynccontextmanager
async def _deadline(within: timedelta, told: str) -> AsyncIterator[asyncio.Timeout]:
    seconds = within.total_seconds()
    try:
        async with asyncio.timeout(seconds) as deadline:
            yield deadline
    except TimeoutError as error:
        raise errors.TimedOut(f"{told} within {seconds:g} s; it was stopped") from error
