"""All changes of the Pods, Nodes and the pool of a fleet during a roll, replayed in the order in which the server stored them.

Both servers number the changes of all kinds together, so the events of several watches have one order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple, cast

import msgspec

from bramley.api import names
from bramley.api.core import Node
from bramley.api.meta import Object
from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.apiserver.store.store import Store
from bramley.kube.client import Client
from tests.process.runners.fleet import POOL, RunnerFleet
from tests.scenarios.runners.invariants import (
    Invariants,
    image_of,
    is_alive,
    is_claimed,
    of_pool,
)

KINDS: dict[type[Object], str] = {
    Pod: "pods",
    RunnerPool: "runnerpools.tuist.dev",
    Node: "nodes",
}


class Change(NamedTuple):
    """One change, and when this process learned of it."""

    version: int
    at: float
    type: str
    object: Object


class Record(NamedTuple):
    """An object in the form of the server's store."""

    rv: int
    body: bytes


class Moment(NamedTuple):
    """What the pool looked like after a change."""

    at: float
    in_flight: int
    # The same with the Pods that the pool's status announces.
    announced: int
    stale: int


@dataclass(slots=True)
class History:
    """What was seen so far; `pods` and `pool` are the latest state."""

    fleet: RunnerFleet
    changes: list[Change] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)
    pool: RunnerPool | None = None

    async def follow(self, kind: type[Object], ready: asyncio.Event) -> None:
        """Record all objects of a kind, then their changes."""
        kube: Client = self.fleet.kube
        namespace = None if kind is Node else self.fleet.namespace
        selector = f"{labels.FLEET}={self.fleet.name}" if kind is Node else None
        found = await kube.list(kind, namespace=namespace, labels=selector)
        for each in found.items:
            self._add("ADDED", each)
        async with kube.watch(
            kind,
            namespace=namespace,
            labels=selector,
            resource_version=found.resource_version,
            bookmarks=False,
            timeout=timedelta(minutes=20),
        ) as watch:
            ready.set()
            async for event in watch:
                self._add(event.type, event.object)

    def _add(self, type_: str, found: Object) -> None:
        version = int(found.metadata.resource_version)
        self.changes.append(Change(version, time.monotonic(), type_, found))
        if isinstance(found, Pod):
            self.pods[found.name] = found
        elif isinstance(found, RunnerPool):
            self.pool = found

    def replay(self) -> tuple[Invariants, list[Moment]]:
        """Check the invariants after every change, and return what the pool looked like after each."""
        stored = _Stored()
        invariants = Invariants(cast("Store", stored))
        moments = []
        for change in sorted(self.changes, key=lambda change: change.version):
            if is_claimed_and_deleted(stored.find(change.object), change):
                invariants.violations.append(f"claimed Pod {change.object.name} was deleted")
            stored.apply(change)
            invariants.observe(f"{change.version} {change.type} {change.object.name}")
            moments.append(_moment(stored, invariants, change))
        return invariants, moments


@dataclass(slots=True)
class _Stored:
    """The objects at one moment of the replay, in the form of the server's store."""

    objects: dict[str, dict[str, tuple[Record, Object]]] = field(
        default_factory=lambda: {resource: {} for resource in KINDS.values()}
    )

    def apply(self, change: Change) -> None:
        found = change.object
        kept = self.objects[KINDS[type(found)]]
        if change.type == "DELETED":
            kept.pop(found.name, None)
        else:
            record = Record(change.version, msgspec.json.encode(found))
            kept[found.name] = (record, found)

    def find(self, found: Object) -> Object | None:
        before = self.objects[KINDS[type(found)]].get(found.name)
        return before[1] if before else None

    def list(self, resource: str) -> Iterator[Record]:
        return (record for record, _ in self.objects[resource].values())

    def pool(self) -> RunnerPool | None:
        found = self.objects[KINDS[RunnerPool]].get(POOL)
        return cast("RunnerPool", found[1]) if found else None

    def pods(self) -> Sequence[Pod]:
        return [cast("Pod", each) for _, each in self.objects[KINDS[Pod]].values()]


def _moment(stored: _Stored, invariants: Invariants, change: Change) -> Moment:
    count, pool = invariants.counts.get(POOL), stored.pool()
    if count is None or pool is None:
        return Moment(change.at, 0, 0, 0)
    alive = [pod for pod in stored.pods() if of_pool(pod, pool) and is_alive(pod)]
    stale = [pod for pod in alive if image_of(pod) != count.target]
    tickets = _tickets(pool, stored.pods(), stale, count.target) if count.stale else 0
    return Moment(change.at, count.in_flight, count.in_flight + tickets, len(stale))


def _tickets(pool: RunnerPool, pods: Sequence[Pod], stale: Sequence[Pod], target: str) -> int:
    """Count the Pods that the status announces to be marked or created, and that are not yet."""
    drained = {ticket.pod for ticket in pool.status.draining}
    unmarked = sum(
        pod.name in drained and not is_claimed(pod) and not is_marked(pod) for pod in stale
    )
    seen = {pod.metadata.annotations.get(names.annotations.RUNNER_SLOT) for pod in pods}
    pending = sum(
        slot.pending is not None
        and slot.pending.image == target
        and slot.pending.created_for != "Turnover"
        and f"{number}/{slot.counter}" not in seen
        for number, slot in enumerate(pool.status.slots)
    )
    return unmarked + pending


def is_claimed_and_deleted(before: Object | None, change: Change) -> bool:
    """Return whether a change deletes a Pod that had a job."""
    has_job = isinstance(before, Pod) and is_alive(before) and is_claimed(before)
    return has_job and (change.object.deleting or change.type == "DELETED")


def is_marked(pod: Pod) -> bool:
    """Return whether a roll drains a Pod."""
    return pod.metadata.labels.get(labels.DRAIN_ELIGIBLE) == labels.TRUE


@asynccontextmanager
async def recorded(fleet: RunnerFleet) -> AsyncIterator[History]:
    """Record the history of a fleet until the block ends."""
    history = History(fleet)
    # A watch that fails cancels the block.
    async with asyncio.TaskGroup() as group:
        started = {kind: asyncio.Event() for kind in KINDS}
        tasks = [group.create_task(history.follow(*each)) for each in started.items()]
        for each in started.values():
            await each.wait()
        yield history
        assert not any(task.done() for task in tasks), "a watch has ended"
        for task in tasks:
            task.cancel()
