"""Status on every exit: `async with reporting(pool, kube, clock=clock) as report:` writes what was said, however it ends.

Only what differs is written, and nothing if nothing does; transition times move only with their status. An error becomes
the summary condition: Unknown when the outside is down, False when the object is refused. Text of a bug stays in the logs.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import TracebackType
from typing import Any

import msgspec

from bramley.api import conditions
from bramley.api.meta import Condition, ConditionStatus, Object
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.runtime.finalizers import Patcher

logger = log.get(__name__)

LONGEST_MESSAGE = 1024


class Report:
    """What a reconcile has to say about its object so far."""

    def __init__(self, thing: Object, *, clock: Clock, summary: str) -> None:
        self.base = thing
        self._clock = clock
        self._summary = summary
        # Every kind that is reported on has a status; the base of all kinds does not.
        self._status: Any = thing.status  # type: ignore[attr-defined]
        self._before: dict[str, Any] = msgspec.to_builtins(self._status)

    def say(self, *facts: Condition) -> None:
        """Set these conditions; one whose status stays the same keeps its transition time."""
        generation = self.base.metadata.generation or None
        now, kept = self._clock.now(), self._status.conditions
        for fact in facts:
            seen = fact.observed_generation or generation
            dated = msgspec.structs.replace(fact, observed_generation=seen)
            kept = conditions.put(kept, dated, now=now)
        self.update(conditions=kept)

    def update(self, **fields: object) -> None:
        """Set these fields of the status."""
        self._status = msgspec.structs.replace(self._status, **fields)

    def saw(self, thing: Object) -> None:
        """Go on from this newer state of the object, which this reconcile has just written."""
        self.base = thing

    def blame(self, error: BaseException) -> None:
        """Let the summary condition tell of an error."""
        status: ConditionStatus = "Unknown"
        reason, message = "InternalError", "A bug stopped this reconcile; the logs tell more."
        if isinstance(error, errors.BramleyError):
            passing = isinstance(error, errors.Unavailable | errors.RateLimited)
            status = "Unknown" if passing else "False"
            reason, message = error.reason, str(error)[:LONGEST_MESSAGE]
        elif isinstance(error, asyncio.CancelledError):
            reason, message = "Interrupted", "The reconcile was cut off before its end."
        self.say(Condition(type=self._summary, status=status, reason=reason, message=message))

    def acted(self) -> None:
        """Note that the object's present generation was acted on, if its status has a place for that."""
        if hasattr(self._status, "observed_generation"):
            self.update(observed_generation=self.base.metadata.generation)

    def patch(self) -> dict[str, Any]:
        """Return the fields that differ from what is stored; what is gone is None."""
        after: dict[str, Any] = msgspec.to_builtins(self._status)
        names = sorted({*self._before, *after})
        return {
            name: after.get(name) for name in names if after.get(name) != self._before.get(name)
        }


class Reporting:
    """The block in which a report is made."""

    def __init__(self, report: Report, kube: Patcher, *, deadline: timedelta) -> None:
        self._report = report
        self._kube = kube
        self._deadline = deadline.total_seconds()

    async def __aenter__(self) -> Report:
        return self._report

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, errors.Conflict):
            # What we know is outdated, so is what we would say; the retry follows at once.
            return
        if error is None:
            self._report.acted()
            await self._write()
            return
        self._report.blame(error)
        try:
            await self._write()
        except errors.BramleyError as failure:
            # The first error is the one to tell.
            logger.warning("Status not written", reason=failure.reason, error=str(failure))

    async def _write(self) -> None:
        patch, metadata = self._report.patch(), self._report.base.metadata
        if not patch:
            return
        try:
            async with asyncio.timeout(self._deadline):
                await self._kube.merge_patch(
                    type(self._report.base),
                    metadata.name,
                    {"status": patch},
                    namespace=metadata.namespace,
                    subresource="status",
                    resource_version=metadata.resource_version,
                )
        except errors.NotFound:
            logger.debug("Object went before its status was written")
        except TimeoutError:
            raise errors.TimedOut("writing the status took too long") from None


def reporting(
    thing: Object,
    kube: Patcher,
    *,
    clock: Clock,
    summary: str = "Ready",
    deadline: timedelta = timedelta(seconds=5),
) -> Reporting:
    """Open a block whose report is written to the object's status on every exit."""
    return Reporting(Report(thing, clock=clock, summary=summary), kube, deadline=deadline)
