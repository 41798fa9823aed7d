"""The event recorder: writes Events about objects, and never delays or fails its caller.

`event` only adds to a bounded queue; `run` writes. The same event again increments the count by a patch. The limits are
client-go's: a burst of 25 events per object and then one in five minutes; more than ten different messages of the same
reason within ten minutes become one event. What cannot be written after a few tries is dropped and counted. An event that
the server forbids is tried again, too, because a role may be granted shortly after the object is created; other events do not
wait for it meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, Literal, NoReturn, TypeVar

from bramley.api.core import Event, EventSource, ObjectReference
from bramley.api.meta import Object, ObjectMeta
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.runtime.client import Writer
from bramley.runtime.metrics import RuntimeMetrics

logger = log.get(__name__)

V = TypeVar("V")

EventType = Literal["Normal", "Warning"]

MAX_MESSAGE_LENGTH = 1024
_MAX_NAME_LENGTH = 200
# The cause by which a namespace that is being deleted differs from a missing permission.
_NAMESPACE_TERMINATING = "NamespaceTerminating"
_RETRIES = Backoff(timedelta(seconds=1), timedelta(seconds=10))
# client-go's limits; see the module's docstring.
_BURST = 25
_REFILL_SECONDS = 300.0
_MAX_MESSAGES = 10
_AGGREGATION_SECONDS = 600.0
_LRU_SIZE = 4096
_COMBINED_PREFIX = "(combined from similar events): "


class LruCache(Generic[V]):
    """A mapping that drops its least recently used entry."""

    def __init__(self, size: int = _LRU_SIZE) -> None:
        self._size = size
        self._entries: OrderedDict[Hashable, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Hashable) -> V | None:
        """Return the value and count it as used."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: Hashable, value: V) -> V:
        """Store and return the value, dropping the least recently used one if there are too many."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)
        return value

    def drop(self, key: Hashable) -> None:
        """Drop the entry."""
        self._entries.pop(key, None)


@dataclass(slots=True)
class _TokenBucket:
    tokens: float
    at: float


class SpamFilter:
    """A token bucket for each object."""

    def __init__(self) -> None:
        self._buckets: LruCache[_TokenBucket] = LruCache()

    def allows(self, source: Hashable, now: float) -> bool:
        """Remove one token of the source's bucket; return whether there was one."""
        bucket = self._buckets.find(source) or self._buckets.put(source, _TokenBucket(_BURST, now))
        bucket.tokens = min(_BURST, bucket.tokens + (now - bucket.at) / _REFILL_SECONDS)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


@dataclass(slots=True)
class _Group:
    messages: set[str]
    since: float


class EventAggregator:
    """Combines events of one group (object, type, reason, action) that differ only in their message."""

    def __init__(self) -> None:
        self._groups: LruCache[_Group] = LruCache()

    def aggregate(self, key: Hashable, message: str, now: float) -> tuple[Hashable, str]:
        """Return the event's identity and message; beyond ten messages both are those of the group."""
        group = self._groups.find(key)
        if group is None or now - group.since > _AGGREGATION_SECONDS:
            group = self._groups.put(key, _Group(set(), now))
        if len(group.messages) < _MAX_MESSAGES or message in group.messages:
            group.messages.add(message)
            return (key, message), message
        return (key,), _COMBINED_PREFIX + message


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """The size of the queue and the retries of an event."""

    queue_size: int = 1000
    tries: int = 4
    deadline: timedelta = timedelta(seconds=10)
    backoff: Backoff = _RETRIES


@dataclass(frozen=True, slots=True)
class _PendingEvent:
    about: ObjectReference
    type: EventType
    reason: str
    message: str
    action: str


