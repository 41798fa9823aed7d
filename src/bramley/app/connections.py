"""Who may stay connected: those that send their request too slowly go, and when there are too many, all that wait to send one.

One look over all connections every second, and nothing per request. Who sends the head of a request byte by byte holds a
connection for the head's deadline and no longer; when the server is full, those who never asked anything go first, so
that somebody who floods it with open connections cannot keep others out.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from bramley.base import log

logger = log.get(__name__)

# Files besides connections: the database, logs, the scratch files of a backup.
_OTHER_FILES = 128
_LOOK_EVERY_SECONDS = 1.0


class ConnectionBounds:
    """Bounds the connections of one server."""

    def __init__(
        self, most: int = 20_000, head_deadline: timedelta = timedelta(seconds=20)
    ) -> None:
        self._most = most
        self._deadline = head_deadline.total_seconds()

    def raise_file_limit(self) -> None:
        """Let the process have as many connections as it may; on many systems the default is a few hundred."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = self._most + _OTHER_FILES
        if soft != resource.RLIM_INFINITY and soft < wanted:
            soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft != resource.RLIM_INFINITY:
            self._most = min(self._most, max(soft - _OTHER_FILES, _OTHER_FILES))

    async def guard(self, connections: Iterable[Any]) -> None:
        """Look at the connections for as long as the server runs."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
            closed = self.look(connections, loop.time())
            if closed:
                logger.warning("Closed connections", count=closed, reason="slow or too many")

    def look(self, connections: Iterable[Any], now: float) -> int:
        """Close what is overdue, then those that have awaited longest of what is too much; return how many."""
        there = list(connections)
        waiting = [one for one in there if one.awaited_since]
        overdue = [one for one in waiting if now - one.awaited_since > self._deadline]
        left = [one for one in waiting if now - one.awaited_since <= self._deadline]
        left.sort(key=lambda one: (one.has_asked, one.awaited_since))
        surplus = max(0, len(there) - len(overdue) - self._most)
        for one in (*overdue, *left[:surplus]):
            one.hang_up()
        return len(overdue) + len(left[:surplus])
