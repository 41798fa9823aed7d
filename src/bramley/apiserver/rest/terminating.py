"""What follows from a write: kinds come and go with their definitions, and namespaces end with their contents.

A real cluster has controllers for this. Until ours brings them, the server does it by itself: deleting a namespace or a
CustomResourceDefinition closes it, deletes what is inside, and whoever removes the last object inside removes it too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bramley.apiserver import metadata, status
from bramley.apiserver.paths import Target
from bramley.apiserver.resources import Json, ServedResource
from bramley.apiserver.rest.deletion import check_preconditions, deletion
from bramley.apiserver.rest.options import DeleteOptions
from bramley.apiserver.rest.server import CRDS, NAMESPACES, Server, decoded, namespace_key, served
from bramley.apiserver.rest.writing import Decide, Decision, Keep, Put, Remove, write
from bramley.apiserver.status import ApiError
from bramley.apiserver.store.records import Key, Record

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
PROTECTED = frozenset({"default", "kube-system", "kube-public"})
_BACKGROUND = DeleteOptions(propagation="Background")
_AT_ONCE = 100


async def after(server: Server, resource: ServedResource, key: Key, decision: Decision) -> None:
    """Do what a write of this object brings with it."""
    if key.resource == CRDS:
        _serve(server, key.name, decision)
    if isinstance(decision, Remove):
        if key.namespace and is_ending(server.store.get(namespace_key(key.namespace))):
            await _finish_namespace(server, key.namespace)
        if resource.is_custom:
            await _finish_crd(server, resource.qualified)


def beginning(server: Server, target: Target, how: DeleteOptions) -> Decide | None:
    """Return the decision to begin the end of a namespace or of a kind; None for all other objects."""
    begin = {NAMESPACES: _ending_namespace, CRDS: _ending_crd}.get(target.key.resource)
    if begin is None:
        return None
    resource = target.resource
    if target.key.resource == NAMESPACES and target.name in PROTECTED:
        why = "this namespace may not be deleted"
        raise status.forbidden(resource.details(target.name), why)

    def decide(current: Record | None) -> Decision:
        if current is None:
            raise status.not_found(resource.details(target.name))
        old = served(current, resource)
        check_preconditions(old, resource, how)
        if "deletionTimestamp" in old["metadata"]:
            return Keep(current)
        return Put(begin(server, old, dry_run=how.dry_run))

    return decide


async def go_on(server: Server, resource: ServedResource, name: str) -> None:
    """Delete what is inside of a namespace or kind that is ending, as far as that can be done now."""
    if resource.stored_name == NAMESPACES:
        inside = [(each, name) for each in stored_resources(server) if each.namespaced]
        await _empty(server, inside)
        await _finish_namespace(server, name)
    elif resource.stored_name == CRDS:
        await _empty(server, [(each, None) for each in server.catalog.of_crd(name)[:1]])
        await _finish_crd(server, name)


async def resume(server: Server) -> None:
    """Go on with the endings that a stop of the server cut short."""
    for stored_name in (NAMESPACES, CRDS):
        resource = next(each for each in server.catalog if each.stored_name == stored_name)
        for record in server.store.list(stored_name):
            if is_ending(record):
                server.closing.add(record.key.name)
                await go_on(server, resource, record.key.name)


async def remove(server: Server, resource: ServedResource, key: Key, how: DeleteOptions) -> None:
    """Delete one object, or begin to; it may be gone already."""
    try:
        decide = deletion(server, resource, key.name, how)
        written = await write(server, resource, key, decide, dry_run=how.dry_run)
    except ApiError as error:
        if error.code != 404:
            raise
    else:
        if not how.dry_run:
            await after(server, resource, key, written.decision)


def check_served(server: Server, resource: ServedResource) -> None:
    """Raise a 405 when the kind's definition is going away, so that nothing new may be created."""
    if is_ending(server.store.get(Key(CRDS, "", resource.qualified))):
        message = "create not allowed while custom resource definition is terminating"
        raise ApiError(405, "MethodNotAllowed", message, details=resource.details())


