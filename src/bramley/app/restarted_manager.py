"""A manager beside the API in one process: after a bug that ends it, a new one is started, as a supervisor would restart its process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.runtime.manager import Manager

logger = log.get(__name__)

_RESTART = Backoff(timedelta(seconds=1), timedelta(minutes=1))


@dataclass(slots=True)
class RestartedManager:
    """The managers that `opened` makes, one after another; `run` until `stop`."""

    # For the log.
    name: str
    opened: Callable[[], AbstractAsyncContextManager[Manager]]
    rng: random.Random
    # Set once the first one begins.
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _manager: Manager | None = None

    def stop(self) -> None:
        """Begin to stop."""
        self._stopping.set()
        if self._manager is not None:
            self._manager.stop()

    async def run(self) -> None:
        """Run until stopped; restart after a bug."""
        failures = 0
        while not self._stopping.is_set():
            with errors.Captured() as captured:
                await self._run()
            if captured.error is not None and not self._stopping.is_set():
                failures += 1
                pause = _RESTART.delay(failures, self.rng)
                logger.error(
                    "Controllers failed; restarting them",
                    controllers=self.name,
                    exc=captured.error,
                    retry_after=pause,
                )
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause.total_seconds()):
                        await self._stopping.wait()

    async def _run(self) -> None:
        async with self.opened() as manager:
            self._manager = manager
            # `stop` may have been called before there was a manager to stop.
            if not self._stopping.is_set():
                self.ready.set()
                await manager.run()
