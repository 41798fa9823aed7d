"""The end of a namespace: its contents go, Pods first, its conditions tell how far that came, then it is let go.

The API only marks a namespace as terminating and refuses new contents. What is left is looked at again every few seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType

from bramley.api.core import Namespace, Pod
from bramley.api.meta import Condition, Resource
from bramley.apiserver.controllers.discovery import (
    Discovery,
    PartialTypes,
    ServedResource,
    discover,
)
from bramley.apiserver.controllers.timings import Timings
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.controller import Controller, ControllerSettings
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import CheckAgain, Outcome, Settled

# In the order in which they are written: the reason and the sentence for when nothing is wrong.
_WELL = MappingProxyType(
    {
        "NamespaceDeletionDiscoveryFailure": (
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        "NamespaceDeletionContentFailure": (
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
        "NamespaceFinalizersRemaining": (
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    }
)


@dataclass(slots=True)
class Emptied:
    """How far one attempt to empty a namespace came."""

    discovery: str = ""
    errors: list[str] = field(default_factory=list)
    remaining: dict[str, int] = field(default_factory=dict)
    finalizers: Counter[str] = field(default_factory=Counter)
    # For how many seconds what remains may take.
    seconds: int = 0
    # Whether all kinds were looked at; what remains is only told then.
    counted: bool = True

    def remain(self, resource: Resource, finalizers: Sequence[Iterable[str]]) -> None:
        """Note that this many objects of a kind are left, with these finalizers each."""
        self.remaining[f"{resource.plural}.{resource.group}"] = len(finalizers)
        for each in finalizers:
            self.finalizers.update(each)


def decide(old: Sequence[Condition], emptied: Emptied, *, now: datetime) -> list[Condition]:
    """Return the conditions after an attempt; those of others stay, and a status that stays keeps its time."""
    found = {each.type: each for each in old}
    wrong = dict(_wrong(emptied))
    for type, well in _WELL.items():
        reason, message = wrong.get(type, well)
        status = "True" if type in wrong else "False"
        before = found.get(type)
        same = before is not None and before.status == status
        found[type] = Condition(
            type=type,
            status="True" if status == "True" else "False",
            reason=reason,
            message=message,
            last_transition_time=before.last_transition_time
            if same and before is not None
            else now.replace(microsecond=0),
        )
    return list(found.values())


def _wrong(emptied: Emptied) -> Iterable[tuple[str, tuple[str, str]]]:
    if emptied.discovery:
        yield "NamespaceDeletionDiscoveryFailure", ("DiscoveryFailed", emptied.discovery)
    if emptied.errors:
        told = ", ".join(sorted(emptied.errors))
        message = f"Failed to delete all resource types, {len(emptied.errors)} remaining: {told}"
        yield "NamespaceDeletionContentFailure", ("ContentDeletionFailed", message)
    if emptied.counted and emptied.remaining:
        told = _told(
            f"{name} has {left} resource instances" for name, left in emptied.remaining.items()
        )
        message = f"Some resources are remaining: {told}"
        yield "NamespaceContentRemaining", ("SomeResourcesRemain", message)
    if emptied.counted and emptied.finalizers:
        told = _told(
            f"{name} in {left} resource instances" for name, left in emptied.finalizers.items()
        )
        message = f"Some content in the namespace has finalizers remaining: {told}"
        yield "NamespaceFinalizersRemaining", ("SomeFinalizersRemain", message)


def _told(each: Iterable[str]) -> str:
    return ", ".join(sorted(each))


logger = log.get(__name__)

FINALIZER = "kubernetes"
# What finalizers on contents are given when nobody knows how long they take.
_FINALIZERS_TAKE_SECONDS = 15
_RETRIES = Backoff(timedelta(milliseconds=100), timedelta(seconds=60))
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class NamespaceReconciler:
    """Empties namespaces that are to go, and lets them go."""

    client: Client
    clock: Clock
    timings: Timings
    kinds: PartialTypes = field(default_factory=PartialTypes)

    async def reconcile(self, seen: Namespace) -> Outcome:
        """Take the namespace one step nearer to its end, if it is to end."""
        if not seen.deleting:
            return Settled()
        try:
            namespace = await self.client.get(Namespace, seen.name)
        except errors.NotFound:
            return Settled()
        if not namespace.deleting or FINALIZER not in namespace.spec.finalizers:
            return Settled()
        if (left := self._first_look(namespace)) > timedelta():
            return CheckAgain(left, "contents may still be on their way")
        emptied = await self._empty(namespace)
        await self._tell(namespace, emptied)
        if emptied.errors:
            raise errors.ApiUnavailable("; ".join(sorted(emptied.errors)))
        if emptied.seconds:
            half = timedelta(seconds=emptied.seconds // 2 + 1)
            after = min(half, self.timings.namespace_retry)
            return CheckAgain(after, f"some content remains, for about {emptied.seconds} s")
        await self._let_go(namespace)
        return Settled()

    def _first_look(self, namespace: Namespace) -> timedelta:
        asked = namespace.metadata.deletion_timestamp or self.clock.now()
        return asked + self.timings.namespace_first_look - self.clock.now()

    async def _empty(self, namespace: Namespace) -> Emptied:
        emptied = Emptied()
        try:
            found = await discover(self.client)
        except errors.BramleyError as error:
            emptied.discovery = str(error)
            emptied.errors.append(str(error))
            return emptied
        _note_failures(found, emptied)
        pods = [each for each in _to_empty(found) if _is_pods(each.resource)]
        for each in pods:
            await self._empty_kind(namespace, each, emptied)
        if emptied.remaining:
            # What else is there may be needed by the Pods until their end, so it has to wait for that.
            emptied.counted = False
            return emptied
        for each in _to_empty(found):
            if each not in pods:
                await self._empty_kind(namespace, each, emptied)
        return emptied

    async def _empty_kind(
        self, namespace: Namespace, served: ServedResource, emptied: Emptied
    ) -> None:
        try:
            await self._try_kind(namespace, served, emptied)
        except errors.NotFound:
            # The kind itself is gone since discovery.
            return
        except errors.BramleyError as error:
            emptied.errors.append(str(error))

    async def _try_kind(
        self, namespace: Namespace, served: ServedResource, emptied: Emptied
    ) -> None:
        kind, name = self.kinds.of(served.resource), namespace.name
        if not (await self.client.list(kind, namespace=name)).items:
            return
        grace = await self._grace(namespace, served.resource)
        if "deletecollection" in served.verbs:
            await self.client.delete_collection(kind, namespace=name, propagation="Background")
        else:
            await self._delete_each(served.resource, name)
        left = (await self.client.list(kind, namespace=name)).items
        if not left:
            return
        emptied.remain(served.resource, [each.metadata.finalizers for each in left])
        if grace == 0 and not any(each.metadata.finalizers for each in left):
            group = served.resource.group
            where = f"{group}/{served.resource.version}, Resource={served.resource.plural}"
            emptied.errors.append(
                f"unexpected items still remain in namespace: {name} for gvr: {where}"
            )
        emptied.seconds = max(emptied.seconds, grace or _FINALIZERS_TAKE_SECONDS)

    async def _delete_each(self, resource: Resource, namespace: str) -> None:
        kind = self.kinds.of(resource)
        for each in (await self.client.list(kind, namespace=namespace)).items:
            with suppress(errors.NotFound):
                await self.client.delete(
                    kind, each.name, namespace=namespace, propagation="Background"
                )

    async def _grace(self, namespace: Namespace, resource: Resource) -> int:
        """Return the seconds that Pods may still take; nothing when they had their time already."""
        if not _is_pods(resource):
            return 0
        pods = (await self.client.list(Pod, namespace=namespace.name)).items
        longest = max((_grace_of(pod) for pod in pods), default=0)
        asked = namespace.metadata.deletion_timestamp
        waited = self.clock.now() - asked if asked is not None else timedelta()
        return 0 if waited >= timedelta(seconds=longest) else longest

    async def _tell(self, namespace: Namespace, emptied: Emptied) -> None:
        conditions = decide(namespace.status.conditions, emptied, now=self.clock.now())
        if conditions == namespace.status.conditions:
            return
        status = {"status": {"conditions": [_wire(each) for each in conditions]}}
        with suppress(errors.NotFound, errors.Conflict):
            await self.client.merge_patch(
                Namespace, namespace.name, status, subresource="status", uid=namespace.uid
            )

    async def _let_go(self, namespace: Namespace) -> None:
        path = Namespace.resource.path(name=namespace.name)
        with suppress(errors.NotFound):
            whole = await self.client.read_wire(path)
            if whole["metadata"]["uid"] != namespace.uid:
                return
            held = whole.get("spec", {}).get("finalizers", [])
            spec = {"finalizers": sorted(each for each in held if each != FINALIZER)}
            body = {**whole, "spec": {**whole.get("spec", {}), **spec}}
            await self.client.replace_wire(Namespace.resource, body, subresource="finalize")
            logger.info("Namespace emptied", namespace=namespace.name)


def _note_failures(found: Discovery, emptied: Emptied) -> None:
    if not found.failures:
        return
    told = ", ".join(f"{name}: {why}" for name, why in sorted(found.failures.items()))
    emptied.discovery = f"Discovery failed for some groups, {len(found.failures)} failing: unable to retrieve the complete list of server APIs: {told}"
    emptied.errors.append(emptied.discovery)


def _to_empty(found: Discovery) -> list[ServedResource]:
    return [
        each
        for each in found.kinds
        if each.resource.namespaced and {"delete", "list"} <= each.verbs
    ]


def _is_pods(resource: Resource) -> bool:
    return (resource.group, resource.plural) == ("", "pods")


def _grace_of(pod: Pod) -> int:
    return 0 if pod.status.phase in _ENDED else pod.spec.termination_grace_period_seconds or 0


def _wire(condition: Condition) -> dict[str, str]:
    when: datetime | None = condition.last_transition_time
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        **({} if when is None else {"lastTransitionTime": f"{when:%Y-%m-%dT%H:%M:%SZ}"}),
    }


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Empty namespaces that are to go."""
    settings = ControllerSettings(workers=10, backoff=_RETRIES)
    reconciler = NamespaceReconciler(client, clock, timings)
    manager.add(Controller(reconciler, settings, name="namespace").for_kind(Namespace))
