"""Polls of guests: an answer at once, or, for a long poll, as soon as there is a job or a drain mark.

A held poll waits for a wake-up of its pool and for changes of its Pod; it reads nothing and writes nothing meanwhile. A Pod has one
held poll: a second one ends the first with 204.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.api.names import dispatch, labels
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.dispatch.authentication import RunnerIdentity
from bramley.dispatch.handout import HandedOut, Handouts
from bramley.dispatch.pod_view import PodView, PolledPod
from bramley.dispatch.store.records import Pod
from bramley.dispatch.store.store import Store
from bramley.dispatch.wakeups import Waiter

# Below the timeouts of most proxies, which close a connection without traffic after a minute.
MAX_WAIT = timedelta(seconds=50)
# Existing pollers give up after ten seconds; the hand-out continues, and the next poll gets its result.
ANSWER_DEADLINE = timedelta(seconds=9)
MAX_HELD = 20_000

Disconnected = Callable[[], Awaitable[None]]


class Drained(Exception):
    """The Pod is to shut down."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class Polls:
    """Answers polls and holds those that wait."""

    store: Store
    view: PodView
    handouts: Handouts
    clock: Clock
    _held: dict[str, Waiter] = field(default_factory=dict)
    _recorded: dict[str, None] = field(default_factory=dict)
    _is_closing: bool = False

    @property
    def held(self) -> int:
        """Return how many polls are held."""
        return len(self._held)

    def close(self) -> None:
        """End all held polls, and hold none from now on."""
        self._is_closing = True
        for waiter in self._held.values():
            waiter.wake()

    def pod_changed(self, uid: str) -> None:
        """Let the held poll of a Pod look again."""
        if waiter := self._held.get(uid):
            waiter.wake()

    def is_polling(self, uid: str) -> bool:
        """Return whether a poll of this Pod is held."""
        return uid in self._held

    def pool_of(self, identity: RunnerIdentity) -> str:
        """Return the pool of a Pod if the cache knows both, for metrics: the agent of the Pod may change its label to anything."""
        pod = self.view.find_pod(identity.pod_name)
        name = pod.metadata.labels.get(labels.RUNNER_POOL, "") if pod is not None else ""
        return name if self.view.find_pool(name) is not None else ""

    async def poll(
        self, identity: RunnerIdentity, wait: timedelta, disconnected: Disconnected
    ) -> HandedOut | None:
        """Return a job, or None without one after the wait; raise Drained, Unauthorized or Unavailable."""
        polled = await self.view.get(identity)
        await self._record_first(polled)
        if not wait or len(self._held) >= MAX_HELD:
            return await self._attempt(polled)
        return await self._hold(identity, polled.pool, min(wait, MAX_WAIT), disconnected)

    async def _hold(
        self, identity: RunnerIdentity, pool: str, wait: timedelta, disconnected: Disconnected
    ) -> HandedOut | None:
        uid = identity.pod_uid
        # Registered before the first look: a job that is queued in between wakes this poll.
        with self.store.wakeups.waiting(pool) as waiter:
            earlier = self._held.get(uid)
            self._held[uid] = waiter
            if earlier is not None:
                earlier.wake()
            watch = self.handouts.start(_watch(disconnected, waiter))
            try:
                return await self._wait(identity, pool, waiter, wait, watch)
            finally:
                watch.cancel()
                if self._held.get(uid) is waiter:
                    del self._held[uid]

    async def _wait(
        self,
        identity: RunnerIdentity,
        pool: str,
        waiter: Waiter,
        wait: timedelta,
        watch: asyncio.Task[None],
    ) -> HandedOut | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait.total_seconds()
        while not (watch.done() or self._is_closing):
            if self._held.get(identity.pod_uid) is not waiter:
                return None
            job = await self._look(identity, pool, waiter)
            if job is not None or loop.time() >= deadline:
                return job
            try:
                async with asyncio.timeout_at(deadline):
                    await waiter.wait()
            except TimeoutError:
                return None
        return None

    async def _look(self, identity: RunnerIdentity, pool: str, waiter: Waiter) -> HandedOut | None:
        is_woken = waiter.is_woken
        waiter.reset()
        try:
            return await self._attempt(await self.view.get(identity))
        except (Drained, errors.BramleyError):
            # The job that this poll was woken for is still queued.
            if is_woken:
                self.store.wakeups.wake(pool)
            raise

    async def _attempt(self, polled: PolledPod) -> HandedOut | None:
        if reason := self.view.drain_reason(polled):
            raise Drained(reason)
        try:
            async with asyncio.timeout(ANSWER_DEADLINE.total_seconds()):
                return await self.handouts.offer(polled)
        except TimeoutError:
            return None
        except errors.Gone:
            raise Drained(dispatch.DRAIN_POD_COMMITTED) from None

    async def _record_first(self, polled: PolledPod) -> None:
        uid = polled.pod.uid
        if uid in self._recorded:
            return
        pod = Pod(polled.pod.name, uid, polled.host, polled.image)
        await self.store.first_poll(pod, polled.pool, self.clock.now())
        self._recorded[uid] = None
        while len(self._recorded) > MAX_HELD:
            del self._recorded[next(iter(self._recorded))]


async def _watch(disconnected: Disconnected, waiter: Waiter) -> None:
    # Whatever ends the connection ends the poll; an exception would end the group of all polls.
    with errors.Captured():
        await disconnected()
    waiter.wake()
