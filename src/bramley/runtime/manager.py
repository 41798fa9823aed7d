"""Runs the controllers of one process: shared informers, election, workers, events and probes in one task group.

Start: informers fill their caches while the lease is waited for; workers start when both are there. Stop, in this order:
not ready, no new keys, running reconciles end or are cut off at the deadline, events are written, the lease is given back,
the rest ends. A lost lease stops the workers at once and `run` raises LeaseLost, so that the process starts afresh.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from bramley.api.meta import K, Object
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.runtime import python_garbage
from bramley.runtime.caught import Caught
from bramley.runtime.controller import Controller, Wake
from bramley.runtime.election import Election, ElectionSettings, Leadership
from bramley.runtime.events import Recorder
from bramley.runtime.fresh import Freshness
from bramley.runtime.informer import Informer, InformerSettings
from bramley.runtime.keys import Key
from bramley.runtime.metrics import RuntimeMetrics
from bramley.runtime.mirror import Handler
from bramley.runtime.probes import Probes, ProbeSettings
from bramley.runtime.queue import Priority
from bramley.runtime.reconciling import Surroundings
from bramley.runtime.source import EVERYTHING, Kube, Selection
from bramley.runtime.worker import Workers
from bramley.runtime.writes import FencedKube

# Until Python 3.12 looking up the member of an enum takes as long as queueing a key.
_DELETION, _CHANGE, _RESYNC = Priority


def by_primary(workers: Workers[K], informer: Informer[K]) -> None:
    """Wake each object when it changes itself."""
    add, synced = workers.queue.add, informer.synced.is_set

    def changed(key: Key, _old: K | None, new: K | None) -> None:
        add(key, _priority(new, is_synced=synced()))

    informer.on_change(changed)


def by_other(
    workers: Workers[K], wake: Wake, informer: Informer[Any], metrics: RuntimeMetrics
) -> None:
    """Wake the keys that a change of another kind concerns."""
    informer.on_change(_mapped(workers, wake, informer.synced.is_set, metrics))


def _mapped(
    workers: Workers[K], wake: Wake, synced: Callable[[], bool], metrics: RuntimeMetrics
) -> Handler[Any]:
    def changed(key: Key, old: Object | None, new: Object | None) -> None:
        keys: dict[Key, None] = {}
        with Caught() as caught:
            for state in (old, new):
                keys |= dict.fromkeys(wake.to(state) if state is not None else ())
        if caught.error is not None:
            metrics.mapping_bugs.of(workers.name).inc()
            kind = wake.kind.resource.kind
            logger.error("Mapping has a bug", exc=caught.error, kind=kind, object=str(key))
            workers.wake_all()
        priority = _priority(new, is_synced=synced())
        for woken in keys:
            workers.queue.add(woken, priority)

    return changed


def _priority(new: Object | None, *, is_synced: bool) -> Priority:
    if new is None or new.metadata.deletion_timestamp is not None:
        return _DELETION
    return _CHANGE if is_synced else _RESYNC


logger = log.get(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """What the process serves, whether it is elected, and how long it may take to stop."""

    election: ElectionSettings | None = None
    probes: tuple[ProbeSettings, ...] = ()
    drain: timedelta = timedelta(seconds=30)
    flush: timedelta = timedelta(seconds=2)
    informer: InformerSettings | None = None
    # Tune the process's garbage collector for caches; see `python_garbage`.
    calm_collector: bool = True


class Manager:
    """Owns everything that the controllers of a process share."""

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
        self._raw = kube
        self._clock = clock
        self._rng = rng
        self._stopping = asyncio.Event()
        self._lost: errors.LeaseLost | None = None
        self._informers: dict[tuple[type[Object], Selection], Informer[Any]] = {}
        self._workers: list[Workers[Any]] = []
        self._recorders: dict[str, Recorder] = {}
        self._beside: list[Callable[[], Coroutine[Any, Any, object]]] = []
        self.probes = [Probes(settings, registry) for settings in self._settings.probes]
        for probes in self.probes:
            probes.ready_check("manager", self._why_not_ready)
        freshness = Freshness()
        self.kube = FencedKube(kube, freshness=freshness, check=self.check)
        self._around = Surroundings(
            kube=self.kube,
            freshness=freshness,
            check=self.check,
            clock=clock,
            rng=rng,
            metrics=self.metrics,
        )

    def check(self) -> None:
        """Raise LeaseLost unless this process may act now."""
        if self._settings.election is None:
            return
        if self.leadership is None:
            raise errors.LeaseLost("this process does not lead")
        self.leadership.check()

    def informer(self, kind: type[K], selection: Selection = EVERYTHING) -> Informer[K]:
        """Return the one informer of this kind and selection."""
        known = self._informers.get((kind, selection))
        if known is not None:
            return known
        informer = Informer(
            kind,
            self._raw,
            clock=self._clock,
            rng=self._rng,
            metrics=self.metrics,
            selection=selection,
            settings=self._settings.informer,
        )
        self._informers[kind, selection] = informer
        self._around.freshness.follow(informer)
        self._probe_cache(informer)
        return informer

    def recorder(self, component: str, *, instance: str = "") -> Recorder:
        """Return the one event recorder of this component."""
        if component not in self._recorders:
            self._recorders[component] = Recorder(
                self._raw,
                component,
                clock=self._clock,
                rng=self._rng,
                metrics=self.metrics,
                instance=instance,
            )
        return self._recorders[component]

    def add(self, controller: Controller[K]) -> Workers[K]:
        """Run this controller too."""
        primary = self.informer(controller.kind, controller.selection)
        workers = Workers(controller, primary, self._around)
        by_primary(workers, primary)
        for wake in controller.wakes:
            other = self.informer(wake.kind, wake.selection)
            by_other(workers, wake, other, self.metrics)
        for bell in controller.bells:
            bell.heard_by(workers.queue.add)
        self._workers.append(workers)
        return workers

    def beside(self, job: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run this too while the workers run, for work that belongs to no single object; stopping cancels it."""
        self._beside.append(job)

    def stop(self) -> None:
        """Begin the graceful stop; `run` returns when it is done."""
        self._stopping.set()

    async def run(self) -> None:
        """Run until `stop`; raise LeaseLost when another process took over."""
        if self._settings.calm_collector:
            python_garbage.calm()
        try:
            async with asyncio.TaskGroup() as group:
                ground = [group.create_task(task) for task in self._ground()]
                await self._lead_until_stopped()
                for task in ground:
                    task.cancel()
        except ExceptionGroup as several:
            raise _only(several) from None
        if self._lost is not None:
            raise self._lost

    def _ground(self) -> Iterator[Coroutine[Any, Any, object]]:
        yield from (probes.run() for probes in self.probes)
        yield from (informer.run() for informer in self._informers.values())
        yield from (recorder.run() for recorder in self._recorders.values())
        yield self._become_ready()

    async def _become_ready(self) -> None:
        await self._synced()
        if self._settings.calm_collector:
            python_garbage.set_aside()
        for probes in self.probes:
            await probes.ready.wait()
        if not self._stopping.is_set():
            self.ready.set()

    async def _synced(self) -> None:
        for informer in self._informers.values():
            await informer.synced.wait()

    async def _lead_until_stopped(self) -> None:
        if self._settings.election is None:
            await self._work()
            return
        election = Election(
            self._settings.election,
            self._raw,
            clock=self._clock,
            rng=self._rng,
            metrics=self.metrics,
        )
        self.leadership = await self._unless_stopped(election.acquire())
        if self.leadership is None:
            return
        await self._work_while_holding(election, self.leadership)
        await election.release(self.leadership)

    async def _work_while_holding(self, election: Election, leadership: Leadership) -> None:
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self._work())
            hold = group.create_task(self._hold(election, leadership, work))
            await asyncio.wait((work,))
            hold.cancel()

    async def _hold(
        self, election: Election, leadership: Leadership, work: asyncio.Task[None]
    ) -> None:
        try:
            await election.hold(leadership)
        except errors.LeaseLost as lost:
            logger.warning("Lease lost", reason=str(lost))
            self._lost = lost
            work.cancel()

    async def _work(self) -> None:
        if await self._unless_stopped(self._synced_and_true()):
            self.leading.set()
            try:
                await self._run_workers()
            finally:
                self.leading.clear()
        self.ready.clear()
        for recorder in self._recorders.values():
            await recorder.flushed(self._settings.flush)

    async def _synced_and_true(self) -> bool:
        await self._synced()
        return True

    async def _run_workers(self) -> None:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(workers.run()) for workers in self._workers]
            beside = [group.create_task(job()) for job in self._beside]
            await self._stopping.wait()
            self.ready.clear()
            for task in beside:
                task.cancel()
            logger.info("Stopping", drain=self._settings.drain)
            for workers in self._workers:
                workers.stop()
            if running:
                await asyncio.wait(running, timeout=self._settings.drain.total_seconds())
            for task in running:
                task.cancel()

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            stop = group.create_task(self._stopping.wait())
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            task.cancel()
            stop.cancel()
        return None if task.cancelled() else task.result()

    def _why_not_ready(self) -> str:
        if self._lost is not None:
            return "lease lost"
        return "stopping" if self._stopping.is_set() else ""

    def _probe_cache(self, informer: Informer[Any]) -> None:
        resource, where = informer.kind.resource, informer.selection
        name = "/".join(part for part in ("cache", resource.plural, where.namespace) if part)

        def check() -> str:
            return "" if informer.synced.is_set() else "not synced yet"

        for probes in self.probes:
            probes.ready_check(name, check)


def _only(error: Exception) -> Exception:
    """Return the one error inside, if there is only one, so that people read it without the groups around it."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
