"""`GarbageCollector`: processes objects whose owners changed, and deletes or orphans them.

Nothing is deleted because of the graph alone: the object and its owners are read again, and the delete request has the uid
and resourceVersion as preconditions, so a concurrent write wins. Workers wait while the graph is incomplete.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Literal, NamedTuple, NoReturn

import msgspec

from bramley.api.meta import OwnerReference
from bramley.apiserver.controllers.discovery import PartialObject
from bramley.apiserver.controllers.garbage.graph_builder import (
    FOREGROUND,
    ORPHAN,
    GraphBuilder,
    Work,
    is_deleting,
    orphans_dependents,
    waits_for_dependents,
)
from bramley.apiserver.controllers.objects import patch_object
from bramley.apiserver.controllers.timings import Timings
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.base.errors import Captured
from bramley.kube.client import Client
from bramley.runtime.events import Recorder
from bramley.runtime.manager import Manager
from bramley.runtime.queue import QueueMetrics, WorkQueue

logger = log.get(__name__)

NAME = "garbage-collector-controller"
WORKERS = 8
_MAX_RETRY = timedelta(seconds=1000)
_ABSENT_OWNERS_LIMIT = 500


class OwnerState(Enum):
    """The state of an owner as the API reports it."""

    SOLID = "exists"
    ABSENT = "does not exist, or another object has its name"
    WAITING_FOR_DEPENDENTS = "is deleted once its dependents are gone"


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the object unchanged."""


