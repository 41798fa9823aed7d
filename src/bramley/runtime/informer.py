"""Follows one kind on the server and keeps its cache true: list, watch, resume, and list again when that is not enough.

It survives what servers and networks do: a watch that ends or breaks resumes from the last version, bookmarks included; a
version too old (410) leads to a new list whose difference is told like events; silence has a deadline; an object that cannot
be decoded is reported and looked up again by a list, at a bounded rate. `run` returns only by cancellation.
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
from bramley.kube.listing import Listing
from bramley.kube.watching import WatchEvent
from bramley.runtime.metrics import RuntimeMetrics
from bramley.runtime.mirror import Handler, Mirror, Relist
from bramley.runtime.source import EVERYTHING, Reader, Selection
from bramley.runtime.suspicion import Suspicion

logger = log.get(__name__)

_BACKOFF = Backoff(timedelta(milliseconds=800), timedelta(seconds=30), jitter=0.5)
_RELIST_BACKOFF = Backoff(timedelta(seconds=1), timedelta(minutes=10), jitter=0.2)


@dataclass(frozen=True, slots=True)
class InformerSettings:
    """How patient an informer is."""

    list_deadline: timedelta = timedelta(minutes=2)
    # The server is asked to end a watch after one to two times this long, so that many do not end together.
    watch_timeout: timedelta = timedelta(minutes=5)
    # Servers send a bookmark about once a minute; this much silence means that nobody is there any more.
    idle_deadline: timedelta = timedelta(seconds=150)
    # A watch that ends sooner than this without any event counts as failed.
    shortest_watch: timedelta = timedelta(seconds=1)
    # After this many failed watches in a row the version itself is suspect, and a list is read.
    watch_failures: int = 5
    # After this many watches in a row without even a bookmark a list is read, in case the server forgot us.
    silent_watches: int = 12
    # A list older than the cache is refused this often; then the server was really set back.
    stale_lists: int = 5
    backoff: Backoff = _BACKOFF
    # How soon a list follows a suspicion, such as an event that could not be decoded, and then the next one.
    relist_backoff: Backoff = _RELIST_BACKOFF


class Informer(Generic[K]):
    """Keeps the cache of one kind and tells handlers of each change."""

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
        self.mirror = Mirror(kind)
        self.cache = self.mirror.cache
        self._reader = reader
        self._clock = clock
        self._rng = rng
        self._settings = settings or InformerSettings()
        self._metrics = metrics
        self._name = kind.resource.kind
        self._list_because = "start"
        self._failures = 0
        self._stale_lists = 0
        self._silences = 0
        self._is_open = False
        self._suspicion = Suspicion(clock, rng, self._settings.relist_backoff)
        self._waiting: asyncio.Timeout | None = None
        self._heard_at = clock.monotonic()
        metrics.cache_age.of(self._name).set_function(self.age)
        metrics.cache_objects.of(self._name).set_function(self.cache.__len__)

    def on_change(self, handler: Handler[K]) -> None:
        """Call the handler with key, old and new state of each change, in order."""
        self.mirror.on_change(handler)

    def refresh(self) -> None:
        """Ask for a whole list soon, at a bounded rate, because the cache may have missed something."""
        self._suspicion.arise()
        if self._waiting is not None and not self._waiting.expired():
            now = asyncio.get_running_loop().time()
            self._waiting.reschedule(now + self._patience())

    def age(self) -> float:
        """Return the seconds since the server was last heard."""
        return self._clock.monotonic() - self._heard_at

    async def run(self) -> NoReturn:
        """Follow the server until cancelled."""
        while True:
            try:
                if self._list_because:
                    await self._list()
                await self._watch()
            except errors.BramleyError as error:
                await self._pause_after(error)

    async def _list(self) -> None:
        began = self._clock.monotonic()
        self._suspicion.end()
        try:
            async with asyncio.timeout(self._settings.list_deadline.total_seconds()):
                relist = await self._read_pages()
        except TimeoutError:
            raise errors.TimedOut(f"listing {self._name} took too long") from None
        relist.finish()
        self._metrics.relists.of(self._name, self._list_because).inc()
        if relist.anonymous:
            self._suspicion.arise()
        took = self._clock.monotonic() - began
        logger.debug("Listed", kind=self._name, objects=len(self.cache), took=f"{took:.3f}")
        self._list_because = ""
        self._stale_lists = 0
        self._heard()
        self.synced.set()

    async def _read_pages(self) -> Relist[K]:
        relist: Relist[K] | None = None
        where = self.selection
        pages = self._reader.pages(
            self.kind, namespace=where.namespace, labels=where.labels, fields=where.fields
        )
        async for page in pages:
            if relist is None:
                relist = self.mirror.relist(self._version_of(page))
            relist.page(page)
            self._report_misfits(page)
        if relist is None:
            raise errors.ApiUnavailable(f"the list of {self._name} has no page")
        return relist

    def _version_of(self, page: Listing[K]) -> int:
        if not page.resource_version.isdecimal():
            raise errors.ApiUnavailable(f"a list of {self._name} has no version to go on from")
        version = int(page.resource_version)
        if version < self.mirror.newest:
            self._refuse_older(version)
        return version

    def _refuse_older(self, version: int) -> None:
        """Refuse a list that is older than the cache, unless the server insists."""
        self._stale_lists += 1
        known = self.mirror.newest
        if self._stale_lists <= self._settings.stale_lists:
            raise errors.ApiUnavailable(f"list at {version} is older than what was seen at {known}")
        logger.warning("Going back in time", kind=self._name, seen=known, listed=version)
        self._metrics.rewinds.of(self._name).inc()

    async def _watch(self) -> None:
        began, version = self._clock.monotonic(), self.mirror.version
        self._is_open = False
        try:
            async with asyncio.timeout(self._patience()) as self._waiting:
                await self._follow(self._waiting)
        except TimeoutError:
            self._on_silence()
            return
        finally:
            self._waiting = None
        self._metrics.watch_restarts.of(self._name, "ended").inc()
        too_short = self._settings.shortest_watch.total_seconds()
        if self.mirror.version == version and self._clock.monotonic() - began < too_short:
            raise errors.ApiUnavailable(f"the watch of {self._name} ended at once")
        self._failures = 0

    async def _follow(self, patience: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        where = self.selection
        watch = self._reader.watch(
            self.kind,
            namespace=where.namespace,
            labels=where.labels,
            fields=where.fields,
            resource_version=str(self.mirror.version),
            timeout=self._settings.watch_timeout * (1 + self._rng.random()),
        )
        async with watch as opened, aclosing(opened.batches()) as batches:
            self._is_open = True
            async for batch in batches:
                unread = self.mirror.apply(batch)
                self._heard()
                if unread:
                    self._report(unread)
                patience.reschedule(loop.time() + self._patience())

    def _patience(self) -> float:
        """Return the seconds to wait for the next event, or for the list that a suspicion asked for."""
        return self._suspicion.left(self._settings.idle_deadline.total_seconds())

    def _on_silence(self) -> None:
        if self._suspicion.is_due():
            self._list_because = "suspicion"
            self._metrics.watch_restarts.of(self._name, "suspicion").inc()
            return
        if not self._is_open:
            raise errors.TimedOut(f"nobody answers who asks to watch {self._name}")
        # The server is there and has nothing to say, or says it to nobody; resuming is cheap, and a list now and then sure.
        self._metrics.watch_restarts.of(self._name, "silence").inc()
        self._failures = 0
        self._silences += 1
        if self._silences % self._settings.silent_watches == 0:
            self._list_because = "silence"

    def _heard(self) -> None:
        self._heard_at = self._clock.monotonic()
        self._failures = 0
        self._silences = 0

    def _report(self, unread: list[WatchEvent[K]]) -> None:
        self._metrics.undecodable.of(self._name).inc(len(unread))
        for event in unread:
            metadata = event.object.metadata
            logger.warning(
                "Cannot read event",
                kind=self._name,
                namespace=metadata.namespace or "",
                name=metadata.name,
                reason=event.error or "it has no resourceVersion",
            )
        self._suspicion.arise()

    def _report_misfits(self, page: Listing[K]) -> None:
        for misfit in page.undecodable:
            self._metrics.undecodable.of(self._name).inc()
            logger.warning(
                "Cannot read object",
                kind=self._name,
                namespace=misfit.metadata.namespace or "",
                name=misfit.metadata.name,
                reason=misfit.error,
            )

    async def _pause_after(self, error: errors.BramleyError) -> None:
        self._failures += 1
        if not self._list_because:
            self._metrics.watch_restarts.of(self._name, error.reason).inc()
            self._list_because = self._why_list_after(error)
        pause = self._pause(error)
        told = logger.debug if self._failures == 1 else logger.warning
        told("Following again", kind=self._name, after=pause, reason=error.reason, error=str(error))
        await asyncio.sleep(pause.total_seconds())

    def _pause(self, error: errors.BramleyError) -> timedelta:
        if isinstance(error, errors.Gone) and self._failures == 1:
            return timedelta()
        pause = self._settings.backoff.delay(self._failures, self._rng)
        return max(pause, error.after) if isinstance(error, errors.RateLimited) else pause

    def _why_list_after(self, error: errors.BramleyError) -> str:
        passing = isinstance(error, errors.Unavailable | errors.RateLimited)
        if not passing:
            return error.reason
        return "failures" if self._failures % self._settings.watch_failures == 0 else ""
