"""Parts of the agent that last: one that meets a bug of ours begins anew after a while and ends nothing but its own turn.

What a Pod, a guest or a person with an annotation writes reaches many parts. If it ended the agent there, it would end every
next one too, and nobody would look after the other Pods of this host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from bramley.base import log
from bramley.base.errors import Captured

logger = log.get(__name__)

PAUSE = timedelta(seconds=10)


async def restart_on_crash(part: str, run: Callable[[], Awaitable[object]]) -> None:
    """Run a part until it ends by itself or is cancelled."""
    while True:
        with Captured() as caught:
            await run()
        if caught.error is None:
            return
        logger.error("A part of the agent has a bug", exc=caught.error, part=part, again=PAUSE)
        await asyncio.sleep(PAUSE.total_seconds())
