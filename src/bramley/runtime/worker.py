"""The workers of one controller: take a key, reconcile its object, and requeue the key by the result.

All errors of a reconciler end here: they are classified by `outcome`, counted and logged. No reconcile can end the process,
and one that exceeds its deadline is cancelled.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Generic

from bramley.api.meta import K, Object
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.base.deadlines import Deadline, DeadlineScope
from bramley.runtime.controller import Controller, StatefulReconciler, WatchedKind
from bramley.runtime.informer import Informer
from bramley.runtime.keys import Key
from bramley.runtime.metrics import RuntimeMetrics
from bramley.runtime.outcome import (
    SETTLED,
    CheckAgain,
    Outcome,
    Requeue,
    Result,
    Settled,
    result_of,
)
from bramley.runtime.queue import Priority, QueueMetrics, ShutDown, WorkQueue
from bramley.runtime.writes import FencedKube, WriteScope

logger = log.get(__name__)

Owner = tuple[str, Key]

# Reconciles that never wait for anything must not occupy the event loop for longer than this.
_YIELD_SECONDS = 0.005
# The first conflict is retried at once; two controllers that keep changing the same object are slowed down.
_CONFLICTS = Backoff(timedelta(milliseconds=20), timedelta(seconds=10))
_CACHE_IS_STALE = CheckAgain(
    timedelta(seconds=1), "the cache does not show this key's own writes yet"
)
# Until Python 3.12 looking up the member of an enum takes as long as queueing a key.
_DELETION, _CHANGE, _RESYNC = Priority


class LazyStr:
    """A value that a log line formats when it is written."""

    __slots__ = ("_value",)

    def __init__(self, value: Callable[[], object]) -> None:
        self._value = value

    def __str__(self) -> str:
        return str(self._value())


class WorkerState:
    """The key a worker is processing; bound to its logs once, since binding for each key costs more than a key does."""

    __slots__ = ("key", "number", "object", "reconcile")

    def __init__(self) -> None:
        self.key = Key("", "")
        self.number = 0
        self.object = LazyStr(lambda: self.key)
        self.reconcile = LazyStr(lambda: self.number)


class KeyReconciler(Generic[K]):
    """Reconciles one key of a controller: checks the lease and the cache, reads the object, calls the reconciler.

    It decides nothing about retries; it returns an outcome or raises. An object that is gone is no error.
    """

    def __init__(self, controller: Controller[K], informer: Informer[K], kube: FencedKube) -> None:
        self._name = controller.name
        self._reconcile = controller.reconciler.reconcile
        reconciler = controller.reconciler
        self._stateful = reconciler if isinstance(reconciler, StatefulReconciler) else None
        self._kind = controller.kind
        self._cache = informer.cache
        self._kube = kube
        self._writes = kube.writes
        self._check = kube.check
        self._live_reads: set[Key] = set()

    def require_live_read(self, key: Key) -> None:
        """Read the object from the server for the next reconcile, because the cache led to a conflict."""
        self._live_reads.add(key)

    def reconcile(self, key: Key, scope: WriteScope) -> Coroutine[Any, Any, Outcome]:
        """Return the coroutine that reconciles the object of this key; its writes are recorded in the scope."""
        # A process that was suspended past its lease may get here before its renewal task runs.
        self._check()
        owner = scope.owner = (self._name, key)
        # The common case: no other coroutine is wrapped around the reconciler's own.
        if key not in self._live_reads:
            obj = self._cache.find(key)
            if obj is not None and not self._writes.has_written(owner):
                return self._reconcile(obj)
        return self._guarded(key, owner)

    async def _guarded(self, key: Key, owner: Owner) -> Outcome:
        # The cache must have caught up before the object is read from it.
        if self._writes.has_written(owner) and not await self._writes.wait_until_observed(owner):
            return _CACHE_IS_STALE
        obj = await self._read_live(key) if key in self._live_reads else self._cache.find(key)
        if obj is None:
            return self._forget(key)
        return await self._reconcile(obj)

    async def _read_live(self, key: Key) -> K | None:
        self._live_reads.discard(key)
        # An object that no longer matches the selection is not this controller's, whatever the server returns.
        if self._cache.find(key) is None:
            return None
        try:
            live = await self._kube.get(self._kind, key.name, namespace=key.namespace or None)
        except errors.NotFound:
            return None
        # The next reconcile must not see an older state than this one.
        self._writes.record(live)
        return live

    def _forget(self, key: Key) -> Outcome:
        self._live_reads.discard(key)
        self._writes.forget((self._name, key))
        if self._stateful is not None:
            self._stateful.forget(key)
        return Settled()


class Workers(Generic[K]):
    """Runs one controller: N workers on one queue."""

    def __init__(
        self,
        controller: Controller[K],
        informer: Informer[K],
        kube: FencedKube,
        *,
        clock: Clock,
        rng: random.Random,
        metrics: RuntimeMetrics,
    ) -> None:
        self.name = controller.name
        self._settings = controller.settings
        self._cache = informer.cache
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._settled = metrics.outcomes.of(self.name, SETTLED.outcome, SETTLED.reason)
        self._duration = metrics.work_duration.of(self.name)
        self._writes = kube.writes
        self._deadline = Deadline(controller.settings.deadline)
        self._reconciler = KeyReconciler(controller, informer, kube)
        self._conflicts: dict[Key, int] = {}
        self._ids = itertools.count(1)
        self.queue = WorkQueue[Key](
            clock=clock,
            rng=rng,
            metrics=QueueMetrics(metrics, self.name),
            backoff=controller.settings.backoff,
        )

    def enqueue_changes_of(self, informer: Informer[K]) -> None:
        """Enqueue each object of the controller's own kind when it changes."""
        add, synced = self.queue.add, informer.synced.is_set

        def changed(key: Key, _old: K | None, new: K | None) -> None:
            add(key, _priority(new, is_synced=synced()))

        informer.on_change(changed)

    def enqueue_mapped(self, watched: WatchedKind, informer: Informer[Any]) -> None:
        """Enqueue the keys that a change of another kind maps to."""
        kind, synced = watched.kind.resource.kind, informer.synced.is_set

        def changed(key: Key, old: Object | None, new: Object | None) -> None:
            keys: dict[Key, None] = {}
            with errors.Captured() as captured:
                # The old state as well: what it referred to must react when the reference moves away.
                for state in (old, new):
                    keys |= dict.fromkeys(watched.to(state) if state is not None else ())
            if captured.error is not None:
                self._metrics.mapping_bugs.of(self.name).inc()
                logger.error(
                    "Mapping object to keys failed", exc=captured.error, kind=kind, object=str(key)
                )
                # The keys of this change are unknown.
                self.enqueue_all()
            priority = _priority(new, is_synced=synced())
            for mapped in keys:
                self.queue.add(mapped, priority)

        informer.on_change(changed)

    async def run(self) -> None:
        """Work until `stop`, then return when the last reconcile has ended."""
        async with asyncio.TaskGroup() as group:
            resync = group.create_task(self._resync())
            workers = [group.create_task(self._work()) for _ in range(self._settings.workers)]
            await asyncio.wait(workers)
            resync.cancel()

    def stop(self) -> None:
        """Stop handing out keys; running reconciles may end."""
        self.queue.shut_down()

    def enqueue_all(self) -> None:
        """Enqueue every object, after everything that is more urgent."""
        for key in self._cache:
            self.queue.add(key, Priority.RESYNC)

    async def _work(self) -> None:
        state = WorkerState()
        with (
            self._writes.scope() as writes,
            self._deadline.scope() as deadline,
            log.bound(controller=self.name, object=state.object, reconcile=state.reconcile),
        ):
            yielded = self._clock.monotonic()
            while True:
                try:
                    state.key = self.queue.take() or await self.queue.get()
                except ShutDown:
                    return
                now = await self._process(state, writes, deadline)
                if now - yielded > _YIELD_SECONDS:
                    await asyncio.sleep(0)
                    yielded = self._clock.monotonic()

    async def _process(
        self, state: WorkerState, writes: WriteScope, deadline: DeadlineScope
    ) -> float:
        """Reconcile the key, requeue it by the result, and return when that was done."""
        key = state.key
        state.number = next(self._ids)
        try:
            result = result_of(await deadline.run(self._reconciler.reconcile(key, writes)))
        except Exception as error:  # noqa: BLE001 - the one place where a reconciler's error ends
            self._handle(key, result_of(error), error)
        else:
            self._handle(key, result)
        finally:
            # After the requeue: a key that is still in process is marked dirty instead of being taken twice.
            started_at = self.queue.done(key)
        ended_at = self._clock.monotonic()
        self._duration.observe(ended_at - started_at)
        return ended_at

    def _handle(self, key: Key, result: Result, error: Exception | None = None) -> None:
        # The common case, without lookups.
        if result is SETTLED:
            self._settled.inc()
            self._conflicts.pop(key, None)
            self.queue.forget(key)
            return
        self._metrics.outcomes.of(self.name, result.outcome, result.reason).inc()
        if result.why or result.is_bug:
            _log(result, error)
        self._requeue(key, result)

    def _requeue(self, key: Key, result: Result) -> None:
        if result.requeue is Requeue.AT_ONCE:
            self._retry_conflict(key)
            return
        self._conflicts.pop(key, None)
        if result.requeue is Requeue.WITH_BACKOFF:
            self.queue.add_rate_limited(key)
            return
        self.queue.forget(key)
        if result.requeue is Requeue.AFTER:
            self.queue.add_after(key, result.after)

    def _retry_conflict(self, key: Key) -> None:
        before = self._conflicts.get(key, 0)
        self._conflicts[key] = before + 1
        # The cache may still hold the version that led to the conflict.
        self._reconciler.require_live_read(key)
        self.queue.add_after(key, _CONFLICTS.delay(before, self._rng) if before else timedelta())

    async def _resync(self) -> None:
        period = self._settings.resync.total_seconds()
        while True:
            # With jitter, so that the controllers of a process do not resync together.
            await asyncio.sleep(period * (0.9 + 0.2 * self._rng.random()))
            self.enqueue_all()


def _priority(new: Object | None, *, is_synced: bool) -> Priority:
    if new is None or new.metadata.deletion_timestamp is not None:
        return _DELETION
    # Objects of the first list are no news; changes and deletions go first.
    return _CHANGE if is_synced else _RESYNC


def _log(result: Result, error: Exception | None) -> None:
    if result.is_bug:
        logger.error("Reconcile raised an unexpected error", exc=error, reason=result.reason)
    elif result.outcome in {"unavailable", "refused", "failed"}:
        logger.warning("Reconcile failed", reason=result.reason, error=result.why)
    else:
        logger.debug("Requeueing object", outcome=result.outcome, why=result.why)
