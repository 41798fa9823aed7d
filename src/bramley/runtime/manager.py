"""Runs the controllers of one process: shared informers, leader election, workers, events and probes in one task group.

Start: informers fill their caches while the lease is waited for; workers start after both. Stop, in this order: not ready, no
new keys, running reconciles end or are cancelled at the deadline, events are written, the lease is released, the rest ends.
A lost lease stops the workers at once and `run` raises LeaseLost, so that the process restarts.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from bramley.api.meta import K, Object
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.runtime.client import EVERYTHING, Kube, Selection
from bramley.runtime.controller import Controller
from bramley.runtime.events import Recorder
from bramley.runtime.informer import Informer, InformerSettings
from bramley.runtime.leader_election import LeaderElectionSettings, LeaderElector, Leadership
from bramley.runtime.metrics import RuntimeMetrics
from bramley.runtime.probes import Probes, ProbeSettings
from bramley.runtime.worker import Workers
from bramley.runtime.writes import FencedKube, ReadYourWrites

logger = log.get(__name__)

T = TypeVar("T")

# More allocations than frees before a collection of the youngest objects, such collections before one of the next generation,
# and so on. API objects are frozen and without cycles, so reference counting frees them; yet the collector would walk through
# large caches again and again, because new objects keep coming.
GC_THRESHOLDS = (20_000, 20, 20)


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """Leader election, probes, and how long stopping may take."""

    election: LeaderElectionSettings | None = None
    probes: tuple[ProbeSettings, ...] = ()
    drain: timedelta = timedelta(seconds=30)
    flush: timedelta = timedelta(seconds=2)
    informer: InformerSettings | None = None
    # Tune the process's garbage collector for large caches.
    tune_gc: bool = True


class Manager:
    """Owns what the controllers of a process share."""

    def __init__(
        self,
        kube: Kube,
        *,
        clock: Clock,
        rng: random.Random,
        registry: CollectorRegistry,
        settings: ManagerSettings | None = None,
    ) -> None:
        self.ready = asyncio.Event()
        self.leading = asyncio.Event()
        self.metrics = RuntimeMetrics(registry)
        self.leadership: Leadership | None = None
        self._settings = settings or ManagerSettings()
        self._unfenced = kube
        self._clock = clock
        self._rng = rng
        self._stopping = asyncio.Event()
        self._election: LeaderElector | None = None
        self._lost: errors.LeaseLost | None = None
        self._informers: dict[tuple[type[Object], Selection], Informer[Any]] = {}
        self._workers: list[Workers[Any]] = []
        self._recorders: dict[str, Recorder] = {}
        self._runnables: list[Callable[[], Coroutine[Any, Any, object]]] = []
        self.probes = [Probes(settings, registry) for settings in self._settings.probes]
        for probes in self.probes:
            probes.add_ready_check("manager", self._reason_not_ready)
        self.kube = FencedKube(kube, writes=ReadYourWrites(), check=self.check)

    def check(self) -> None:
        """Raise LeaseLost unless this process is the leader."""
        if self._settings.election is None:
            return
        if self.leadership is None:
            raise errors.LeaseLost("this process is not the leader")
        self.leadership.check()

    async def raise_epoch(self, stored: int) -> None:
        """Continue to lead under an epoch above one that was stored; raise LeaseLost if a later leader has stored it."""
        if self._election is None or self.leadership is None:
            raise errors.LeaseLost("this process is not the leader")
        await self._election.raise_epoch(self.leadership, stored)

    def informer(self, kind: type[K], selection: Selection = EVERYTHING) -> Informer[K]:
        """Return the one informer of this kind and selection."""
        existing = self._informers.get((kind, selection))
        if existing is not None:
            return existing
        informer = Informer(
            kind,
            # Reads need no lease: caches fill while this process waits for it.
            self._unfenced,
            clock=self._clock,
            rng=self._rng,
            metrics=self.metrics,
            selection=selection,
            settings=self._settings.informer,
        )
        self._informers[kind, selection] = informer
        self.kube.writes.add_informer(informer)
        self._add_sync_check(informer)
        return informer

    def recorder(self, component: str, *, instance: str = "") -> Recorder:
        """Return the one event recorder of this component."""
        if component not in self._recorders:
            self._recorders[component] = Recorder(
                self._unfenced,
                component,
                clock=self._clock,
                rng=self._rng,
                metrics=self.metrics,
                instance=instance,
            )
        return self._recorders[component]

    def add(self, controller: Controller[K]) -> Workers[K]:
        """Add a controller."""
        primary = self.informer(controller.kind, controller.selection)
        workers = Workers(
            controller,
            primary,
            self.kube,
            clock=self._clock,
            rng=self._rng,
            metrics=self.metrics,
        )
        workers.enqueue_changes_of(primary)
        for watched in controller.watched:
            workers.enqueue_mapped(watched, self.informer(watched.kind, watched.selection))
        for trigger in controller.triggers:
            trigger.connect(workers.queue.add)
        self._workers.append(workers)
        return workers

    def add_runnable(self, runnable: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run this while the workers run, for tasks that belong to no single object; stopping cancels it."""
        self._runnables.append(runnable)

    def stop(self) -> None:
        """Start the graceful stop; `run` returns when it is done."""
        self._stopping.set()

    async def run(self) -> None:
        """Run until `stop`; raise LeaseLost when another process became the leader."""
        if self._settings.tune_gc:
            gc.set_threshold(*GC_THRESHOLDS)
        try:
            async with asyncio.TaskGroup() as group:
                background = [group.create_task(task) for task in self._background()]
                await self._work_until_stopped()
                # Last: reconciles that end during the drain still read caches and record events.
                for task in background:
                    task.cancel()
        except ExceptionGroup as group_error:
            raise _unwrap(group_error) from None
        if self._lost is not None:
            raise self._lost

    def _background(self) -> Iterator[Coroutine[Any, Any, object]]:
        yield from (probes.run() for probes in self.probes)
        yield from (informer.run() for informer in self._informers.values())
        yield from (recorder.run() for recorder in self._recorders.values())
        yield self._become_ready()

    async def _become_ready(self) -> None:
        await self._wait_for_caches()
        if self._settings.tune_gc:
            # Only now: what the caches hold is never collected again.
            gc.freeze()
        for probes in self.probes:
            await probes.ready.wait()
        # A stop that came while the caches filled wins.
        if not self._stopping.is_set():
            self.ready.set()

    async def _work_until_stopped(self) -> None:
        if self._settings.election is None:
            await self._work()
            return
        election = self._election = LeaderElector(
            self._settings.election,
            # The fenced client refuses writes before there is a leader, and so would refuse this lease.
            self._unfenced,
            clock=self._clock,
            rng=self._rng,
            metrics=self.metrics,
        )
        self.leadership = await self._until_stopped(election.acquire())
        if self.leadership is None:
            return
        await self._work_while_leading(election, self.leadership)
        # Only after the last reconcile has ended: from here on another process may act.
        await election.release(self.leadership)

    async def _work_while_leading(self, election: LeaderElector, leadership: Leadership) -> None:
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self._work())
            renewal = group.create_task(self._renew_lease(election, leadership, work))
            # Does not raise when the work is cancelled because the lease was lost; the group raises real errors.
            await asyncio.wait((work,))
            renewal.cancel()

    async def _renew_lease(
        self, election: LeaderElector, leadership: Leadership, work: asyncio.Task[None]
    ) -> None:
        try:
            await election.renew_until_lost(leadership)
        except errors.LeaseLost as lost:
            logger.warning("Leader lease lost", reason=str(lost))
            self._lost = lost
            work.cancel()

    async def _work(self) -> None:
        # With a cache that is not filled, reconcilers would create what exists already.
        if await self._until_stopped(self._wait_for_caches()):
            self.leading.set()
            try:
                await self._run_workers()
            finally:
                self.leading.clear()
        self.ready.clear()
        # The recorders still run here; `run` cancels them after this.
        for recorder in self._recorders.values():
            await recorder.flush(self._settings.flush)

    async def _wait_for_caches(self) -> bool:
        for informer in self._informers.values():
            await informer.synced.wait()
        return True

    async def _run_workers(self) -> None:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(workers.run()) for workers in self._workers]
            runnables = [group.create_task(runnable()) for runnable in self._runnables]
            await self._stopping.wait()
            self.ready.clear()
            for task in runnables:
                task.cancel()
            logger.info("Stopping workers", drain=self._settings.drain)
            for workers in self._workers:
                workers.stop()
            if running:
                await asyncio.wait(running, timeout=self._settings.drain.total_seconds())
            for task in running:
                task.cancel()

    async def _until_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            stop = group.create_task(self._stopping.wait())
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            task.cancel()
            stop.cancel()
        # Both may end in the same loop iteration: a finished task ignores the cancellation, so a lease just acquired is kept.
        return None if task.cancelled() else task.result()

    def _reason_not_ready(self) -> str:
        if self._lost is not None:
            return "lease lost"
        return "stopping" if self._stopping.is_set() else ""

    def _add_sync_check(self, informer: Informer[Any]) -> None:
        resource, selection = informer.kind.resource, informer.selection
        name = "/".join(part for part in ("cache", resource.plural, selection.namespace) if part)

        def check() -> str:
            return "" if informer.synced.is_set() else "not synced yet"

        for probes in self.probes:
            probes.add_ready_check(name, check)


def _unwrap(error: Exception) -> Exception:
    """Return the error inside nested groups of one, which is easier to read."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
