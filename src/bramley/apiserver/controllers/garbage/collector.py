"""The collector: takes objects that have to be looked at, asks the API about them and their owners, and acts.

Nothing is deleted on what the graph says: the object and each owner are read anew, and the deletion names uid and version,
so whoever saved the object a moment ago wins. While the view is incomplete everything waits.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

import msgspec

from bramley.api.meta import OwnerReference
from bramley.apiserver.controllers.discovery import Thin
from bramley.apiserver.controllers.garbage import deciding
from bramley.apiserver.controllers.garbage.deciding import Delete, DropOwners, Owner
from bramley.apiserver.controllers.garbage.following import Following
from bramley.apiserver.controllers.garbage.graph import (
    FOREGROUND,
    ORPHAN,
    Wakes,
    is_ending,
    orphans_dependents,
    waits_for_dependents,
)
from bramley.base import errors, log
from bramley.base.errors import Captured
from bramley.kube.client import Client
from bramley.runtime.events import Recorder
from bramley.runtime.queue import WorkQueue

logger = log.get(__name__)

WORKERS = 8
_REMEMBERED = 500


class Task(NamedTuple):
    """What has to be done about an object: look whether it may stay, or orphan its dependents."""

    uid: str
    orphan: bool = False


class _Pointless(Exception):
    """The object cannot be judged, now or later: it is cluster-wide and names an owner of a namespace."""


@dataclass(slots=True)
class Absent:
    """Owners that are known to be gone; uids do not come again, so this never gets stale."""

    _known: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict)

    def add(self, uid: str, namespace: str) -> None:
        """Remember that no such owner is in this namespace."""
        self._known[uid, namespace] = None
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def has(self, uid: str, namespace: str) -> bool:
        """Tell whether the owner is known to be gone."""
        return (uid, namespace) in self._known


@dataclass(slots=True)
class Collector:
    """Works off what the graph wakes."""

    client: Client
    queue: WorkQueue[Task]
    recorder: Recorder
    following: Following
    absent: Absent = field(default_factory=Absent)

    def wake(self, wakes: Wakes) -> None:
        """Have these objects looked at."""
        for uid in wakes.look:
            self.queue.add(Task(uid))
        for uid in wakes.orphan:
            self.queue.add(Task(uid, orphan=True))
        for thing, ref in wakes.misplaced:
            place = thing.metadata.namespace or ""
            owner = f"[{ref.api_version}/{ref.kind}, namespace: {place}, name: {ref.name}, uid: {ref.uid}]"
            message = f'ownerRef {owner} does not exist in namespace "{place}"'
            self.recorder.warning(thing, "OwnerRefInvalidNamespace", message)

    async def work(self) -> NoReturn:
        """Take one task after the other until cancelled."""
        while True:
            await self.following.complete.wait()
            task = await self.queue.get()
            try:
                await self._serve(task)
            finally:
                self.queue.done(task)

    async def _serve(self, task: Task) -> None:
        # The view may have become incomplete while this one waited for its turn.
        await self.following.complete.wait()
        again = True
        with Captured() as caught:
            again = await (self.orphan if task.orphan else self.look)(task.uid)
        if isinstance(caught.error, errors.BramleyError):
            logger.debug("Looking again", uid=task.uid, error=str(caught.error))
        elif caught.error is not None:
            logger.error("Garbage collection has a bug", exc=caught.error, uid=task.uid)
        if again:
            self.queue.add_rate_limited(task)
        else:
            self.queue.forget(task)

    async def look(self, uid: str) -> bool:
        """Delete the object if no owner is left; tell whether it has to be looked at again."""
        seen = self.following.graph.things.get(uid)
        if seen is None or (is_ending(seen) and not waits_for_dependents(seen)):
            return False
        latest = await self._latest(seen)
        if latest is None:
            return False
        if waits_for_dependents(latest):
            return await self._finish_waiting(latest)
        try:
            owners = {ref.uid: await self._state(ref, latest) for ref in _unique(latest)}
        except _Pointless:
            return False
        verdict = deciding.decide(latest, owners, self.following.graph.dependents(uid))
        if isinstance(verdict, DropOwners):
            await self._set_owners(latest, deciding.without(latest, verdict.uids))
        elif isinstance(verdict, Delete):
            await self._delete(latest, verdict)
        # An owner that is there but was never seen may go without a word; so it is asked for again.
        things = self.following.graph.things
        return any(state is Owner.SOLID and each not in things for each, state in owners.items())

    async def orphan(self, uid: str) -> bool:
        """Take the owner away from its dependents, and then the finalizer from the owner."""
        owner = self.following.graph.things.get(uid)
        if owner is None or not orphans_dependents(owner):
            return False
        for each in self.following.graph.dependents(uid):
            dependent = await self._latest(each)
            if dependent is not None:
                await self._set_owners(dependent, deciding.without(dependent, frozenset({uid})))
        return await self._remove_finalizer(owner, ORPHAN)

    async def _latest(self, seen: Thin) -> Thin | None:
        """Return the object as it is now; None, and forgotten, when it is gone."""
        meta = seen.metadata
        with suppress(errors.NotFound):
            latest = await self.client.get(type(seen), meta.name, namespace=meta.namespace)
            if latest.uid == seen.uid:
                return latest
        self.wake(self.following.graph.remove(seen.uid))
        return None

    async def _state(self, ref: OwnerReference, thing: Thin) -> Owner:
        place = thing.metadata.namespace or ""
        if self.absent.has(ref.uid, "") or self.absent.has(ref.uid, place):
            return Owner.ABSENT
        resource = self.following.resource_of(ref.api_version, ref.kind)
        if resource.namespaced and not place:
            raise _Pointless
        where = place if resource.namespaced else ""
        kind = self.following.kinds.of(resource)
        with suppress(errors.NotFound):
            owner = await self.client.get(kind, ref.name, namespace=where or None)
            if owner.uid == ref.uid:
                return Owner.WAITING if waits_for_dependents(owner) else Owner.SOLID
        self.absent.add(ref.uid, where)
        return Owner.ABSENT

    async def _finish_waiting(self, latest: Thin) -> bool:
        blocking = self.following.graph.blocking(latest.uid)
        if not blocking:
            return await self._remove_finalizer(latest, FOREGROUND)
        for each in blocking:
            if not waits_for_dependents(each):
                self.queue.add(Task(each.uid))
        return False

    async def _set_owners(self, thing: Thin, owners: list[OwnerReference]) -> None:
        if owners == thing.metadata.owner_references:
            return
        patch = {"metadata": {"ownerReferences": [msgspec.to_builtins(ref) for ref in owners]}}
        await self._patch(thing, patch)

    async def _remove_finalizer(self, seen: Thin, finalizer: str) -> bool:
        latest = await self._latest(seen)
        if latest is not None and finalizer in latest.metadata.finalizers:
            left = [each for each in latest.metadata.finalizers if each != finalizer]
            await self._patch(latest, {"metadata": {"finalizers": left}})
        return False

    async def _patch(self, thing: Thin, patch: Mapping[str, object]) -> None:
        meta = thing.metadata
        with suppress(errors.NotFound):
            await self.client.merge_patch(
                type(thing),
                meta.name,
                patch,
                namespace=meta.namespace,
                resource_version=meta.resource_version,
                uid=meta.uid,
            )

    async def _delete(self, thing: Thin, how: Delete) -> None:
        meta = thing.metadata
        if how.unblock:
            freed = [
                msgspec.structs.replace(ref, block_owner_deletion=False)
                for ref in meta.owner_references
            ]
            await self._set_owners(thing, freed)
            thing = await self._latest(thing) or thing
            meta = thing.metadata
        logger.debug(
            "Deleting garbage",
            kind=thing.resource.kind,
            namespace=meta.namespace or "",
            name=meta.name,
            reason="no owner is left",
        )
        with suppress(errors.NotFound):
            await self.client.delete(
                type(thing),
                meta.name,
                namespace=meta.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
                propagation=how.propagation,
            )


def _unique(thing: Thin) -> list[OwnerReference]:
    return list({ref.uid: ref for ref in thing.metadata.owner_references}.values())


async def run(collector: Collector) -> None:
    """Follow all kinds and collect until cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(collector.following.run())
        for _ in range(WORKERS):
            group.create_task(collector.work())
