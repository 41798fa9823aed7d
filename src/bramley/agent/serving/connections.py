"""How many connections the agent's server holds, and for how long one may wait to send its request.

One look over all of them every second. When there are too many, those that wait longest for their request go first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bramley.base import log

if TYPE_CHECKING:
    from aiohttp import web

logger = log.get(__name__)

_LOOK_EVERY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many connections there may be, and how long each may be open without a request under way."""

    most: int = 128
    idle: timedelta = timedelta(seconds=15)


class Guard:
    """Closes connections that send too slowly, or are too many."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._busy: set[Hashable] = set()
        self._waits_since: dict[Any, float] = {}

    @contextlib.contextmanager
    def busy(self, connection: Hashable) -> Generator[None, None, None]:
        """Know that a request of this connection is under way."""
        self._busy.add(connection)
        try:
            yield
        finally:
            self._busy.discard(connection)
            self._waits_since.pop(connection, None)

    async def run(self, runner: web.AppRunner) -> None:
        """Look at the connections until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
            server = runner.server
            closed = self.look(list(server.connections) if server else [], loop.time())
            if closed:
                logger.warning("Closed connections", count=closed, reason="slow or too many")

    def look(self, there: list[Any], now: float) -> int:
        """Close what waits too long, then the longest waiting of what is too much; return how many."""
        waiting = [one for one in there if one not in self._busy]
        self._waits_since = {one: self._waits_since.get(one, now) for one in waiting}
        limit = self._bounds.idle.total_seconds()
        waiting.sort(key=self._waits_since.__getitem__)
        late = [one for one in waiting if now - self._waits_since[one] >= limit]
        surplus = max(0, len(there) - self._bounds.most)
        doomed = waiting[: max(len(late), surplus)]
        for one in doomed:
            del self._waits_since[one]
            one.force_close()
        return len(doomed)
