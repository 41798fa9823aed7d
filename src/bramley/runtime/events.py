"""The event recorder: tells people what happened to an object, and never holds up or fails whoever tells it.

`event` only puts it into a bounded queue; `run` writes. The same event again counts up by a patch, floods are cut by
`spam`, and what cannot be written after a few tries is dropped and counted. An event that the server forbids is tried again,
too: a right may come a moment after the object that it is for. It steps aside meanwhile, so that others need not wait for it.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, NoReturn

from bramley.api.core import Event, EventSource, ObjectReference
from bramley.api.meta import Object, ObjectMeta
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.runtime.metrics import RuntimeMetrics
from bramley.runtime.source import Writer
from bramley.runtime.spam import Alike, Budget, Recent

logger = log.get(__name__)

EventType = Literal["Normal", "Warning"]

LONGEST_MESSAGE = 1024
_LONGEST_NAME = 200
# By which a server tells a namespace that goes from a right that is missing.
_ENDING = "NamespaceTerminating"
_RETRIES = Backoff(timedelta(seconds=1), timedelta(seconds=10))


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """How much waits, and how hard it is tried."""

    waiting: int = 1000
    tries: int = 4
    deadline: timedelta = timedelta(seconds=10)
    backoff: Backoff = _RETRIES


@dataclass(frozen=True, slots=True)
class _Told:
    about: ObjectReference
    type: EventType
    reason: str
    message: str
    action: str


@dataclass(slots=True)
class _Try:
    """An event on its way, how often it was refused, and the monotonic second before which it is not tried again."""

    told: _Told
    failures: int = 0
    due: float = 0.0


@dataclass(slots=True)
class _Written:
    name: str
    count: int


class Recorder:
    """Records events under the name of one component."""

    def __init__(
        self,
        kube: Writer,
        component: str,
        *,
        clock: Clock,
        rng: random.Random,
        metrics: RuntimeMetrics,
        instance: str = "",
        settings: RecorderSettings | None = None,
    ) -> None:
        self._kube = kube
        self._component = component
        self._instance = instance
        self._clock = clock
        self._rng = rng
        self._settings = settings or RecorderSettings()
        self._dropped = metrics.events_dropped
        self._counted = metrics.events_written
        self._waiting: asyncio.Queue[_Told] = asyncio.Queue(self._settings.waiting)
        self._aside: list[_Try] = []
        self._budget = Budget()
        self._alike = Alike()
        self._written: Recent[_Written] = Recent()

    def event(
        self,
        about: Object,
        reason: str,
        message: str,
        *,
        type: EventType = "Normal",
        action: str = "",
    ) -> None:
        """Tell what happened to the object; returns at once."""
        if not self._budget.spend(about.uid or about.name, self._clock.monotonic()):
            self._dropped.of("budget").inc()
            return
        told = _Told(_reference(about), type, reason, message[:LONGEST_MESSAGE], action)
        try:
            self._waiting.put_nowait(told)
        except asyncio.QueueFull:
            self._dropped.of("full").inc()

    def warning(self, about: Object, reason: str, message: str, *, action: str = "") -> None:
        """Tell what went wrong with the object; returns at once."""
        self.event(about, reason, message, type="Warning", action=action)

    async def run(self) -> NoReturn:
        """Write what was told, one after the other, until cancelled."""
        while True:
            one = await self._next()
            try:
                is_done = await self._write_or_drop(one)
            except BaseException:
                self._waiting.task_done()
                raise
            if is_done:
                self._waiting.task_done()

    async def flushed(self, within: timedelta) -> None:
        """Wait until everything told so far is written, but not longer than this."""
        try:
            async with asyncio.timeout(within.total_seconds()):
                await self._waiting.join()
        except TimeoutError:
            logger.warning("Events left unwritten", count=self._waiting.qsize())

    async def _next(self) -> _Try:
        """Return what is to be written next: what stood aside long enough, or what was told."""
        first = min(self._aside, key=lambda each: each.due, default=None)
        if first is None:
            return _Try(await self._waiting.get())
        left = first.due - self._clock.monotonic()
        try:
            async with asyncio.timeout(max(left, 0.0)):
                return _Try(await self._waiting.get())
        except TimeoutError:
            self._aside.remove(first)
            return first

    async def _write_or_drop(self, one: _Try) -> bool:
        """Write an event, or drop and count it; False if it stands aside for another try."""
        while one.failures < self._settings.tries:
            try:
                async with asyncio.timeout(self._settings.deadline.total_seconds()):
                    await self._write(one.told)
            except (errors.Unavailable, errors.RateLimited, TimeoutError) as error:
                pause = self._failed(one, error)
                if one.failures < self._settings.tries:
                    await asyncio.sleep(pause)
            except errors.BramleyError as error:
                pause = self._failed(one, error)
                if self._steps_aside(one, error):
                    one.due = self._clock.monotonic() + pause
                    self._aside.append(one)
                    return False
                break
            else:
                return True
        self._dropped.of("failed").inc()
        return True

    def _failed(self, one: _Try, error: Exception) -> float:
        """Count a failure and return the seconds until the next try."""
        one.failures += 1
        logger.debug("Event not written", reason=one.told.reason, error=str(error))
        return self._settings.backoff.delay(one.failures, self._rng).total_seconds()

    def _steps_aside(self, one: _Try, error: errors.BramleyError) -> bool:
        """Tell whether a refusal may have been for the moment only, and there is room to wait."""
        if not isinstance(error, errors.Forbidden) or one.failures >= self._settings.tries:
            return False
        # Nothing is ever created again in a namespace that goes.
        is_ending = any(cause.reason == _ENDING for cause in error.causes)
        return not is_ending and len(self._aside) < self._settings.waiting

    async def _write(self, told: _Told) -> None:
        group = (told.about.uid or told.about.name, told.type, told.reason, told.action)
        identity, text = self._alike.text(group, told.message, self._clock.monotonic())
        known = self._written.find(identity)
        if known is not None:
            try:
                await self._count_up(told, known, text)
            except errors.NotFound:
                # The server forgets events after an hour; then this is a new one.
                self._written.drop(identity)
            else:
                return
        made = await self._create(told, text)
        self._written.put(identity, _Written(made.name, 1))

    async def _count_up(self, told: _Told, known: _Written, text: str) -> None:
        stamp = f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}"
        patch = {"count": known.count + 1, "lastTimestamp": stamp, "message": text}
        namespace = told.about.namespace or "default"
        await self._kube.merge_patch(Event, known.name, patch, namespace=namespace)
        known.count += 1
        self._counted.of("patch").inc()

    async def _create(self, told: _Told, text: str) -> Event:
        now = self._clock.now().replace(microsecond=0)
        name = f"{told.about.name[:_LONGEST_NAME]}.{self._rng.getrandbits(64):016x}"
        event = Event(
            # Events about things without a namespace live in the default one.
            metadata=ObjectMeta(name=name, namespace=told.about.namespace or "default"),
            involved_object=told.about,
            reason=told.reason,
            message=text,
            type=told.type,
            action=told.action,
            source=EventSource(component=self._component, host=self._instance),
            reporting_component=self._component,
            reporting_instance=self._instance,
            first_timestamp=now,
            last_timestamp=now,
            count=1,
        )
        made = await self._kube.create(event)
        self._counted.of("create").inc()
        return made


def _reference(about: Object) -> ObjectReference:
    return ObjectReference(
        api_version=about.resource.api_version,
        kind=about.resource.kind,
        name=about.name,
        namespace=about.namespace or "",
        uid=about.uid,
        resource_version=about.metadata.resource_version,
    )
