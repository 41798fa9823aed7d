"""Asks the guests of running VMs how they are, and believes a silence only when it lasts and nothing else explains it.

The same question serves for the disks, so a guest that answers costs nothing more. What was believed goes to `Ears`; nothing
is done about a guest that is silent: it may be starved and still at its job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import Protocol

from bramley.agent.node import guest_disks
from bramley.agent.node.guest_disks import Guests
from bramley.base import errors, log

logger = log.get(__name__)

# With the minute between two looks, and two questions that miss their limit, this tells a dead guest within 90 s.
DOUBT = timedelta(seconds=3)


class Ears(Protocol):
    """Remembers which guests answer; `pods.hearing.Hearing` does."""

    def doubts(self, vms: Iterable[str]) -> Collection[str]:
        """Return those whose silence would be news: they have answered before, and nobody was told otherwise."""
        ...

    def hear(self, *, answered: Iterable[str] = (), silent: Iterable[str] = ()) -> None:
        """Take what is certain."""
        ...


class Listening:
    """Asks all guests in each look; `ensure_well` raises what ails tart or the host, which would explain any silence."""

    def __init__(
        self,
        guests: Guests,
        ears: Ears,
        *,
        running: Callable[[], Iterable[str]],
        ensure_well: Callable[[], Awaitable[None]],
    ) -> None:
        self._guests = guests
        self._ears = ears
        self._running = running
        self._ensure_well = ensure_well

    async def look(self) -> Mapping[str, float]:
        """Return how full the disks of the guests are that answer."""
        first = await guest_disks.ask(self._guests, self._running())
        self._ears.hear(answered=first.heard)
        doubted = set(self._ears.doubts(first.silent))
        if not doubted or not await self._is_well():
            return first.disks
        await asyncio.sleep(DOUBT.total_seconds())
        # Who has ended meanwhile need not answer.
        again = await guest_disks.ask(self._guests, doubted.intersection(self._running()))
        self._ears.hear(answered=again.heard)
        if again.silent and await self._is_well():
            self._ears.hear(silent=again.silent)
        return {**first.disks, **again.disks}

    async def _is_well(self) -> bool:
        try:
            await self._ensure_well()
        except errors.BramleyError as error:
            logger.info("Silence of guests means nothing now", error=str(error))
            return False
        return True