def stored_resources(server: Server) -> list[ServedResource]:
    """Return one served resource for each kind of stored object."""
    found = {
        each.stored_name: each for each in server.catalog if each.stored_name == each.qualified
    }
    return list(found.values())


def _serve(server: Server, name: str, decision: Decision) -> None:
    if isinstance(decision, Put):
        server.catalog.install(decision.new)
    elif isinstance(decision, Remove):
        server.catalog.remove(name)


def _ending_namespace(server: Server, old: Json, *, dry_run: bool) -> Json:
    if not dry_run:
        server.closing.add(old["metadata"]["name"])
    meta = {**old["metadata"], "deletionTimestamp": metadata.timestamp(server.clock.now())}
    return {**old, "metadata": meta, "status": {**old.get("status", {}), "phase": "Terminating"}}


def _ending_crd(server: Server, old: Json, *, dry_run: bool) -> Json:
    del dry_run
    now = metadata.timestamp(server.clock.now())
    meta = {**old["metadata"], "deletionTimestamp": now}
    meta["finalizers"] = [*meta.get("finalizers", []), CLEANUP]
    ending = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": now,
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }
    conditions = [*(old["status"].get("conditions") or []), ending]
    return {**old, "metadata": meta, "status": {**old["status"], "conditions": conditions}}


async def _empty(server: Server, inside: Sequence[tuple[ServedResource, str | None]]) -> None:
    for resource, namespace in inside:
        records = server.store.list(resource.stored_name, namespace)
        for start in range(0, len(records), _AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for record in records[start : start + _AT_ONCE]:
                    group.create_task(remove(server, resource, record.key, _BACKGROUND))


async def _finish_namespace(server: Server, name: str) -> None:
    if any(
        server.store.list(each.stored_name, name)
        for each in stored_resources(server)
        if each.namespaced
    ):
        return
    resource = next(each for each in server.catalog if each.stored_name == NAMESPACES)

    def decide(current: Record | None) -> Decision:
        old = _ending(current, resource, name)
        new = {
            **old,
            "spec": {key: value for key, value in old["spec"].items() if key != "finalizers"},
        }
        return Put(new) if old["metadata"].get("finalizers") else Remove(new)

    await _decide_quietly(server, resource, namespace_key(name), decide)
    server.closing.discard(name)


async def _finish_crd(server: Server, name: str) -> None:
    key = Key(CRDS, "", name)
    if not is_ending(server.store.get(key)) or server.store.list(name):
        return
    resource = next(each for each in server.catalog if each.stored_name == CRDS)

    def decide(current: Record | None) -> Decision:
        old = _ending(current, resource, name)
        finalizers = [each for each in old["metadata"]["finalizers"] if each != CLEANUP]
        new = {**old, "metadata": {**old["metadata"], "finalizers": finalizers}}
        return Put(new) if finalizers else Remove(new)

    await _decide_quietly(server, resource, key, decide)


async def _decide_quietly(
    server: Server, resource: ServedResource, key: Key, decide: Decide
) -> None:
    """Write, unless somebody else was quicker and the object is gone."""
    try:
        written = await write(server, resource, key, decide)
    except ApiError as error:
        if error.code != 404:
            raise
    else:
        await after(server, resource, key, written.decision)


def _ending(current: Record | None, resource: ServedResource, name: str) -> Json:
    if current is None:
        raise status.not_found(resource.details(name))
    return served(current, resource)


def is_ending(record: Record | None) -> bool:
    """Tell whether an object's deletion was asked for."""
    # Definitions are large and asked about with every object of theirs, so most are told apart without decoding.
    if record is None or b'"deletionTimestamp"' not in record.body:
        return False
    return "deletionTimestamp" in decoded(record)["metadata"]