@dataclass(frozen=True, slots=True)
class DropOwners:
    """Keep the object, but remove the owner references with these uids."""

    uids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object; first stop it from blocking its owners if it may be part of a cycle."""

    propagation: Literal["Background", "Foreground", "Orphan"]
    unblock: bool = False


Decision = Keep | DropOwners | Delete


def decide(
    item: PartialObject, owners: Mapping[str, OwnerState], dependents: Sequence[PartialObject]
) -> Decision:
    """Return what to do with an object that has these owners and dependents."""
    by_state: dict[OwnerState, set[str]] = {state: set() for state in OwnerState}
    for uid, state in owners.items():
        by_state[state].add(uid)
    if not owners:
        return Keep()
    if by_state[OwnerState.SOLID]:
        removable = by_state[OwnerState.ABSENT] | by_state[OwnerState.WAITING_FOR_DEPENDENTS]
        return DropOwners(frozenset(removable)) if removable else Keep()
    if by_state[OwnerState.WAITING_FOR_DEPENDENTS] and dependents:
        # A dependent that waits for its own dependents may wait for this object: a deadlock.
        is_cycle = any(waits_for_dependents(each) for each in dependents)
        return Delete("Foreground", unblock=is_cycle)
    if ORPHAN in item.metadata.finalizers:
        return Delete("Orphan")
    return Delete("Foreground" if FOREGROUND in item.metadata.finalizers else "Background")


def owners_without(item: PartialObject, uids: frozenset[str]) -> list[OwnerReference]:
    """Return the owner references except those with these uids."""
    return [ref for ref in item.metadata.owner_references if ref.uid not in uids]


class WorkItem(NamedTuple):
    """An attempt to delete an object, or to orphan its dependents."""

    uid: str
    orphan: bool = False


class _Unresolvable(Exception):
    """The owner cannot be found, now or later: a cluster-scoped object names an owner of a namespaced kind."""


@dataclass(slots=True)
class AbsentOwners:
    """A bounded cache of owners that do not exist; uids are never reused, so it cannot become stale."""

    _known: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict)

    def add(self, uid: str, namespace: str) -> None:
        """Record that no such owner is in this namespace."""
        self._known[uid, namespace] = None
        if len(self._known) > _ABSENT_OWNERS_LIMIT:
            self._known.popitem(last=False)

    def has(self, uid: str, namespace: str) -> bool:
        """Return whether the owner is known not to exist."""
        return (uid, namespace) in self._known


@dataclass(slots=True)
class GarbageCollector:
    """Processes the work that the graph builder enqueues."""

    client: Client
    queue: WorkQueue[WorkItem]
    recorder: Recorder
    builder: GraphBuilder
    absent: AbsentOwners = field(default_factory=AbsentOwners)

    def enqueue(self, work: Work) -> None:
        """Enqueue the work, and record an event for each misplaced owner reference."""
        for uid in work.attempt_to_delete:
            self.queue.add(WorkItem(uid))
        for uid in work.attempt_to_orphan:
            self.queue.add(WorkItem(uid, orphan=True))
        for dependent, ref in work.misplaced:
            namespace = dependent.metadata.namespace or ""
            owner = f"[{ref.api_version}/{ref.kind}, namespace: {namespace}, name: {ref.name}, uid: {ref.uid}]"
            message = f'ownerRef {owner} does not exist in namespace "{namespace}"'
            self.recorder.warning(dependent, "OwnerRefInvalidNamespace", message)

    async def work(self) -> NoReturn:
        """Process one work item after the other until cancelled."""
        while True:
            await self.builder.complete.wait()
            task = await self.queue.get()
            try:
                await self._process(task)
            finally:
                self.queue.done(task)

    async def _process(self, task: WorkItem) -> None:
        # Wait again: the graph may have become incomplete while this worker waited for the item.
        await self.builder.complete.wait()
        again = True
        with Captured() as caught:
            attempt = self.attempt_to_orphan if task.orphan else self.attempt_to_delete
            again = await attempt(task.uid)
        if isinstance(caught.error, errors.BramleyError):
            logger.debug(
                "Garbage collection of object failed", uid=task.uid, error=str(caught.error)
            )
        elif caught.error is not None:
            logger.error("Garbage collection of object crashed", exc=caught.error, uid=task.uid)
        if again:
            self.queue.add_rate_limited(task)
        else:
            self.queue.forget(task)

    async def attempt_to_delete(self, uid: str) -> bool:
        """Delete the object if no owner is left; return whether to try again."""
        observed = self.builder.graph.objects.get(uid)
        if observed is None or (is_deleting(observed) and not waits_for_dependents(observed)):
            return False
        latest = await self._latest(observed)
        if latest is None:
            return False
        if waits_for_dependents(latest):
            return await self._finish_foreground_deletion(latest)
        try:
            refs = {ref.uid: ref for ref in latest.metadata.owner_references}
            owners = {uid: await self._owner_state(ref, latest) for uid, ref in refs.items()}
        except _Unresolvable:
            return False
        decision = decide(latest, owners, self.builder.graph.dependents(uid))
        if isinstance(decision, DropOwners):
            await self._set_owners(latest, owners_without(latest, decision.uids))
        elif isinstance(decision, Delete):
            await self._delete(latest, decision)
        # No event reports the deletion of an owner that is missing in the graph, so it has to be polled.
        objects = self.builder.graph.objects
        return any(
            state is OwnerState.SOLID and owner not in objects for owner, state in owners.items()
        )

    async def attempt_to_orphan(self, uid: str) -> bool:
        """Remove the owner reference from all dependents, and then the finalizer from the owner."""
        owner = self.builder.graph.objects.get(uid)
        if owner is None or not orphans_dependents(owner):
            return False
        for each in self.builder.graph.dependents(uid):
            dependent = await self._latest(each)
            if dependent is not None:
                await self._set_owners(dependent, owners_without(dependent, frozenset({uid})))
        # Last: without the finalizer the owner disappears, and dependents that still name it would be deleted.
        return await self._remove_finalizer(owner, ORPHAN)

    async def _latest(self, observed: PartialObject) -> PartialObject | None:
        """Read the object again; if it is gone, remove it from the graph and return None."""
        meta = observed.metadata
        with suppress(errors.NotFound):
            latest = await self.client.get(type(observed), meta.name, namespace=meta.namespace)
            if latest.uid == observed.uid:
                return latest
        self.enqueue(self.builder.graph.remove(observed.uid))
        return None

    async def _owner_state(self, ref: OwnerReference, dependent: PartialObject) -> OwnerState:
        namespace = dependent.metadata.namespace or ""
        if self.absent.has(ref.uid, "") or self.absent.has(ref.uid, namespace):
            return OwnerState.ABSENT
        resource = self.builder.resource_of(ref.api_version, ref.kind)
        if resource.namespaced and not namespace:
            raise _Unresolvable
        namespace = namespace if resource.namespaced else ""
        kind = self.builder.kinds.of(resource)
        with suppress(errors.NotFound):
            owner = await self.client.get(kind, ref.name, namespace=namespace or None)
            if owner.uid == ref.uid:
                waits = waits_for_dependents(owner)
                return OwnerState.WAITING_FOR_DEPENDENTS if waits else OwnerState.SOLID
        self.absent.add(ref.uid, namespace)
        return OwnerState.ABSENT

    async def _finish_foreground_deletion(self, latest: PartialObject) -> bool:
        blocking = self.builder.graph.blocking(latest.uid)
        if not blocking:
            return await self._remove_finalizer(latest, FOREGROUND)
        for each in blocking:
            if not waits_for_dependents(each):
                self.queue.add(WorkItem(each.uid))
        return False

    async def _set_owners(self, dependent: PartialObject, owners: list[OwnerReference]) -> None:
        if owners == dependent.metadata.owner_references:
            return
        patch = {"metadata": {"ownerReferences": [msgspec.to_builtins(ref) for ref in owners]}}
        await self._patch(dependent, patch)

    async def _remove_finalizer(self, observed: PartialObject, finalizer: str) -> bool:
        latest = await self._latest(observed)
        if latest is not None and finalizer in latest.metadata.finalizers:
            remaining = [each for each in latest.metadata.finalizers if each != finalizer]
            await self._patch(latest, {"metadata": {"finalizers": remaining}})
        return False

    async def _patch(self, dependent: PartialObject, patch: Mapping[str, object]) -> None:
        with suppress(errors.NotFound):
            await patch_object(self.client, dependent, patch)

    async def _delete(self, dependent: PartialObject, decision: Delete) -> None:
        meta = dependent.metadata
        if decision.unblock:
            freed = [
                msgspec.structs.replace(ref, block_owner_deletion=False)
                for ref in meta.owner_references
            ]
            await self._set_owners(dependent, freed)
            # The patch has changed the version that the deletion requires.
            dependent = await self._latest(dependent) or dependent
            meta = dependent.metadata
        logger.debug(
            "Garbage-collecting object",
            kind=dependent.resource.kind,
            namespace=meta.namespace or "",
            name=meta.name,
            reason="no owner is left",
        )
        with suppress(errors.NotFound):
            await self.client.delete(
                type(dependent),
                meta.name,
                namespace=meta.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
                propagation=decision.propagation,
            )


async def run(collector: GarbageCollector) -> None:
    """Run the graph builder and the workers until cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(collector.builder.run())
        for _ in range(WORKERS):
            group.create_task(collector.work())


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the garbage collector to a manager; it is no controller of a single kind, so it has its own workers."""
    rng = random.Random(0)
    queue = WorkQueue[WorkItem](
        clock=clock,
        rng=rng,
        metrics=QueueMetrics(manager.metrics, NAME),
        backoff=Backoff(timings.garbage_retry, _MAX_RETRY),
    )
    builder = GraphBuilder(client, clock, rng, manager.metrics, timings.garbage_discovery_period)
    collector = GarbageCollector(client, queue, manager.recorder(NAME), builder)
    builder.enqueue = collector.enqueue
    manager.add_runnable(partial(run, collector))
