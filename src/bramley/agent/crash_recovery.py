"""Restarts a component of the agent after an unexpected error, instead of ending the agent.

Components process what Pods, guests and annotations contain. If such input ended the agent, it would end each restarted agent
too, and the other Pods of this host would have none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from bramley.base import log
from bramley.base.errors import Captured

logger = log.get(__name__)

PAUSE = timedelta(seconds=10)


async def restart_on_crash(component: str, run: Callable[[], Awaitable[object]]) -> None:
    """Run a component until it returns or is cancelled."""
    while True:
        with Captured() as caught:
            await run()
        if caught.error is None:
            return
        logger.error(
            "Agent component crashed", exc=caught.error, component=component, retry_after=PAUSE
        )
        await asyncio.sleep(PAUSE.total_seconds())
