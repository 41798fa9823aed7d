"""The informer of one kind: lists, watches, resumes, and lists again when a watch is not enough.

It survives what servers and networks do: a watch that ends or breaks resumes from the last version, bookmarks included; a
version that is too old (410) leads to a new list whose differences are handled like events; silence has a deadline; an object
that cannot be decoded is logged and read again by a list, at a bounded rate. `run` returns only by cancellation.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, NoReturn

from bramley.api.meta import K
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.kube.codec import Listing
from bramley.kube.watch_stream import WatchEvent
from bramley.runtime.cache import CacheUpdater, Handler, Relist
from bramley.runtime.client import EVERYTHING, Reader, Selection
from bramley.runtime.metrics import RuntimeMetrics

logger = log.get(__name__)

# Timers may fire slightly early; what is due within this many seconds counts as due.
_TIMER_SLACK_SECONDS = 0.001
_BACKOFF = Backoff(timedelta(milliseconds=800), timedelta(seconds=30), jitter=0.5)
_RELIST_BACKOFF = Backoff(timedelta(seconds=1), timedelta(minutes=10), jitter=0.2)


class RelistTimer:
    """Decides when to read a whole list because the cache may have missed something.

    The first list comes soon; the next ones come with a growing backoff while requests continue.
    """

    def __init__(self, clock: Clock, rng: random.Random, backoff: Backoff) -> None:
        self._clock = clock
        self._rng = rng
        self._backoff = backoff
        self._requests = 0
        self._requested_at = 0.0
        self._due_at: float | None = None

    def request(self) -> None:
        """Schedule a list unless one is scheduled; long after the last request the backoff starts over."""
        if self._due_at is not None:
            return
        now = self._clock.monotonic()
        if now - self._requested_at > 2 * self._backoff.maximum.total_seconds():
            self._requests = 0
        self._requests += 1
        self._requested_at = now
        self._due_at = now + self._backoff.delay(self._requests, self._rng).total_seconds()

    def clear(self) -> None:
        """Drop the request, because a list is being read."""
        self._due_at = None

    def seconds_left(self, most: float) -> float:
        """Return the seconds until a list is due, at most `most`."""
        if self._due_at is None:
            return most
        return min(most, max(0.0, self._due_at - self._clock.monotonic()))

    def is_due(self) -> bool:
        """Return whether it is time to read a list."""
        if self._due_at is None:
            return False
        return self._due_at <= self._clock.monotonic() + _TIMER_SLACK_SECONDS


@dataclass(frozen=True, slots=True)
class InformerSettings:
    """Deadlines and retries of an informer."""

    list_deadline: timedelta = timedelta(minutes=2)
    # The server ends a watch after one to two times this long, so that many watches do not end together.
    watch_timeout: timedelta = timedelta(minutes=5)
    # Servers send a bookmark about once a minute; after this much silence the connection counts as dead.
    idle_deadline: timedelta = timedelta(seconds=150)
    # A watch that ends sooner than this without any event counts as failed.
    shortest_watch: timedelta = timedelta(seconds=1)
    # After this many failed watches in a row the version itself may be the cause, and a list is read.
    watch_failures: int = 5
    # After this many watches in a row without even a bookmark a list is read, in case the server lost the watch.
    silent_watches: int = 12
    # A list older than the cache is rejected this often; after that the server was really restored from a backup.
    stale_lists: int = 5
    backoff: Backoff = _BACKOFF
    # How soon a list follows a doubt about the cache, such as an event that could not be decoded.
    relist_backoff: Backoff = _RELIST_BACKOFF


class Informer(Generic[K]):
    """Keeps the cache of one kind up to date and calls handlers with each change."""

    def __init__(
        self,
        kind: type[K],
        reader: Reader,
        *,
        clock: Clock,
        rng: random.Random,
        metrics: RuntimeMetrics,
        selection: Selection = EVERYTHING,
        settings: InformerSettings | None = None,
    ) -> None:
        self.kind = kind
        self.selection = selection
        self.synced = asyncio.Event()
        self.updater = CacheUpdater(kind)
        self.cache = self.updater.cache
        self._reader = reader
        self._clock = clock
        self._rng = rng
        self._settings = settings or InformerSettings()
        self._metrics = metrics
        self._name = kind.resource.kind
        self._list_reason = "start"
        self._failures = 0
        self._stale_lists = 0
        self._silent_watches = 0
        self._is_open = False
        self._relist_timer = RelistTimer(clock, rng, self._settings.relist_backoff)
        self._watch_timeout: asyncio.Timeout | None = None
        self._contact_at = clock.monotonic()
        metrics.cache_age.of(self._name).set_function(self.age)
        metrics.cache_objects.of(self._name).set_function(self.cache.__len__)

    def on_change(self, handler: Handler[K]) -> None:
        """Call the handler with key, old and new state of each change, in order."""
        self.updater.on_change(handler)

    def refresh(self) -> None:
        """Request a whole list soon, at a bounded rate, because the cache may have missed something."""
        self._relist_timer.request()
        # asyncio refuses to reschedule an expired timeout; that watch ends anyway.
        if self._watch_timeout is not None and not self._watch_timeout.expired():
            now = asyncio.get_running_loop().time()
            self._watch_timeout.reschedule(now + self._seconds_to_wait())

    def age(self) -> float:
        """Return the seconds since the last answer of the server."""
        return self._clock.monotonic() - self._contact_at

    async def run(self) -> NoReturn:
        """List and watch until cancelled."""
        while True:
            try:
                if self._list_reason:
                    await self._list()
                await self._watch()
            except errors.BramleyError as error:
                await self._pause_after(error)

    async def _list(self) -> None:
        began = self._clock.monotonic()
        # Before the first page: a request that arrives during the list may concern a change which this list misses.
        self._relist_timer.clear()
        try:
            async with asyncio.timeout(self._settings.list_deadline.total_seconds()):
                relist = await self._read_pages()
        except TimeoutError:
            raise errors.TimedOut(f"listing {self._name} took too long") from None
        # Only after the last page: an interrupted list proves no deletion.
        relist.finish()
        self._metrics.relists.of(self._name, self._list_reason).inc()
        if relist.unnamed:
            self._relist_timer.request()
        took = self._clock.monotonic() - began
        logger.debug("Listed objects", kind=self._name, objects=len(self.cache), took=f"{took:.3f}")
        # Only after a success: a failed list is repeated for the same reason.
        self._list_reason = ""
        self._stale_lists = 0
        self._contacted()
        # Last: the handlers have enqueued every listed object before workers start.
        self.synced.set()

    async def _read_pages(self) -> Relist[K]:
        relist: Relist[K] | None = None
        selection = self.selection
        pages = self._reader.pages(
            self.kind,
            namespace=selection.namespace,
            labels=selection.labels,
            fields=selection.fields,
        )
        async for page in pages:
            if relist is None:
                # The version is checked before an object is applied: a server that lags behind must not take the cache back.
                relist = self.updater.relist(self._version_of(page))
            relist.page(page)
            self._report_undecodable_objects(page)
        if relist is None:
            raise errors.ApiUnavailable(f"the server returned no list of {self._name}")
        return relist

    def _version_of(self, page: Listing[K]) -> int:
        if not page.resource_version.isdecimal():
            raise errors.ApiUnavailable(f"the list of {self._name} has no resourceVersion")
        version = int(page.resource_version)
        if version < self.updater.newest:
            self._reject_older(version)
        return version

    def _reject_older(self, version: int) -> None:
        """Reject a list that is older than the cache, unless the server keeps returning it."""
        self._stale_lists += 1
        newest = self.updater.newest
        if self._stale_lists <= self._settings.stale_lists:
            raise errors.ApiUnavailable(f"list at {version} is older than the cache at {newest}")
        logger.warning(
            "Server resourceVersion went backwards", kind=self._name, cached=newest, listed=version
        )
        self._metrics.rewinds.of(self._name).inc()

    async def _watch(self) -> None:
        began, version = self._clock.monotonic(), self.updater.version
        self._is_open = False
        try:
            async with asyncio.timeout(self._seconds_to_wait()) as self._watch_timeout:
                await self._apply_events(self._watch_timeout)
        except TimeoutError:
            self._on_silence()
            return
        finally:
            self._watch_timeout = None
        self._metrics.watch_restarts.of(self._name, "ended").inc()
        shortest = self._settings.shortest_watch.total_seconds()
        if self.updater.version == version and self._clock.monotonic() - began < shortest:
            raise errors.ApiUnavailable(f"the watch of {self._name} ended at once")
        self._failures = 0

    async def _apply_events(self, idle: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        selection = self.selection
        watch = self._reader.watch(
            self.kind,
            namespace=selection.namespace,
            labels=selection.labels,
            fields=selection.fields,
            resource_version=str(self.updater.version),
            timeout=self._settings.watch_timeout * (1 + self._rng.random()),
        )
        async with watch as opened, aclosing(opened.batches()) as batches:
            self._is_open = True
            async for batch in batches:
                undecodable = self.updater.apply(batch)
                self._contacted()
                if undecodable:
                    self._report_undecodable_events(undecodable)
                # After the handlers: their running time is not silence of the server.
                idle.reschedule(loop.time() + self._seconds_to_wait())

    def _seconds_to_wait(self) -> float:
        """Return the seconds to wait for the next event, or until the requested list is due."""
        return self._relist_timer.seconds_left(self._settings.idle_deadline.total_seconds())

    def _on_silence(self) -> None:
        # The timeout was shortened for a requested list, so this says nothing about the server.
        if self._relist_timer.is_due():
            self._list_reason = "suspicion"
            self._metrics.watch_restarts.of(self._name, "suspicion").inc()
            return
        if not self._is_open:
            raise errors.TimedOut(f"the server did not answer the watch of {self._name}")
        # Either nothing happened or the server lost the watch. Resuming is cheap; a list now and then makes sure.
        self._metrics.watch_restarts.of(self._name, "silence").inc()
        self._failures = 0
        self._silent_watches += 1
        if self._silent_watches % self._settings.silent_watches == 0:
            self._list_reason = "silence"

    def _contacted(self) -> None:
        self._contact_at = self._clock.monotonic()
        self._failures = 0
        self._silent_watches = 0

    def _report_undecodable_events(self, undecodable: list[WatchEvent[K]]) -> None:
        self._metrics.undecodable.of(self._name).inc(len(undecodable))
        for event in undecodable:
            metadata = event.object.metadata
            logger.warning(
                "Watch event is undecodable",
                kind=self._name,
                namespace=metadata.namespace or "",
                name=metadata.name,
                reason=event.error or "it has no resourceVersion",
            )
        self._relist_timer.request()

    def _report_undecodable_objects(self, page: Listing[K]) -> None:
        for failed in page.undecodable:
            self._metrics.undecodable.of(self._name).inc()
            logger.warning(
                "Listed object is undecodable",
                kind=self._name,
                namespace=failed.metadata.namespace or "",
                name=failed.metadata.name,
                reason=failed.error,
            )

    async def _pause_after(self, error: errors.BramleyError) -> None:
        self._failures += 1
        if not self._list_reason:
            self._metrics.watch_restarts.of(self._name, error.reason).inc()
            self._list_reason = self._reason_to_list(error)
        pause = self._pause(error)
        write = logger.debug if self._failures == 1 else logger.warning
        write("Retrying watch", kind=self._name, after=pause, reason=error.reason, error=str(error))
        await asyncio.sleep(pause.total_seconds())

    def _pause(self, error: errors.BramleyError) -> timedelta:
        # An expired version is normal after a pause; a second 410 in a row is not, and backs off.
        if isinstance(error, errors.Gone) and self._failures == 1:
            return timedelta()
        pause = self._settings.backoff.delay(self._failures, self._rng)
        return max(pause, error.after) if isinstance(error, errors.RateLimited) else pause

    def _reason_to_list(self, error: errors.BramleyError) -> str:
        is_transient = isinstance(error, errors.Unavailable | errors.RateLimited)
        if not is_transient:
            return error.reason
        return "failures" if self._failures % self._settings.watch_failures == 0 else ""