@dataclass(slots=True)
class _Attempt:
    """An event to write, its failures so far, and the monotonic second before which it is not tried again."""

    event: _PendingEvent
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
        self._queue: asyncio.Queue[_PendingEvent] = asyncio.Queue(self._settings.queue_size)
        self._postponed: list[_Attempt] = []
        self._spam_filter = SpamFilter()
        self._aggregator = EventAggregator()
        self._written: LruCache[_Written] = LruCache()

    def event(
        self,
        about: Object,
        reason: str,
        message: str,
        *,
        type: EventType = "Normal",
        action: str = "",
    ) -> None:
        """Record what happened to the object; returns at once."""
        # Before the queue: one object must not fill the queue of all.
        if not self._spam_filter.allows(about.uid or about.name, self._clock.monotonic()):
            self._dropped.of("budget").inc()
            return
        event = _PendingEvent(_reference(about), type, reason, message[:MAX_MESSAGE_LENGTH], action)
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self._dropped.of("full").inc()

    def warning(self, about: Object, reason: str, message: str, *, action: str = "") -> None:
        """Record what went wrong with the object; returns at once."""
        self.event(about, reason, message, type="Warning", action=action)

    async def run(self) -> NoReturn:
        """Write the queued events, one after the other, until cancelled."""
        while True:
            attempt = await self._next()
            try:
                is_done = await self._write_or_drop(attempt)
            except BaseException:
                # Also when cancelled, or flush would wait for an event that is never written.
                self._queue.task_done()
                raise
            # A postponed event stays unfinished work, so that flush waits for it.
            if is_done:
                self._queue.task_done()

    async def flush(self, within: timedelta) -> None:
        """Wait until all queued events are written, but not longer than this."""
        try:
            async with asyncio.timeout(within.total_seconds()):
                await self._queue.join()
        except TimeoutError:
            logger.warning("Dropping events at shutdown", count=self._queue.qsize())

    async def _next(self) -> _Attempt:
        """Return what to write next: a postponed event that is due, or a queued one."""
        first = min(self._postponed, key=lambda each: each.due, default=None)
        if first is None:
            return _Attempt(await self._queue.get())
        remaining = first.due - self._clock.monotonic()
        try:
            # Queued events go first: one that the server forbids must not delay them.
            async with asyncio.timeout(max(remaining, 0.0)):
                return _Attempt(await self._queue.get())
        except TimeoutError:
            self._postponed.remove(first)
            return first

    async def _write_or_drop(self, attempt: _Attempt) -> bool:
        """Write an event, or drop and count it; return False if it was postponed."""
        while attempt.failures < self._settings.tries:
            try:
                async with asyncio.timeout(self._settings.deadline.total_seconds()):
                    await self._write(attempt.event)
            except (errors.Unavailable, errors.RateLimited, TimeoutError) as error:
                pause = self._failed(attempt, error)
                if attempt.failures < self._settings.tries:
                    await asyncio.sleep(pause)
            except errors.BramleyError as error:
                pause = self._failed(attempt, error)
                if self._may_postpone(attempt, error):
                    attempt.due = self._clock.monotonic() + pause
                    self._postponed.append(attempt)
                    return False
                break
            else:
                return True
        self._dropped.of("failed").inc()
        return True

    def _failed(self, attempt: _Attempt, error: Exception) -> float:
        """Count a failure and return the seconds until the next attempt."""
        attempt.failures += 1
        logger.debug("Writing event failed", reason=attempt.event.reason, error=str(error))
        return self._settings.backoff.delay(attempt.failures, self._rng).total_seconds()

    def _may_postpone(self, attempt: _Attempt, error: errors.BramleyError) -> bool:
        """Return whether the refusal may be temporary and there is space to postpone the event."""
        if not isinstance(error, errors.Forbidden) or attempt.failures >= self._settings.tries:
            return False
        # Nothing can be created any more in a namespace that is being deleted.
        is_terminating = any(cause.reason == _NAMESPACE_TERMINATING for cause in error.causes)
        return not is_terminating and len(self._postponed) < self._settings.queue_size

    async def _write(self, event: _PendingEvent) -> None:
        group = (event.about.uid or event.about.name, event.type, event.reason, event.action)
        identity, text = self._aggregator.aggregate(group, event.message, self._clock.monotonic())
        written = self._written.find(identity)
        if written is not None:
            try:
                await self._count_up(event, written, text)
            except errors.NotFound:
                # The server deletes events after an hour; then a new event is created.
                self._written.drop(identity)
            else:
                return
        made = await self._create(event, text)
        self._written.put(identity, _Written(made.name, 1))

    async def _count_up(self, event: _PendingEvent, written: _Written, text: str) -> None:
        stamp = f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}"
        patch = {"count": written.count + 1, "lastTimestamp": stamp, "message": text}
        namespace = event.about.namespace or "default"
        await self._kube.merge_patch(Event, written.name, patch, namespace=namespace)
        # After the patch: a failed patch is repeated with the same count.
        written.count += 1
        self._counted.of("patch").inc()

    async def _create(self, event: _PendingEvent, text: str) -> Event:
        now = self._clock.now().replace(microsecond=0)
        name = f"{event.about.name[:_MAX_NAME_LENGTH]}.{self._rng.getrandbits(64):016x}"
        created = Event(
            # Events about cluster-scoped objects are in the default namespace.
            metadata=ObjectMeta(name=name, namespace=event.about.namespace or "default"),
            involved_object=event.about,
            reason=event.reason,
            message=text,
            type=event.type,
            action=event.action,
            source=EventSource(component=self._component, host=self._instance),
            reporting_component=self._component,
            reporting_instance=self._instance,
            first_timestamp=now,
            last_timestamp=now,
            count=1,
        )
        made = await self._kube.create(created)
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
