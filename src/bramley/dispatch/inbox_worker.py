"""Process stored webhook deliveries: decode, find the pool, apply the report to its job, exactly once.

A delivery was acknowledged when it was stored, so a failure here is repeated until it succeeds. An invalid one is marked and
counted; it stops no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.dispatch import webhook_payload
from bramley.dispatch.jobs import Report, State
from bramley.dispatch.pool_matching import Route
from bramley.dispatch.store.records import Delivery
from bramley.dispatch.store.store import Store

logger = log.get(__name__)

# Deliveries that another replica stored and did not process are found by this.
_INTERVAL = timedelta(seconds=5)
_BATCH = 100
_CONCURRENCY = 16

Routing = Callable[[Sequence[str], str], Route]


class Observer(Protocol):
    """Counts the deliveries that were processed."""

    def delivered(self, report: Report, route: Route, state: State) -> None:
        """Count a report that was applied."""
        ...

    def refused(self, outcome: str) -> None:
        """Count a delivery that is invalid."""
        ...


@dataclass(slots=True)
class InboxWorker:
    """Processes deliveries; `wake` after one was stored, and `run` for ever."""

    store: Store
    routing: Routing
    clock: Clock
    observer: Observer
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Process what was stored, at once."""
        self._woken.set()

    async def run(self) -> None:
        """Process deliveries for ever."""
        while True:
            try:
                await self.process_pending()
            except errors.Unavailable as error:
                logger.warning("Failed to process deliveries", reason=error.reason)
                await asyncio.sleep(1)
            try:
                async with asyncio.timeout(_INTERVAL.total_seconds()):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()

    async def process_pending(self) -> int:
        """Process every delivery that waits once; return how many this process has finished."""
        finished, after_id = 0, 0
        failure: errors.Unavailable | None = None
        # By id, so that deliveries whose processing fails do not keep those after them from their turn.
        while page := await self.store.pending_deliveries(_BATCH, after_id=after_id):
            after_id = page[-1].id
            limit = asyncio.Semaphore(_CONCURRENCY)
            # The order does not matter, since reports merge; together they share the commits of the database.
            for result in await asyncio.gather(*(self._attempt(each, limit) for each in page)):
                if isinstance(result, errors.Unavailable):
                    failure = result
                else:
                    finished += result
        if failure is not None:
            raise failure
        return finished

    async def _attempt(
        self, delivery: Delivery, limit: asyncio.Semaphore
    ) -> bool | errors.Unavailable:
        """Return whether a delivery was finished; one that fails stays stored and is tried again."""
        async with limit:
            # A bug in the processing of one delivery must not stop the others.
            with errors.Captured() as captured:
                return await self._process(delivery)
        if isinstance(captured.error, errors.Unavailable):
            return captured.error
        logger.error("Failed to process delivery", delivery=delivery.guid, exc=captured.error)
        return False

    async def _process(self, delivery: Delivery) -> bool:
        now = self.clock.now()
        try:
            report = webhook_payload.decode(delivery.body)
        except errors.BadRequest as error:
            logger.warning("Skipping invalid delivery", delivery=delivery.guid, error=str(error))
            self.observer.refused("invalid")
            return await self.store.skip(delivery.id, f"invalid: {error}", now)
        route = self.routing(report.labels, report.account)
        state = await self.store.process(delivery.id, report, route, now)
        if state is None:
            return False
        self.observer.delivered(report, route, state)
        return True
