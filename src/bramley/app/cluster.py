"""The cluster beside the embedded API: its controllers in one manager, on a client that needs no socket.

They start once the API serves, so that nobody waits for them, and end before the store closes. A bug that ends the manager
is told and the controllers start afresh, as a supervisor would start their process; the API goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from bramley.base import log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock

if TYPE_CHECKING:
    from bramley.apiserver.controllers.timings import Timings
    from bramley.app.embedded import Api
    from bramley.kube.client import Client
    from bramley.runtime.manager import Manager

logger = log.get(__name__)

# As it is called in any cluster, with the roles that a cluster gives to its controllers and no more.
USER = "system:kube-controller-manager"
GROUPS = ("system:authenticated",)
_RESTART = Backoff(timedelta(seconds=1), timedelta(minutes=1))


@dataclass(frozen=True, slots=True)
class Settings:
    """Whether the API has controllers beside it, and how long they may take to stop."""

    enabled: bool = True
    drain: timedelta = timedelta(seconds=5)
    timings: Timings | None = None


@dataclass(slots=True)
class Cluster:
    """The controllers of one API; `run` until `stop`."""

    api: Api
    clock: Clock
    chance: random.Random
    settings: Settings = field(default_factory=Settings)
    authority: str = ""
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: bool = False
    _manager: Manager | None = None

    def failing(self) -> str:
        """Say why the controllers do not work now; nothing when they do."""
        manager = self._manager
        return "" if manager is not None and manager.leading.is_set() else "not started yet"

    def stop(self) -> None:
        """Begin to stop."""
        self._stopping = True
        if self._manager is not None:
            self._manager.stop()

    async def run(self) -> None:
        """Work until stopped; start afresh after a bug."""
        from bramley.runtime.caught import Caught

        failures = 0
        try:
            while not self._stopping:
                with Caught() as caught:
                    await self._once()
                if caught.error is not None:
                    failures += 1
                    pause = _RESTART.delay(failures, self.chance)
                    logger.error("Controllers failed", exc=caught.error, again_after=pause)
                    await asyncio.sleep(pause.total_seconds())
        finally:
            self._manager = None
            self.stopped.set()

    async def _once(self) -> None:
        from bramley.kube.client import Client

        token = self.api.insiders.issue(USER, GROUPS)
        async with Client(self.api.transport(token), clock=self.clock) as client:
            self._manager = manager = self._build(client)
            if self._stopping:
                return
            async with asyncio.TaskGroup() as group:
                telling = group.create_task(self._tell(manager))
                await manager.run()
                telling.cancel()

    async def _tell(self, manager: Manager) -> None:
        await manager.leading.wait()
        logger.info("Controllers work")
        self.ready.set()

    def _build(self, client: Client) -> Manager:
        from prometheus_client import CollectorRegistry

        from bramley.apiserver.controllers import cluster, timings
        from bramley.runtime.manager import Manager, ManagerSettings

        # Of these controllers alone: after a bug they start afresh, and so do their counts.
        self.api.meters.controllers = registry = CollectorRegistry()
        manager = Manager(
            client,
            clock=self.clock,
            rng=self.chance,
            registry=registry,
            settings=ManagerSettings(drain=self.settings.drain, calm_collector=False),
        )
        chosen = self.settings.timings or timings.DEFAULT
        cluster.add_all(manager, client, clock=self.clock, timings=chosen, authority=self.authority)
        return manager


@asynccontextmanager
async def beside(cluster: Cluster) -> AsyncIterator[Cluster]:
    """Run the controllers while the context lasts, and wait until they work."""
    async with asyncio.TaskGroup() as group:
        group.create_task(cluster.run())
        try:
            await cluster.ready.wait()
            yield cluster
        finally:
            cluster.stop()
