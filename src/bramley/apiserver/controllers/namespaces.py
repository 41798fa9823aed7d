"""The namespace controller: deletes the content of a terminating namespace, Pods first, and then its finalizer.

The API itself only marks a namespace as terminating and rejects new content. Content that remains is checked again every few
seconds, and the namespace's conditions report the progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from bramley.api import conditions
from bramley.api.core import Namespace, Pod
from bramley.api.meta import Condition, Resource
from bramley.apiserver.controllers.discovery import (
    Discovery,
    PartialTypes,
    ServedResource,
    discover,
)
from bramley.apiserver.controllers.objects import patch_object
from bramley.apiserver.controllers.timings import Timings
from bramley.base import errors, log
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.controller import Controller, ControllerSettings
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import CheckAgain, Outcome, Settled

logger = log.get(__name__)

FINALIZER = "kubernetes"
# Assumed for finalizers of the content, whose duration is unknown.
_FINALIZERS_TAKE_SECONDS = 15
_RETRIES = Backoff(timedelta(milliseconds=100), timedelta(seconds=60))
_ENDED = frozenset({"Succeeded", "Failed"})
_CREATED_LATE = "requests that began before the deletion may still create content"
# In the order in which they are written, with reason and message for success.
_CONDITIONS = {
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


@dataclass(slots=True)
class DeletionResult:
    """The result of one attempt to delete the content of a namespace."""

    discovery: str = ""
    errors: list[str] = field(default_factory=list)
    remaining: dict[str, int] = field(default_factory=dict)
    finalizers: Counter[str] = field(default_factory=Counter)
    # Estimate of how long the remaining content takes.
    seconds: int = 0
    # Whether all kinds were processed; what remains is only reported then.
    complete: bool = True

    def add_remaining(self, resource: Resource, finalizers: Sequence[Iterable[str]]) -> None:
        """Record the objects of a kind that remain, by the finalizers of each."""
        self.remaining[f"{resource.plural}.{resource.group}"] = len(finalizers)
        for each in finalizers:
            self.finalizers.update(each)


def deletion_conditions(
    old: Sequence[Condition], result: DeletionResult, *, now: datetime
) -> list[Condition]:
    """Return the conditions after an attempt; those of other types are kept."""
    failures = dict(_failures(result))
    after = list(old)
    for type, success in _CONDITIONS.items():
        reason, message = failures.get(type, success)
        condition = Condition(
            type=type,
            status="True" if type in failures else "False",
            reason=reason,
            message=message,
        )
        after = conditions.put(after, condition, now=now)
    return after


def _failures(result: DeletionResult) -> Iterable[tuple[str, tuple[str, str]]]:
    if result.discovery:
        yield "NamespaceDeletionDiscoveryFailure", ("DiscoveryFailed", result.discovery)
    if result.errors:
        listed = ", ".join(sorted(result.errors))
        message = f"Failed to delete all resource types, {len(result.errors)} remaining: {listed}"
        yield "NamespaceDeletionContentFailure", ("ContentDeletionFailed", message)
    if result.complete and result.remaining:
        remaining = (
            f"{name} has {count} resource instances" for name, count in result.remaining.items()
        )
        message = f"Some resources are remaining: {', '.join(sorted(remaining))}"
        yield "NamespaceContentRemaining", ("SomeResourcesRemain", message)
    if result.complete and result.finalizers:
        remaining = (
            f"{name} in {count} resource instances" for name, count in result.finalizers.items()
        )
        listed = ", ".join(sorted(remaining))
        message = f"Some content in the namespace has finalizers remaining: {listed}"
        yield "NamespaceFinalizersRemaining", ("SomeFinalizersRemain", message)


@dataclass(frozen=True, slots=True)
class NamespaceReconciler:
    """Deletes the content of terminating namespaces, and finalizes them."""

    client: Client
    clock: Clock
    timings: Timings
    types: PartialTypes = field(default_factory=PartialTypes)

    async def reconcile(self, cached: Namespace) -> Outcome:
        """Delete the content of a terminating namespace, and finalize it when it is empty."""
        if not cached.deleting:
            return Settled()
        try:
            # Live: by a stale cache the content of a new namespace of the same name could be deleted.
            namespace = await self.client.get(Namespace, cached.name)
        except errors.NotFound:
            return Settled()
        if not namespace.deleting or FINALIZER not in namespace.spec.finalizers:
            return Settled()
        deleted_at = namespace.metadata.deletion_timestamp or self.clock.now()
        delay = deleted_at + self.timings.namespace_cleanup_delay - self.clock.now()
        if delay > timedelta():
            return CheckAgain(delay, _CREATED_LATE)
        result = await self._delete_content(namespace)
        await self._write_conditions(namespace, result)
        if result.errors:
            raise errors.ApiUnavailable("; ".join(sorted(result.errors)))
        if result.seconds:
            half = timedelta(seconds=result.seconds // 2 + 1)
            after = min(half, self.timings.namespace_retry)
            return CheckAgain(after, f"some content remains, for about {result.seconds} s")
        await self._finalize(namespace)
        return Settled()

    async def _delete_content(self, namespace: Namespace) -> DeletionResult:
        result = DeletionResult()
        try:
            discovery = await discover(self.client)
        except errors.BramleyError as error:
            result.discovery = str(error)
            # Kinds that are not known may have content, so the namespace must not be finalized.
            result.errors.append(str(error))
            return result
        _record_failures(discovery, result)
        served = [each for each in discovery.kinds if each.resource.namespaced]
        served = [each for each in served if {"delete", "list"} <= each.verbs]
        # Terminating Pods may still need the other objects, so these are deleted after all Pods are gone.
        for are_pods in (True, False):
            for each in served:
                if _is_pods(each.resource) == are_pods:
                    await self._delete_kind(namespace, each, result)
            if are_pods and result.remaining:
                result.complete = False
                break
        return result

    async def _delete_kind(
        self, namespace: Namespace, served: ServedResource, result: DeletionResult
    ) -> None:
        try:
            await self._try_delete_kind(namespace, served, result)
        except errors.NotFound:
            # The kind itself was deleted after discovery.
            return
        except errors.BramleyError as error:
            result.errors.append(str(error))

    async def _try_delete_kind(
        self, namespace: Namespace, served: ServedResource, result: DeletionResult
    ) -> None:
        kind, name = self.types.of(served.resource), namespace.name
        items = (await self.client.list(kind, namespace=name)).items
        if not items:
            return
        # Before the deletion, which removes Pods without a Node at once.
        grace = await self._grace(namespace, served.resource)
        if "deletecollection" in served.verbs:
            await self.client.delete_collection(kind, namespace=name, propagation="Background")
        else:
            for each in items:
                with suppress(errors.NotFound):
                    await self.client.delete(
                        kind, each.name, namespace=name, propagation="Background"
                    )
        remaining = (await self.client.list(kind, namespace=name)).items
        if not remaining:
            return
        result.add_remaining(served.resource, [each.metadata.finalizers for each in remaining])
        if grace == 0 and not any(each.metadata.finalizers for each in remaining):
            group = served.resource.group
            gvr = f"{group}/{served.resource.version}, Resource={served.resource.plural}"
            result.errors.append(
                f"unexpected items still remain in namespace: {name} for gvr: {gvr}"
            )
        result.seconds = max(result.seconds, grace or _FINALIZERS_TAKE_SECONDS)

    async def _grace(self, namespace: Namespace, resource: Resource) -> int:
        """Return the longest grace period of the Pods in seconds; zero if it has passed."""
        if not _is_pods(resource):
            return 0
        pods = (await self.client.list(Pod, namespace=namespace.name)).items
        running = [pod.spec for pod in pods if pod.status.phase not in _ENDED]
        longest = max((spec.termination_grace_period_seconds or 0 for spec in running), default=0)
        deleted_at = namespace.metadata.deletion_timestamp
        waited = self.clock.now() - deleted_at if deleted_at is not None else timedelta()
        return 0 if waited >= timedelta(seconds=longest) else longest

    async def _write_conditions(self, namespace: Namespace, result: DeletionResult) -> None:
        before = namespace.status.conditions
        after = deletion_conditions(before, result, now=self.clock.now())
        if after == before:
            return
        status = {"status": {"conditions": msgspec.to_builtins(after)}}
        with suppress(errors.NotFound, errors.Conflict):
            await patch_object(self.client, namespace, status, subresource="status", only="uid")

    async def _finalize(self, namespace: Namespace) -> None:
        path = Namespace.resource.path(name=namespace.name)
        with suppress(errors.NotFound):
            live = await self.client.read_wire(path)
            # A new namespace of this name keeps its finalizer.
            if live["metadata"]["uid"] != namespace.uid:
                return
            spec = live.get("spec", {})
            finalizers = sorted(each for each in spec.get("finalizers", []) if each != FINALIZER)
            body = {**live, "spec": {**spec, "finalizers": finalizers}}
            await self.client.replace_wire(Namespace.resource, body, subresource="finalize")
            logger.info("Namespace finalized", namespace=namespace.name)


def _record_failures(discovery: Discovery, result: DeletionResult) -> None:
    if not discovery.failures:
        return
    listed = ", ".join(f"{name}: {reason}" for name, reason in sorted(discovery.failures.items()))
    result.discovery = f"Discovery failed for some groups, {len(discovery.failures)} failing: unable to retrieve the complete list of server APIs: {listed}"
    result.errors.append(result.discovery)


def _is_pods(resource: Resource) -> bool:
    return (resource.group, resource.plural) == ("", "pods")


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the namespace controller to a manager."""
    settings = ControllerSettings(workers=10, backoff=_RETRIES)
    reconciler = NamespaceReconciler(client, clock, timings)
    manager.add(Controller(reconciler, settings, name="namespace").for_kind(Namespace))
