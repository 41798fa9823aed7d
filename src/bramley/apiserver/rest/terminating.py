"""What follows from a write: kinds come and go with their definitions, and namespaces close when they are to end.

A namespace is only marked and closed here; emptying it is the work of the cluster's controller, as with a real server. The
objects of a CustomResourceDefinition are the server's own: deleting it deletes them, and the last one takes it along.
"""

from __future__ import annotations

import asyncio

from bramley.apiserver.apimachinery import metadata, status
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.registry import crds
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest.deletion import check_preconditions, deletion, set_finalizers
from bramley.apiserver.rest.objects import part
from bramley.apiserver.rest.options import DeleteOptions
from bramley.apiserver.rest.server import CRDS, NAMESPACES, Server, decoded, served
from bramley.apiserver.rest.writing import Decide, Decision, Keep, Put, Remove, write
from bramley.apiserver.store.damage import DECODE_ERRORS
from bramley.apiserver.store.records import Key, Record
from bramley.base import log

logger = log.get(__name__)

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
PROTECTED = frozenset({"default", "kube-system", "kube-public"})
_BACKGROUND = DeleteOptions(propagation="Background")
_AT_ONCE = 100


async def after(server: Server, resource: ServedResource, key: Key, decision: Decision) -> None:
    """Do what a write of this object brings with it."""
    if key.resource == CRDS:
        _serve(server, key.name, decision)
    if isinstance(decision, Remove):
        if key.resource == NAMESPACES:
            server.closing.discard(key.name)
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
        return Put(begin(server, old, how))

    return decide


async def go_on(server: Server, resource: ServedResource, name: str) -> None:
    """Delete the objects of a kind whose definition is ending, as far as that can be done now."""
    if resource.stored_name == CRDS:
        for each in server.catalog.of_crd(name)[:1]:
            await _empty(server, each)
        await _finish_crd(server, name)


async def resume(server: Server) -> None:
    """Go on with the endings that a stop of the server cut short."""
    for record in server.store.list(CRDS):
        if is_ending(record):
            await go_on(server, _definitions(server), record.key.name)


async def disable_shadows(server: Server) -> None:
    """Say of definitions over built-in kinds, as an older release took them, that they are not in force."""
    for record in server.store.list(CRDS):
        if _is_builtin(server, record.key.name):
            with server.store.damage.skip_unreadable(record):
                await _disable(server, record)


async def _disable(server: Server, record: Record) -> None:
    now = server.clock.now()
    resource = _definitions(server)

    def decide(current: Record | None) -> Decision:
        old = _ending(current, resource, record.key.name)
        return Put(crds.disabled(old, now)) if crds.is_established(old) else Keep(current or record)

    if isinstance((await write(server, resource, record.key, decide)).decision, Put):
        logger.warning("Disabled a definition over a built-in kind", name=record.key.name)


def _is_builtin(server: Server, name: str) -> bool:
    plural, _, group = name.partition(".")
    return server.catalog.has_builtin(group, plural)


def _has_objects(server: Server, name: str) -> bool:
    """Tell whether objects keep a definition from going; those of a built-in kind are not its own."""
    return bool(server.store.list(name)) and not _is_builtin(server, name)


def _definitions(server: Server) -> ServedResource:
    return next(each for each in server.catalog if each.stored_name == CRDS)


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


def _serve(server: Server, name: str, decision: Decision) -> None:
    if isinstance(decision, Put):
        serve(server, decision.new)
    elif isinstance(decision, Remove):
        server.catalog.remove(name)


def serve(server: Server, crd: Json) -> None:
    """Serve what a definition describes, and nothing if it makes no sense, as of an older release."""
    try:
        server.catalog.install(crd)
    except DECODE_ERRORS as error:
        name = crd["metadata"]["name"]
        server.catalog.remove(name)
        logger.warning("Cannot serve a definition", name=name, reason=str(error))


def _ending_namespace(server: Server, old: Json, how: DeleteOptions) -> Json:
    if not how.dry_run:
        server.closing.add(old["metadata"]["name"])
    meta = {**old["metadata"], "deletionTimestamp": metadata.timestamp(server.clock.now())}
    set_finalizers(meta, how)
    return {**old, "metadata": meta, "status": {**part(old, "status"), "phase": "Terminating"}}


def _ending_crd(server: Server, old: Json, how: DeleteOptions) -> Json:
    del how
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
    state = part(old, "status")
    said = state.get("conditions")
    conditions = [*said, ending] if isinstance(said, list) else [ending]
    return {**old, "metadata": meta, "status": {**state, "conditions": conditions}}


async def _empty(server: Server, resource: ServedResource) -> None:
    records = server.store.list(resource.stored_name)
    for start in range(0, len(records), _AT_ONCE):
        async with asyncio.TaskGroup() as group:
            for record in records[start : start + _AT_ONCE]:
                group.create_task(remove(server, resource, record.key, _BACKGROUND))


async def _finish_crd(server: Server, name: str) -> None:
    key = Key(CRDS, "", name)
    if not is_ending(server.store.get(key)) or _has_objects(server, name):
        return
    resource = _definitions(server)

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
