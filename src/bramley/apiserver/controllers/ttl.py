"""Two controllers of lifetimes: expired events, and the `ttl` annotation of Nodes.

etcd expires events by a lease; here they are listed page by page when the oldest of them may have expired, and deleted a few
at a time. The annotation says how long an agent may cache Secrets and ConfigMaps: longer in larger clusters.
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

logger = log.get(__name__)

TTL_ANNOTATION = "node.alpha.kubernetes.io/ttl"
# From so many Nodes on, so many seconds. A shrinking cluster keeps the longer time until a tenth below the limit.
_STEPS = ((0, 0), (100, 15), (500, 30), (1000, 60), (2000, 300))
# After so many deletions in a row other requests get a pause.
_BATCH = 100
_PAUSE_SECONDS = 1.0


class EventTimes(Object, frozen=True, kw_only=True):
    """The times of an event, without its content."""

    resource: ClassVar[Resource] = Event.resource

    last_timestamp: Time | None = None
    event_time: MicroTime | None = None
    series: EventSeries | None = None


def updated_at(event: EventTimes, *, now: datetime) -> datetime:
    """Return when the event was last updated; times in the future are ignored."""
    series = event.series.last_observed_time if event.series else None
    times = [
        event.metadata.creation_timestamp,
        event.last_timestamp,
        *(moment(text) for text in (event.event_time, series) if text),
    ]
    return max((time for time in times if time is not None and time <= now), default=now)


class EventTtl:
    """Deletes expired events periodically."""

    def __init__(self, client: Kube, *, clock: Clock, timings: Timings) -> None:
        self._client = client
        self._clock = clock
        self._ttl = timings.event_ttl
        self._period = timings.event_ttl_period
        self._deleted = 0

    async def run(self) -> NoReturn:
        """Delete expired events until cancelled."""
        while True:
            pause = self._period
            try:
                pause = await self.sweep()
            except errors.BramleyError as error:
                logger.warning("Deleting expired events failed", error=str(error))
            await asyncio.sleep(pause.total_seconds())

    async def sweep(self) -> timedelta:
        """Delete expired events; return the time until the next one can expire."""
        now = self._clock.now()
        oldest = now
        async for page in self._client.pages(EventTimes):
            for event in page.items:
                updated = updated_at(event, now=now)
                if updated + self._ttl <= now:
                    await self._delete(event)
                else:
                    oldest = min(oldest, updated)
        return max(self._period, oldest + self._ttl - now)

    async def _delete(self, event: EventTimes) -> None:
        metadata = event.metadata
        try:
            await self._client.delete(
                EventTimes,
                metadata.name,
                namespace=metadata.namespace,
                uid=metadata.uid,
                resource_version=metadata.resource_version,
            )
        except (errors.NotFound, errors.Conflict):
            # Deleted already, or updated since the list.
            return
        self._deleted += 1
        if self._deleted % _BATCH == 0:
            await asyncio.sleep(_PAUSE_SECONDS)


def node_ttl(nodes: int, current: int) -> int:
    """Return the seconds for a cluster of this size whose Nodes have `current` seconds."""
    grown = max(seconds for limit, seconds in _STEPS if nodes > limit or not limit)
    shrunk = max(seconds for limit, seconds in _STEPS if nodes > limit * 9 // 10 or not limit)
    return min(max(current, grown), shrunk)


@dataclass(frozen=True, slots=True)
class NodeTtlReconciler:
    """Keeps the annotation of each Node."""

    kube: FencedKube
    nodes: Cache[Node]

    async def reconcile(self, node: Node) -> Outcome:
        """Write the annotation if it differs."""
        text = node.metadata.annotations.get(TTL_ANNOTATION, "")
        desired = str(node_ttl(len(self.nodes), int(text) if text.isdecimal() else 0))
        if text != desired and not node.deleting:
            patch = {"metadata": {"annotations": {TTL_ANNOTATION: desired}}}
            await self.kube.merge_patch(Node, node.name, patch, uid=node.uid)
        return Settled()


def add_event_ttl(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the deletion of expired events to a manager."""
    manager.add_runnable(EventTtl(client, clock=clock, timings=timings).run)


def add_node_ttl(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the controller of the Node annotation to a manager."""
    del client, clock, timings
    reconciler = NodeTtlReconciler(manager.kube, manager.informer(Node).cache)
    manager.add(Controller(reconciler, name="node-ttl").for_kind(Node))
