"""Fetching one image, with patience: what tart gives up at once is tried again here, and one registry serves one pull at a time.

Tart itself locks a registry's folder for a pull, so a second one would only wait in it, with its deadline running. A pull for a
Pod does not wait behind one that is merely staged: that one is ended and begins anew later.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.agent.images.pull_watch import Stalled, Watch, Watched
from bramley.agent.metrics import CANCELLED, DONE, FAILED, AgentMetrics
from bramley.agent.tart.driver import Credentials, Tart
from bramley.agent.tart.failures import NoSpace, Throttled
from bramley.agent.tart.references import Reference
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock

logger = log.get(__name__)

Reclaim = Callable[[], Awaitable[bool]]
"""Makes room on the disk; tells whether anything was deleted."""


class Preempted(errors.Unavailable):
    """A staged pull made way for a Pod's."""


@dataclass(frozen=True, slots=True)
class PullSettings:
    """How images are fetched; a pull that makes progress may take long, one that stalls may not."""

    concurrency: int = 8
    staging_concurrency: int = 1
    stall: timedelta = timedelta(minutes=5)
    glance: timedelta = timedelta(seconds=20)
    longest: timedelta = timedelta(hours=2)
    longest_staging: timedelta = timedelta(days=1)
    throttled_tries: int = 5
    stalled_tries: int = 3
    backoff: Backoff = field(
        default_factory=lambda: Backoff(timedelta(seconds=5), timedelta(minutes=2))
    )


@dataclass(slots=True, eq=False)
class Order:
    """An image to fetch."""

    reference: Reference
    is_staged: bool = False
    credentials: Credentials | None = None
    watched: Watched = field(default_factory=Watched)


@dataclass(slots=True)
class _Lane:
    """One registry: who is served, and who waits."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    served: Order | None = None


@dataclass(slots=True)
class _Tries:
    """How often each kind of failure may happen yet."""

    throttled: int
    stalled: int
    full: int = 1


class Puller:
    """Fetches images into tart's cache."""

    def __init__(
        self,
        tart: Tart,
        *,
        clock: Clock,
        rng: random.Random,
        metrics: AgentMetrics,
        reclaim: Reclaim | None = None,
        settings: PullSettings | None = None,
    ) -> None:
        self._tart = tart
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._reclaim = reclaim
        self._settings = settings or PullSettings()
        self._lanes: dict[str, _Lane] = {}

    async def fetch(self, order: Order) -> None:
        """Fetch an image, however many tries that takes; raise what no try can mend."""
        began = self._clock.monotonic()
        result = FAILED
        try:
            await self._patiently(order)
            result = DONE
        except asyncio.CancelledError:
            result = CANCELLED
            raise
        finally:
            self._metrics.image_pulls.of(result).inc()
        self._metrics.image_pull_duration.observe(self._clock.monotonic() - began)

    @contextlib.asynccontextmanager
    async def _lane(self, order: Order) -> AsyncIterator[None]:
        lane = self._lanes.setdefault(order.reference.host, _Lane())
        if lane.served is not None and lane.served.is_staged and not order.is_staged:
            lane.served.watched.end = Preempted("a Pod waits for this registry")
        async with lane.lock:
            lane.served = order
            try:
                yield
            finally:
                lane.served = None

    async def _patiently(self, order: Order) -> None:
        if self._is_busy(order) and await self._is_current(order):
            return None
        tries = _Tries(self._settings.throttled_tries, self._settings.stalled_tries)
        while True:
            try:
                async with self._lane(order):
                    return await self._attempt(order, throttled=tries.throttled)
            except (Preempted, Throttled, Stalled, NoSpace) as error:
                if not await self._mended(error, tries):
                    raise
                told = order.reference.spelt
                logger.warning("Pulling again", image=told, reason=error.reason, error=str(error))

    def _is_busy(self, order: Order) -> bool:
        lane = self._lanes.get(order.reference.host)
        return lane is not None and lane.lock.locked()

    async def _is_current(self, order: Order) -> bool:
        """Tell whether a tag that is here still means the same: tart finds that out past any pull that is under way."""
        name = order.reference.spelt
        if self._tart.resolve(name) is None:
            return False
        try:
            async with asyncio.timeout(self._settings.glance.total_seconds()):
                await self._tart.pull(name, credentials=order.credentials, concurrency=1)
        except (errors.BramleyError, TimeoutError) as error:
            # It has moved, or the registry is in trouble: both are for whoever waits for a turn.
            logger.info("Waiting for the registry", image=name, reason=type(error).__name__)
            return False
        return True

    async def _mended(self, error: errors.BramleyError, tries: _Tries) -> bool:
        """Do what helps against this failure; tell whether one more try is worth it."""
        if isinstance(error, Throttled):
            tries.throttled -= 1
            return tries.throttled > 0 and await self._pause(tries)
        if isinstance(error, Stalled):
            # No pause: any other call of tart would sweep away what was loaded, and a pull goes on from it.
            self._metrics.tart_timeouts.of("pull").inc()
            tries.stalled -= 1
            return tries.stalled > 0
        if isinstance(error, NoSpace):
            tries.full -= 1
            return tries.full >= 0 and self._reclaim is not None and await self._reclaim()
        # It made way for a Pod.
        return True

    async def _attempt(self, order: Order, *, throttled: int) -> None:
        settings, watched = self._settings, order.watched
        watched.begin_anew()
        watch = Watch(watched, clock=self._clock, stall=settings.stall, home=self._tart.home)
        most = settings.staging_concurrency if order.is_staged else settings.concurrency
        # Every time that the registry was asked too much of, half as much is asked.
        concurrency = max(1, most >> (settings.throttled_tries - throttled))
        await watch.over(
            self._tart.pull(
                order.reference.spelt,
                credentials=order.credentials,
                concurrency=concurrency,
                on_line=watched.progress.hear,
                gate=watched.gate,
                limit=settings.longest_staging if order.is_staged else settings.longest,
            )
        )

    async def _pause(self, tries: _Tries) -> bool:
        failures = self._settings.throttled_tries - tries.throttled
        await asyncio.sleep(self._settings.backoff.delay(failures, self._rng).total_seconds())
        return True
