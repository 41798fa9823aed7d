"""The graph of owners and dependents, and `GraphBuilder`, which keeps it up to date by one informer per deletable kind.

The graph is keyed by uid, since names are reused. An object that is absent from the graph may still exist: its kind may not
be synced, or an event may be on its way. So decisions are made on live reads, and only while `complete` is set. Discovery
runs periodically, and at once when a CustomResourceDefinition changes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NoReturn

from bramley.api.meta import OwnerReference, Resource
from bramley.apiserver.controllers.discovery import Discovery, PartialObject, PartialTypes, discover
from bramley.apiserver.controllers.objects import log_errors
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.informer import Informer
from bramley.runtime.keys import Key
from bramley.runtime.metrics import RuntimeMetrics

logger = log.get(__name__)

# Events are many, expire by themselves, and own nothing.
IGNORED = frozenset({("", "events"), ("events.k8s.io", "events")})
_DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
_NEEDED = {"delete", "list", "watch"}
# A new definition is served shortly after it is written, and often comes with others.
_DISCOVERY_DELAY = timedelta(milliseconds=100)
_DISCOVERY_RETRY = timedelta(seconds=1)
ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"


def is_deleting(item: PartialObject) -> bool:
    """Return whether the object has a deletion timestamp."""
    return item.metadata.deletion_timestamp is not None


def waits_for_dependents(item: PartialObject) -> bool:
    """Return whether the object is being deleted in the foreground, after its dependents."""
    return is_deleting(item) and FOREGROUND in item.metadata.finalizers


def orphans_dependents(item: PartialObject) -> bool:
    """Return whether the object is being deleted and its dependents are to be orphaned."""
    return is_deleting(item) and ORPHAN in item.metadata.finalizers


@dataclass(slots=True)
class Work:
    """The work that a change of the graph requires; `misplaced` are references to owners in another namespace."""

    attempt_to_delete: dict[str, None] = field(default_factory=dict)
    attempt_to_orphan: dict[str, None] = field(default_factory=dict)
    misplaced: list[tuple[PartialObject, OwnerReference]] = field(default_factory=list)


@dataclass(slots=True)
class OwnerGraph:
    """Objects by uid, and the uids of the dependents of each owner."""

    objects: dict[str, PartialObject] = field(default_factory=dict)
    _dependents: dict[str, dict[str, None]] = field(default_factory=dict)

    def dependents(self, uid: str) -> list[PartialObject]:
        """Return the objects that name this one as an owner."""
        objects = (self.objects.get(each) for each in self._dependents.get(uid, ()))
        return [each for each in objects if each is not None]

    def blocking(self, uid: str) -> list[PartialObject]:
        """Return the dependents that block the foreground deletion of this object."""
        return [
            each
            for each in self.dependents(uid)
            if any(
                ref.uid == uid and ref.block_owner_deletion
                for ref in each.metadata.owner_references
            )
        ]

    def update(self, new: PartialObject) -> Work:
        """Add or update an object; return the work that follows."""
        work = Work()
        old = self.objects.get(new.uid)
        self.objects[new.uid] = new
        self._link(old, new)
        self._owners_changed(old, new, work)
        # Dependents may have been observed before their owner.
        if old is None:
            self._report_misplaced_dependents(new, work)
        self._deletion_changed(old, new, work)
        return work

    def remove(self, uid: str) -> Work:
        """Remove an object; its dependents and the owners that waited for it have to be processed."""
        work = Work()
        old = self.objects.pop(uid, None)
        if old is None:
            return work
        self._link(old, None)
        work.attempt_to_delete |= dict.fromkeys(self._dependents.get(uid, ()))
        for ref in old.metadata.owner_references:
            self._enqueue_waiting_owner(ref.uid, work)
        return work

    def _link(self, old: PartialObject | None, new: PartialObject | None) -> None:
        before = {ref.uid for ref in old.metadata.owner_references} if old else set()
        after = {ref.uid for ref in new.metadata.owner_references} if new else set()
        uid = new.uid if new is not None else old.uid if old is not None else ""
        for owner in before - after:
            linked = self._dependents.get(owner, {})
            linked.pop(uid, None)
            if not linked:
                self._dependents.pop(owner, None)
        for owner in after - before:
            self._dependents.setdefault(owner, {})[uid] = None

    def _owners_changed(self, old: PartialObject | None, new: PartialObject, work: Work) -> None:
        """Enqueue the object if an owner is unknown or being deleted, and the owners that it no longer blocks."""
        before = {ref.uid: ref for ref in old.metadata.owner_references} if old else {}
        after = {ref.uid: ref for ref in new.metadata.owner_references}
        for uid, ref in after.items():
            if uid not in before and self._needs_check(new, ref, work):
                work.attempt_to_delete[new.uid] = None
        for uid, ref in before.items():
            current = after.get(uid)
            if ref.block_owner_deletion and (current is None or not current.block_owner_deletion):
                self._enqueue_waiting_owner(uid, work)

    def _needs_check(self, dependent: PartialObject, ref: OwnerReference, work: Work) -> bool:
        owner = self.objects.get(ref.uid)
        if owner is None:
            return True
        if _is_misplaced(dependent, owner):
            work.misplaced.append((dependent, ref))
            return True
        identity = (ref.kind, ref.name, ref.api_version.rpartition("/")[0])
        resource = owner.resource
        is_other = identity != (resource.kind, owner.metadata.name, resource.group)
        return is_other or waits_for_dependents(owner)

    def _report_misplaced_dependents(self, owner: PartialObject, work: Work) -> None:
        for each in self.dependents(owner.uid):
            if _is_misplaced(each, owner):
                refs = (ref for ref in each.metadata.owner_references if ref.uid == owner.uid)
                work.misplaced += [(each, ref) for ref in refs]
                work.attempt_to_delete[each.uid] = None

    def _deletion_changed(self, old: PartialObject | None, new: PartialObject, work: Work) -> None:
        if waits_for_dependents(new) and (old is None or not waits_for_dependents(old)):
            work.attempt_to_delete[new.uid] = None
            work.attempt_to_delete |= dict.fromkeys(self._dependents.get(new.uid, ()))
        if orphans_dependents(new) and (old is None or not orphans_dependents(old)):
            work.attempt_to_orphan[new.uid] = None

    def _enqueue_waiting_owner(self, uid: str, work: Work) -> None:
        owner = self.objects.get(uid)
        if owner is not None and waits_for_dependents(owner):
            work.attempt_to_delete[uid] = None


def _is_misplaced(dependent: PartialObject, owner: PartialObject) -> bool:
    """Return whether the owner is in another namespace than the dependent."""
    namespace = owner.metadata.namespace
    return bool(namespace) and namespace != dependent.metadata.namespace


@dataclass(slots=True)
class _RunningInformer:
    informer: Informer[PartialObject]
    task: asyncio.Task[NoReturn]


@dataclass(slots=True)
class GraphBuilder:
    """Runs the informers of all kinds, and the graph that they fill."""

    client: Client
    clock: Clock
    rng: random.Random
    metrics: RuntimeMetrics
    period: timedelta
    enqueue: Callable[[Work], None] = lambda _work: None
    graph: OwnerGraph = field(default_factory=OwnerGraph)
    kinds: PartialTypes = field(default_factory=PartialTypes)
    discovery: Discovery = field(default_factory=Discovery)
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    _informers: dict[Resource, _RunningInformer] = field(default_factory=dict)
    _discovery_needed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> NoReturn:
        """Keep one informer per served kind until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                # Before the discovery: a definition that changes during it requires another one.
                self._discovery_needed.clear()
                pause = await self._sync_informers(group)
                await self._wait_for_discovery(pause)
        raise AssertionError

    def resource_of(self, api_version: str, kind: str) -> Resource:
        """Return the resource of an owner's kind; raise ApiUnavailable if it is not served."""
        resource = self.discovery.find(api_version, kind)
        if resource is None:
            # Served since the last discovery, or never; in both cases it is unknown whether the owner exists.
            self._discovery_needed.set()
            raise errors.ApiUnavailable(f"{kind} of {api_version} is not served")
        return resource

    async def _sync_informers(self, group: asyncio.TaskGroup) -> timedelta:
        try:
            discovery = await discover(self.client)
        except errors.BramleyError as error:
            logger.warning("Discovery failed", reason=error.reason, error=str(error))
            return _DISCOVERY_RETRY
        required = {
            each.resource
            for each in discovery.kinds
            if each.verbs >= _NEEDED and (each.resource.group, each.resource.plural) not in IGNORED
        }
        self.discovery = discovery
        missing = required - set(self._informers)
        # Cleared before the first await, so that no worker decides while an informer is still listing.
        if missing:
            self.complete.clear()
        for resource in missing:
            self._start_informer(resource, group)
        # A group that could not be read may still be served.
        if not discovery.failures:
            for resource in set(self._informers) - required:
                self._stop_informer(resource)
        await self._wait_until_synced()
        return _DISCOVERY_RETRY if discovery.failures else self.period

    async def _wait_until_synced(self) -> None:
        for each in list(self._informers.values()):
            # A kind that was deleted before its list completed never syncs; discovery then drops it.
            try:
                async with asyncio.timeout(_DISCOVERY_RETRY.total_seconds() * 30):
                    await each.informer.synced.wait()
            except TimeoutError:
                self._discovery_needed.set()
                return
        self.complete.set()

    def _start_informer(self, resource: Resource, group: asyncio.TaskGroup) -> None:
        informer = Informer(
            self.kinds.of(resource),
            self.client,
            clock=self.clock,
            rng=self.rng,
            metrics=self.metrics,
        )
        is_definition = (resource.group, resource.plural) == _DEFINITIONS

        def changed(_key: Key, old: PartialObject | None, new: PartialObject | None) -> None:
            if new is not None:
                self.enqueue(self.graph.update(new))
            elif old is not None:
                self.enqueue(self.graph.remove(old.uid))
            if is_definition:
                self._discovery_needed.set()

        informer.on_change(log_errors(changed))
        self._informers[resource] = _RunningInformer(informer, group.create_task(informer.run()))

    def _stop_informer(self, resource: Resource) -> None:
        dropped = self._informers.pop(resource)
        dropped.task.cancel()
        for key in list(dropped.informer.cache):
            removed = dropped.informer.cache.find(key)
            if removed is not None:
                self.enqueue(self.graph.remove(removed.uid))
        self.kinds.known.pop(resource, None)

    async def _wait_for_discovery(self, pause: timedelta) -> None:
        try:
            async with asyncio.timeout(pause.total_seconds()):
                await self._discovery_needed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_DISCOVERY_DELAY.total_seconds())
