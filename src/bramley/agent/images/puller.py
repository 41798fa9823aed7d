"""Pulls images with retries, one at a time per registry.

Tart locks a registry's folder for a pull, so a second pull would only wait for the lock, with its deadline running. A pull for a Pod
preempts a staged pull, which starts again later.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta

from bramley.agent.images.disk_space import DiskSpace
from bramley.agent.images.partial_downloads import PartialDownloads
from bramley.agent.images.pull_monitor import PullControl, PullMonitor, Stalled
from bramley.agent.metrics import CANCELLED, DONE, FAILED, AgentMetrics
from bramley.agent.tart import references
from bramley.agent.tart.driver import Credentials, Tart
from bramley.agent.tart.failures import NoSpace, NotEnoughSpace, Throttled
from bramley.agent.tart.references import Reference
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock

logger = log.get(__name__)


class Preempted(errors.Unavailable):
    """A staged pull was preempted by a pull for a Pod."""


@dataclass(frozen=True, slots=True)
class PullSettings:
    """Limits of pulls; a pull that makes progress may take long, one that stalls may not."""

    concurrency: int = 8
    staging_concurrency: int = 1
    stall: timedelta = timedelta(minutes=5)
    revalidate_limit: timedelta = timedelta(seconds=20)
    max_duration: timedelta = timedelta(hours=2)
    max_staging_duration: timedelta = timedelta(days=1)
    throttled_retries: int = 5
    stalled_retries: int = 3
    backoff: Backoff = field(
        default_factory=lambda: Backoff(timedelta(seconds=5), timedelta(minutes=2))
    )


@dataclass(slots=True, eq=False)
class PullSpec:
    """An image to pull."""

    reference: Reference
    is_staged: bool = False
    credentials: Credentials | None = None
    # The size of an earlier image of the same repository.
    expected_bytes: int = 0
    control: PullControl = field(default_factory=PullControl)


@dataclass(slots=True)
class _RegistryQueue:
    """The pulls from one registry: the current one, and those that wait for the lock."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    current: PullSpec | None = None


@dataclass(slots=True)
class _Retries:
    """The retries that are left for each kind of failure."""

    throttled: int
    stalled: int
    no_space: int = 1


