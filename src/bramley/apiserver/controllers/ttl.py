"""Deletes events that nobody has updated for an hour, a few at a time and without keeping any in memory.

A real server lets its store forget them; here they are listed page by page when the oldest of them may be due. What counts
as an update is what recorders do: a new last time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, NoReturn

from bramley.api.core import Event, EventSeries, Node
from bramley.api.meta import MicroTime, Object, Resource, Time, moment
from bramley.apiserver.controllers.timings import Timings
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.cache import Cache
from bramley.runtime.client import Kube
from bramley.runtime.controller import Controller
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import Outcome, Settled
from bramley.runtime.writes import FencedKube

TTL_ANNOTATION = "node.alpha.kubernetes.io/ttl"
# From so many Nodes on, so many seconds. A cluster that shrinks keeps the longer time for a tenth of the way down.
_STEPS = ((0, 0), (100, 15), (500, 30), (1000, 60), (2000, 300))


def seconds_for(nodes: int, now: int) -> int:
    """Return the time for a cluster of this size, in which Nodes have the time `now`."""
    grown = max(seconds for limit, seconds in _STEPS if nodes > limit or not limit)
    shrunk = max(seconds for limit, seconds in _STEPS if nodes > limit * 9 // 10 or not limit)
    return min(max(now, grown), shrunk)


@dataclass(frozen=True, slots=True)
class NodeTtlReconciler:
    """Keeps the annotation."""

    kube: FencedKube
    nodes: Cache[Node]

    async def reconcile(self, node: Node) -> Outcome:
        """Write the time if it is another one."""
        text = node.metadata.annotations.get(TTL_ANNOTATION, "")
        wanted = seconds_for(len(self.nodes), int(text) if text.isdecimal() else 0)
        if text != str(wanted) and not node.deleting:
            patch = {"metadata": {"annotations": {TTL_ANNOTATION: str(wanted)}}}
            await self.kube.merge_patch(Node, node.name, patch, uid=node.uid)
        return Settled()


def add_node_ttl(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Keep the annotation on every Node."""
    del client, clock, timings
    nodes = manager.informer(Node).cache
    reconciler = NodeTtlReconciler(manager.kube, nodes)
    manager.add(Controller(reconciler, name="node-ttl").for_kind(Node))


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
