"""The strategies that are compared: Bramley's own controller, and two models of the controller that it replaces.

The models follow the rules of the existing controller on the API objects: a finished Pod is deleted and replaced by one of
`spec.image` at once, whatever the hosts have on their disks, and idle stale Pods get the drain label by one of two rules:

- staggered: the Pods are divided by a hash of their names into eight groups; every 30 s the next group may leave;
- capped: as long as fewer Pods than the cap are in flight, namely stale Pods with the label and, while a stale Pod is alive, Pods
  of the current image that are not Ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from prometheus_client import CollectorRegistry

from bench.roll.fleet import NAMESPACE, NEW, OLD, POOL, Fleet, image_of, is_alive, is_ready, running
from bramley.api.meta import ObjectMeta
from bramley.api.names import labels
from bramley.api.pod import Container, Pod, PodSpec, ResourceRequirements, Toleration
from bramley.base import errors
from bramley.runners import controllers
from bramley.runners.pod_template import TemplateSettings

SLOTS = 8
SLOT_PERIOD = timedelta(seconds=30)
_DISPATCH_URL = "https://dispatch.example/api/internal/runners/dispatch"


class Strategy(Protocol):
    """Keeps the Pods of the pool, and rolls its image."""

    def running(self, fleet: Fleet) -> AbstractAsyncContextManager[None]:
        """Run the controller."""
        ...

    async def roll(self, fleet: Fleet) -> None:
        """Begin to roll the new image."""
        ...


class Bramley:
    """The pool controller of this repository."""

    @asynccontextmanager
    async def running(self, fleet: Fleet) -> AsyncIterator[None]:
        """Run the controller."""
        manager = fleet.manager()
        controllers.add(
            manager,
            controllers.Settings(NAMESPACE, TemplateSettings(dispatch_url=_DISPATCH_URL)),
            clock=fleet.clock,
            registry=CollectorRegistry(),
        )
        async with running(manager):
            yield

    async def roll(self, fleet: Fleet) -> None:
        """Change the image of the pool; the controller does the rest."""
        await fleet.roll()


class Rule(Protocol):
    """Selects the Pods that get the drain label."""

    def select(self, pods: Sequence[Pod], image: str, *, seconds: float) -> list[Pod]:
        """Return the Pods to mark, so many seconds after the image has changed."""
        ...

    def next_check(self, seconds: float) -> float | None:
        """Return after how many seconds time alone changes the selection."""
        ...


@dataclass(frozen=True, slots=True)
class Staggered:
    """Eight groups, one after the other, whatever the state of the Pods."""

    def select(self, pods: Sequence[Pod], image: str, *, seconds: float) -> list[Pod]:
        """Return the idle stale Pods of the groups that may leave."""
        groups = int(seconds // SLOT_PERIOD.total_seconds()) + 1
        return [pod for pod in unmarked(pods, image) if group_of(pod.name) < groups]

    def next_check(self, seconds: float) -> float | None:
        """Return when the next group may leave."""
        period = SLOT_PERIOD.total_seconds()
        return None if seconds >= SLOTS * period else period - seconds % period


@dataclass(frozen=True, slots=True)
class Capped:
    """As many as the cap leaves."""

    cap: int

    def select(self, pods: Sequence[Pod], image: str, *, seconds: float) -> list[Pod]:
        """Return as many idle stale Pods as the cap leaves room for."""
        del seconds
        alive = [pod for pod in pods if is_alive(pod)]
        stale = [pod for pod in alive if image_of(pod) != image]
        marked = [pod for pod in stale if labels.DRAIN_ELIGIBLE in pod.metadata.labels]
        if not stale:
            return []
        booting = [pod for pod in alive if image_of(pod) == image and not is_ready(pod)]
        in_flight = len(marked) + len(booting)
        return unmarked(pods, image)[: max(0, self.cap - in_flight)]

    def next_check(self, seconds: float) -> float | None:
        """Return None: only Pods change the selection."""
        del seconds
        return None


def group_of(name: str) -> int:
    """Return the group of a Pod."""
    return hashlib.sha256(name.encode()).digest()[0] % SLOTS


def unmarked(pods: Sequence[Pod], image: str) -> list[Pod]:
    """Return the running idle Pods of another image that have no drain label."""
    return [
        pod
        for pod in pods
        if is_alive(pod)
        and image_of(pod) != image
        and pod.status.phase == "Running"
        and not pod.metadata.labels.get(labels.RUNNER_POOL_OWNER)
        and labels.DRAIN_ELIGIBLE not in pod.metadata.labels
    ]


@dataclass(slots=True)
class ExistingController:
    """The existing controller with one of its rules."""

    rule: Rule
    _image: str = OLD
    _changed_at: float = 0.0
    _changed: asyncio.Event | None = None

    @asynccontextmanager
    async def running(self, fleet: Fleet) -> AsyncIterator[None]:
        """Run the controller."""
        self._changed = fleet.observer.changed
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._run(fleet))
            yield
            task.cancel()

    async def roll(self, fleet: Fleet) -> None:
        """Change the image of the pool."""
        await fleet.roll()
        self._image, self._changed_at = NEW, fleet.clock.monotonic()
        fleet.observer.changed.set()

    async def _run(self, fleet: Fleet) -> None:
        observer, known = fleet.observer, Writes(fleet)
        await observer.informer.synced.wait()
        while True:
            observer.changed.clear()
            seconds = fleet.clock.monotonic() - self._changed_at
            await self._reconcile(known, seconds)
            await _wait(observer.changed, self.rule.next_check(seconds))

    async def _reconcile(self, known: Writes, seconds: float) -> None:
        for pod in known.pods():
            if not is_alive(pod) and not pod.deleting:
                await known.delete(pod)
        for pod in self.rule.select(known.pods(), self._image, seconds=seconds):
            await known.mark(pod)
        while sum(map(is_alive, known.pods())) < known.fleet.scenario.hosts:
            await known.create(self._image)


@dataclass(slots=True)
class Writes:
    """Writes Pods, and shows them as written, even where the watch lags behind."""

    fleet: Fleet
    _newest: dict[str, Pod] = field(default_factory=dict)
    _deleted: set[str] = field(default_factory=set)
    _created: int = 0

    def pods(self) -> list[Pod]:
        """Return all Pods."""
        observed = {pod.name: pod for pod in self.fleet.observer.pods()}
        for name, pod in list(self._newest.items()):
            if name in observed and version(observed[name]) >= version(pod):
                del self._newest[name]
        found = {**observed, **self._newest}
        return [pod for name, pod in found.items() if name not in self._deleted]

    async def create(self, image: str) -> None:
        """Create a Pod."""
        name = f"{POOL}-runner-{self._created:08x}"
        self._created += 1
        self._newest[name] = await self.fleet.kube.create(a_pod(name, image))

    async def mark(self, pod: Pod) -> None:
        """Set the drain label of a Pod."""
        patch = {"metadata": {"labels": {labels.DRAIN_ELIGIBLE: labels.TRUE}}}
        with contextlib.suppress(errors.NotFound):
            self._newest[pod.name] = await self.fleet.kube.merge_patch(
                Pod, pod.name, patch, namespace=NAMESPACE
            )

    async def delete(self, pod: Pod) -> None:
        """Delete a Pod."""
        self._deleted.add(pod.name)
        self._newest.pop(pod.name, None)
        with contextlib.suppress(errors.NotFound):
            await self.fleet.kube.delete(Pod, pod.name, namespace=NAMESPACE, uid=pod.uid)


def version(pod: Pod) -> int:
    """Return the version of a Pod as a number."""
    return int(pod.metadata.resource_version)


async def _wait(changed: asyncio.Event, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        return


def a_pod(name: str, image: str) -> Pod:
    """Return a Pod as the existing controller creates it, with the fields that the scheduler and the hosts use."""
    amounts: dict[str, str | int | float] = {"cpu": "8", "memory": "14336Mi"}
    resources = ResourceRequirements(requests=amounts, limits=amounts)
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=NAMESPACE,
            labels={labels.RUNNER: labels.TRUE, labels.RUNNER_POOL: POOL},
        ),
        spec=PodSpec(
            containers=[Container(name="runner", image=image, resources=resources)],
            node_selector={labels.OS: labels.DARWIN, labels.FLEET: "demo"},
            tolerations=[
                Toleration(key=labels.MACOS_TAINT, operator="Exists", effect=labels.NO_SCHEDULE)
            ],
            restart_policy="Never",
        ),
    )