@dataclass(frozen=True, slots=True)
class Puller:
    """Pulls images into tart's cache."""

    tart: Tart
    _: KW_ONLY
    clock: Clock
    rng: random.Random
    metrics: AgentMetrics
    space: DiskSpace
    partials: PartialDownloads
    settings: PullSettings = field(default_factory=PullSettings)
    _queues: dict[str, _RegistryQueue] = field(default_factory=dict)

    async def fetch(self, spec: PullSpec) -> None:
        """Pull an image with retries; raise errors that a retry cannot fix."""
        started = self.clock.monotonic()
        result = FAILED
        try:
            with self.partials.in_use(spec.reference):
                # For an image that no Pod needs yet nothing is deleted.
                expected = 0 if spec.is_staged else spec.expected_bytes
                await self.space.ensure("pull", expected=expected)
                await self._pull_with_retries(spec)
            # Only if it was not needed: another program has pulled the image.
            self.partials.drop(spec.reference)
            result = DONE
        except asyncio.CancelledError:
            result = CANCELLED
            raise
        except NoSpace:
            # What it has downloaded would fill the disk for all others.
            self.partials.drop(spec.reference)
            raise
        finally:
            self.metrics.image_pulls.of(result).inc()
        self.metrics.image_pull_duration.observe(self.clock.monotonic() - started)

    @contextlib.asynccontextmanager
    async def _registry_lock(self, spec: PullSpec) -> AsyncIterator[None]:
        queue = self._queues.setdefault(spec.reference.host, _RegistryQueue())
        if queue.current is not None and queue.current.is_staged and not spec.is_staged:
            # Set before waiting for the lock, which the staged pull holds until it ends.
            queue.current.control.stop_error = Preempted("a Pod waits for this registry")
        async with queue.lock:
            queue.current = spec
            try:
                yield
            finally:
                queue.current = None

    async def _pull_with_retries(self, spec: PullSpec) -> None:
        if self._is_busy(spec) and await self._is_up_to_date(spec):
            return None
        retries = _Retries(self.settings.throttled_retries, self.settings.stalled_retries)
        while True:
            try:
                async with self._registry_lock(spec):
                    return await self._pull_once(spec, throttled=retries.throttled)
            except (Preempted, Throttled, Stalled, NoSpace) as error:
                if not await self._recover(error, retries):
                    raise
                image = spec.reference.normalized
                logger.warning(
                    "Retrying image pull", image=image, reason=error.reason, error=str(error)
                )

    def _is_busy(self, spec: PullSpec) -> bool:
        queue = self._queues.get(spec.reference.host)
        return queue is not None and queue.lock.locked()

    async def _is_up_to_date(self, spec: PullSpec) -> bool:
        """Return whether a cached tag is up to date; tart checks that without waiting for other pulls."""
        name = spec.reference.normalized
        if self.tart.resolve(name) is None:
            return False
        try:
            async with asyncio.timeout(self.settings.revalidate_limit.total_seconds()):
                await self.tart.pull(name, credentials=spec.credentials, concurrency=1)
        except (errors.BramleyError, TimeoutError) as error:
            # The tag has moved, or the registry has a problem: both are handled by a normal pull in its turn.
            logger.info(
                "Image pull waits for its registry", image=name, reason=type(error).__name__
            )
            return False
        return True

    async def _recover(self, error: errors.BramleyError, retries: _Retries) -> bool:
        """React to a failure and return whether to retry."""
        if isinstance(error, Throttled):
            retries.throttled -= 1
            return retries.throttled > 0 and await self._back_off(retries)
        if isinstance(error, Stalled):
            self.metrics.tart_timeouts.of("pull").inc()
            retries.stalled -= 1
            return retries.stalled > 0
        if isinstance(error, NoSpace):
            retries.no_space -= 1
            return retries.no_space >= 0 and await self._reclaim(error)
        # It was preempted, which costs no retry.
        return True

    async def _reclaim(self, error: NoSpace) -> bool:
        """Free what a pull needs that ran out of space, or all that can be freed if that is unknown."""
        needed = error.needed if isinstance(error, NotEnoughSpace) else None
        return self.space.reclaim is not None and await self.space.reclaim(needed)

    async def _pull_once(self, spec: PullSpec, *, throttled: int) -> None:
        settings, control = self.settings, spec.control
        control.reset()
        monitor = PullMonitor(
            control,
            clock=self.clock,
            stall=settings.stall,
            home=self.tart.home,
            shortage=lambda: self._shortage(spec),
            on_tick=lambda: self.partials.hand_over(
                spec.reference, is_queued=control.progress.is_queued
            ),
        )
        concurrency = settings.staging_concurrency if spec.is_staged else settings.concurrency
        # Each time the registry throttles, the concurrency is halved.
        concurrency = max(1, concurrency >> (settings.throttled_retries - throttled))
        pull = self.tart.pull(
            spec.reference.normalized,
            credentials=spec.credentials,
            concurrency=concurrency,
            on_line=control.progress.feed_line,
            gate=control.gate,
            limit=settings.max_staging_duration if spec.is_staged else settings.max_duration,
        )
        try:
            await monitor.run(pull)
        finally:
            # At once: the next command of tart would remove what the pull has left.
            self.partials.hold(spec.reference)

    def _shortage(self, spec: PullSpec) -> errors.BramleyError | None:
        """Return the error for a pull that cannot fit on the disk: uncompressed, its disk is at least as large as compressed."""
        size = spec.control.progress.size
        folder = references.pull_folder(self.tart.home, spec.reference)
        staged = self.space.allocated(folder)
        # After the download, tart moves the folder into its cache, and may need minutes to remove older images.
        if not size or not folder.exists():
            return None
        return self.space.shortage("pull", size - staged)

    async def _back_off(self, retries: _Retries) -> bool:
        failures = self.settings.throttled_retries - retries.throttled
        await asyncio.sleep(self.settings.backoff.delay(failures, self.rng).total_seconds())
        return True
