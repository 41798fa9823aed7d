"""The dispatch server and the pollers of guests in one model, with the contract of existing fleets.

An idle guest polls every two seconds, but has no timer: its next poll is computed when there is something to find, a job or the
drain label. A poll reads the Pod, as the server does. A stale Pod with the drain label gets no job and exits, and so does one that an
operator drains; otherwise the first queued job is claimed by the owner label, with the uid as precondition. One Pod runs one job.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime

from prometheus_client import CollectorRegistry

from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.informer import Informer
from bramley.runtime.keys import Key
from bramley.runtime.metrics import RuntimeMetrics
from bramley.sim.fleet.jobs import Job
from bramley.sim.fleet.vms import ModelledVm


@dataclass(frozen=True, slots=True)
class FinishedJobs:
    """The jobs of one image: how many finished, and how many of them failed."""

    finished: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class RollSignals:
    """What dispatch knows about a roll: the first poll of each Pod, and the jobs of each image."""

    first_polls: dict[str, datetime]
    images: dict[str, FinishedJobs]


@dataclass(frozen=True, slots=True)
class _Pool:
    label: str
    target_image: str


@dataclass(slots=True, eq=False)
class _Guest:
    """A guest that polls; with a job it does not poll any more."""

    vm: ModelledVm
    pool: str
    first_poll: float
    timer: asyncio.TimerHandle | None = None
    is_polling: bool = False
    job: Job | None = None

    @property
    def is_idle(self) -> bool:
        return self.job is None and not self.is_polling and self.timer is None

    def next_poll(self, now: float, period: float) -> float:
        polls = math.ceil((now - self.first_poll) / period - 1e-9)
        return self.first_poll + max(0, polls) * period


@dataclass(slots=True, eq=False)
class DispatchModel:
    """Gives queued jobs to idle guests; `run` until cancelled, or use `running`."""

    kube: Client
    _: KW_ONLY
    clock: Clock
    poll_seconds: float = 2.0
    seed: int = 0
    # Whether RunnerPools are watched; otherwise `set_pool` is called.
    watches_pools: bool = True
    first_polls: dict[str, datetime] = field(default_factory=dict)
    # Jobs that have ended, in this order.
    finished: list[Job] = field(default_factory=list)
    _pools: dict[str, _Pool] = field(default_factory=dict)
    _pool_of_pod: dict[str, str] = field(default_factory=dict)
    _queues: dict[str, deque[Job]] = field(default_factory=dict)
    _guests: dict[str, _Guest] = field(default_factory=dict)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._rng = random.Random(f"dispatch/{self.seed}")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve guests while the context lasts."""
        async with asyncio.TaskGroup() as group:
            started = asyncio.Event()
            task = group.create_task(self.run(started))
            await started.wait()
            yield
            task.cancel()

    async def run(self, started: asyncio.Event | None = None) -> None:
        """Serve guests until cancelled."""
        async with self._group as group:
            if self.watches_pools:
                pools = self._informer()
                pools.on_change(self._on_pool)
                group.create_task(pools.run())
                await pools.synced.wait()
            if started is not None:
                started.set()
            await asyncio.Event().wait()

    def set_pool(self, name: str, *, label: str, image: str) -> None:
        """Define a pool: the label of its jobs, and the image that is not stale."""
        self._pools[name] = _Pool(label, image)
        for guest in list(self._guests.values()):
            self._check_drain(guest)
        self._wake(name)

    def enqueue(self, job: Job) -> None:
        """Queue a job behind all others."""
        self._queues.setdefault(job.label, deque()).append(job)
        self._wake_label(job.label)

    def queued(self, label: str) -> int:
        """Return how many jobs wait."""
        return len(self._queues.get(label, ()))

    def running_jobs(self) -> list[Job]:
        """Return the jobs that run."""
        return [guest.job for guest in self._guests.values() if guest.job is not None]

    async def roll_signals(self, pool: str, since: datetime | None = None) -> RollSignals:
        """Return the first polls of a pool's Pods, and the jobs per image that have finished since a time."""
        polls = {
            pod: at for pod, at in self.first_polls.items() if self._pool_of_pod.get(pod) == pool
        }
        images: dict[str, FinishedJobs] = {}
        for job in self.finished:
            ended = job.finished_at
            if self._pool_of_pod.get(job.pod) != pool or ended is None:
                continue
            if since is None or ended >= since:
                counts = images.get(job.image, FinishedJobs())
                images[job.image] = FinishedJobs(
                    counts.finished + 1, counts.failed + int(job.has_failed)
                )
        return RollSignals(polls, images)

    def guest_polls(self, vm: ModelledVm) -> None:
        """Handle the first poll of a guest."""
        pod = vm.pod
        pool = pod.metadata.labels.get(labels.RUNNER_POOL, "")
        self.first_polls[pod.name] = self.clock.now()
        self._pool_of_pod[pod.name] = pool
        now = asyncio.get_running_loop().time()
        guest = self._guests[pod.uid] = _Guest(vm, pool, now)
        self._check_drain(guest)
        self._wake(pool)

    def guest_changed(self, vm: ModelledVm) -> None:
        """Handle a change of the Pod of a guest."""
        guest = self._guests.get(vm.pod.uid)
        if guest is not None:
            self._check_drain(guest)

    def guest_gone(self, vm: ModelledVm) -> None:
        """Queue the job of a guest again if its VM was stopped."""
        guest = self._guests.pop(vm.pod.uid, None)
        if guest is None:
            return
        if guest.timer is not None:
            guest.timer.cancel()
        if guest.job is not None:
            guest.job.lost += 1
            self._requeue(guest.job)
            guest.job = None

    def _informer(self) -> Informer[RunnerPool]:
        metrics = RuntimeMetrics(CollectorRegistry())
        return Informer(RunnerPool, self.kube, clock=self.clock, rng=self._rng, metrics=metrics)

    def _on_pool(self, key: Key, _old: RunnerPool | None, new: RunnerPool | None) -> None:
        if new is None:
            self._pools.pop(key.name, None)
            return
        image = new.status.target_image or new.spec.image
        pool = _Pool(new.spec.dispatch_label, image)
        if self._pools.get(key.name) != pool:
            self.set_pool(key.name, label=pool.label, image=image)

    def _check_drain(self, guest: _Guest) -> None:
        """Poll for a guest that would be drained."""
        if guest.is_idle and self._is_drained(guest.vm.pod, guest.pool):
            self._schedule(guest)

    def _is_drained(self, pod: Pod, pool: str) -> bool:
        found = pod.metadata.labels
        if found.get(labels.OPERATOR_DRAIN) == labels.TRUE:
            return True
        known = self._pools.get(pool)
        is_stale = known is not None and pod.spec.containers[0].image != known.target_image
        return is_stale and found.get(labels.DRAIN_ELIGIBLE) == labels.TRUE

    def _wake(self, pool: str) -> None:
        known = self._pools.get(pool)
        if known is not None:
            self._wake_label(known.label)

    def _wake_label(self, label: str) -> None:
        """Poll for as many idle guests as jobs wait, those whose poll is next first."""
        guests = [each for each in self._guests.values() if self._label(each) == label]
        polling = sum(each.timer is not None or each.is_polling for each in guests)
        missing = self.queued(label) - polling
        if missing <= 0:
            return
        now = asyncio.get_running_loop().time()
        idle = sorted(
            (each for each in guests if each.is_idle),
            key=lambda each: each.next_poll(now, self.poll_seconds),
        )
        for guest in idle[:missing]:
            self._schedule(guest)

    def _label(self, guest: _Guest) -> str | None:
        known = self._pools.get(guest.pool)
        return None if known is None else known.label

    def _schedule(self, guest: _Guest, *, after: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        when = guest.next_poll(loop.time() + after, self.poll_seconds)
        guest.timer = loop.call_at(when, self._start_poll, guest)

    def _start_poll(self, guest: _Guest) -> None:
        guest.timer = None
        guest.is_polling = True
        self._group.create_task(self._poll(guest))

    async def _poll(self, guest: _Guest) -> None:
        retry = False
        try:
            await self._answer(guest)
        except errors.Unavailable:
            # The guest got an error and polls again.
            retry = True
        except errors.BramleyError:
            # The Pod is gone or was replaced; its VM ends by itself.
            self._guests.pop(guest.vm.pod.uid, None)
        finally:
            guest.is_polling = False
        if guest.vm.pod.uid not in self._guests or guest.job is not None:
            self._wake(guest.pool)
        elif retry:
            self._schedule(guest, after=self.poll_seconds / 2)
        else:
            self._check_drain(guest)

    async def _answer(self, guest: _Guest) -> None:
        """Answer one poll: exit, a job, or nothing."""
        known = guest.vm.pod
        pod = await self.kube.get(Pod, known.name, namespace=known.namespace)
        if pod.uid != known.uid or pod.deleting or guest.vm.pod.uid not in self._guests:
            self._guests.pop(known.uid, None)
            return
        is_claimed = bool(pod.metadata.labels.get(labels.RUNNER_POOL_OWNER))
        if is_claimed or self._is_drained(pod, guest.pool):
            del self._guests[known.uid]
            guest.vm.exit(0)
            return
        queue = self._queues.get(self._label(guest) or "")
        if queue:
            await self._claim(guest, pod, queue.popleft())

    async def _claim(self, guest: _Guest, pod: Pod, job: Job) -> None:
        patch = {"metadata": {"labels": {labels.RUNNER_POOL_OWNER: job.account}}}
        is_claimed = False
        try:
            await self.kube.merge_patch(Pod, pod.name, patch, namespace=pod.namespace, uid=pod.uid)
            is_claimed = True
        finally:
            if not is_claimed:
                self._requeue(job)
        if pod.uid not in self._guests:
            # The VM ended while the label was written.
            self._requeue(job)
            return
        job.pod, job.image, job.started_at = pod.name, guest.vm.image, self.clock.now()
        guest.job = job
        loop = asyncio.get_running_loop()
        loop.call_later(job.duration.total_seconds(), self._finish, guest, job)

    def _finish(self, guest: _Guest, job: Job) -> None:
        # The job was queued again when its VM was stopped.
        if guest.job is not job:
            return
        job.finished_at = self.clock.now()
        job.has_failed = self._rng.random() < guest.vm.model.job_failure_rate
        self.finished.append(job)
        guest.job = None
        self._guests.pop(guest.vm.pod.uid, None)
        guest.vm.exit(0)

    def _requeue(self, job: Job) -> None:
        job.started_at = None
        self._queues.setdefault(job.label, deque()).appendleft(job)
        self._wake_label(job.label)
