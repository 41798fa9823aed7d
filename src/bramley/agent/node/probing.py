"""Probes in the background: each looks at one thing in its own time and leaves its answer behind for whoever asks.

A look has a deadline, so a hung program ends as an answer too. One failure after a good answer is doubted and looked at again
soon; the second in a row is believed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from bramley.base import errors, log

logger = log.get(__name__)

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Timings:
    """How often one looks, how soon again after a failure, and how long a look may take."""

    every: timedelta = timedelta(seconds=30)
    doubt: timedelta = timedelta(seconds=5)
    limit: timedelta = timedelta(minutes=2)


class Probe(Generic[A]):
    """Looks at one thing again and again."""

    def __init__(
        self,
        name: str,
        look: Callable[[], Awaitable[A]],
        *,
        changed: Callable[[], None],
        timings: Timings | None = None,
    ) -> None:
        # The last good answer, and what is wrong now: None before the first look, empty when all is well.
        self.answer: A | None = None
        self.trouble: str | None = None
        self._name = name
        self._look = look
        self._changed = changed
        self._timings = timings or Timings()
        self._failures = 0

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            began = asyncio.get_running_loop().time()
            await self.once()
            took = asyncio.get_running_loop().time() - began
            await asyncio.sleep(self._pause(took))

    async def once(self) -> None:
        """Look now."""
        before = (self.answer, self.trouble)
        try:
            async with asyncio.timeout(self._timings.limit.total_seconds()):
                self.answer = await self._look()
        except (errors.BramleyError, OSError, TimeoutError) as error:
            self._failed(str(error) or "it does not answer")
        else:
            self._failures = 0
            self.trouble = ""
        if (self.answer, self.trouble) != before:
            self._changed()

    def _pause(self, took: float) -> float:
        """Return the seconds until the next look; one that took long does not make the next one late."""
        doubt = self._timings.doubt.total_seconds()
        return doubt if self._failures else max(self._timings.every.total_seconds() - took, doubt)

    def _failed(self, told: str) -> None:
        self._failures += 1
        logger.warning("Probe failed", probe=self._name, failures=self._failures, error=told)
        if self.trouble != "" or self._failures > 1:
            self.trouble = told
