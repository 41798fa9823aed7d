"""Deletes events that nobody has updated for an hour, a few at a time and without keeping any in memory.

A real server lets its store forget them; here they are listed page by page when the oldest of them may be due. What counts
as an update is what recorders do: a new last time.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import ClassVar, NoReturn

from bramley.api.core import Event, EventSeries
from bramley.api.meta import MicroTime, Object, Resource, Time, moment
from bramley.apiserver.controllers.timings import Timings
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.client import Kube
from bramley.runtime.manager import Manager

logger = log.get(__name__)

# After so many deletions others have their turn.
_BATCH = 100
_PAUSE_SECONDS = 1.0


class AgingEvent(Object, frozen=True, kw_only=True):
    """An event, but for what it tells."""

    resource: ClassVar[Resource] = Event.resource

    last_timestamp: Time | None = None
    event_time: MicroTime | None = None
    series: EventSeries | None = None


def updated_at(event: AgingEvent, *, now: datetime) -> datetime:
    """Return when the event was last updated; a time that has not come yet is nobody's."""
    series = event.series.last_observed_time if event.series else None
    times = [
        event.metadata.creation_timestamp,
        event.last_timestamp,
        *(moment(text) for text in (event.event_time, series) if text),
    ]
    return max((time for time in times if time is not None and time <= now), default=now)


class EventTtl:
    """Deletes old events again and again."""

    def __init__(self, client: Kube, *, clock: Clock, timings: Timings) -> None:
        self._client = client
        self._clock = clock
        self._ttl = timings.event_ttl
        self._period = timings.event_ttl_period
        self._deleted = 0

    async def run(self) -> NoReturn:
        """Delete old events whenever there may be some."""
        while True:
            pause = self._period
            try:
                pause = await self.sweep()
            except errors.BramleyError as error:
                logger.warning("Events not swept", error=str(error))
            await asyncio.sleep(pause.total_seconds())

    async def sweep(self) -> timedelta:
        """Delete what is too old; return how long nothing else can become so."""
        now = self._clock.now()
        oldest = now
        async for page in self._client.pages(AgingEvent):
            for event in page.items:
                updated = updated_at(event, now=now)
                if updated + self._ttl <= now:
                    await self._delete(event)
                else:
                    oldest = min(oldest, updated)
        return max(self._period, oldest + self._ttl - now)

    async def _delete(self, event: AgingEvent) -> None:
        metadata = event.metadata
        try:
            await self._client.delete(
                AgingEvent,
                metadata.name,
                namespace=metadata.namespace,
                uid=metadata.uid,
                resource_version=metadata.resource_version,
            )
        except (errors.NotFound, errors.Conflict):
            # It is gone already, or it was updated and lives on.
            return
        self._deleted += 1
        if self._deleted % _BATCH == 0:
            await asyncio.sleep(_PAUSE_SECONDS)


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the deletion of old events to a manager."""
    manager.add_runnable(EventTtl(client, clock=clock, timings=timings).run)
