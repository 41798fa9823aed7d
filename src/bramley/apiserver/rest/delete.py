"""DELETE of one object or of many, and what follows from writes of CRDs and namespaces."""

from __future__ import annotations

import asyncio
from typing import Any

from bramley.apiserver.apimachinery import metadata, status
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.http.exchange import Request, Response, json_response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.registry import crds
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest import bodies, get_list, objects, request_options
from bramley.apiserver.rest.graceful_deletion import (
    check_preconditions,
    decide_deletion,
    set_finalizers,
)
from bramley.apiserver.rest.objects import dict_field
from bramley.apiserver.rest.request_options import DeleteOptions
from bramley.apiserver.rest.server import (
    CRDS,
    NAMESPACES,
    Server,
    check_not_damaged,
    decoded,
    existing,
    served,
)
from bramley.apiserver.rest.writes import Decide, Decision, Keep, Put, Remove, Written, write
from bramley.apiserver.store.damage import DECODE_ERRORS
from bramley.apiserver.store.records import Key, Record
from bramley.base import log

logger = log.get(__name__)
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
_BACKGROUND = DeleteOptions(propagation="Background")
_BATCH = 100
_JOBS, _PRIORITIES = "jobs.batch", "priorityclasses.scheduling.k8s.io"
_PODS_STAY = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


async def delete(server: Server, request: Request, target: Target) -> Response:
    """Delete one object, or begin to."""
    options = await _read(request)
    resource = target.resource
    if resource.stored_name == _JOBS and options.orphan is None and not options.propagation:
        request.warnings.append(_PODS_STAY)
    if resource.stored_name == _PRIORITIES and target.name.startswith("system-"):
        reason = "this is a system priority class and cannot be deleted"
        raise status.forbidden(resource.details(target.name), reason)
    if target.key in server.store.damage.quarantined:
        return await _delete_damaged(server, target, options)
    decide = begin_deletion(server, target, options)
    decide = decide or decide_deletion(server, resource, target.name, options)
    written = await write(server, resource, target.key, decide, dry_run=options.dry_run)
    if not options.dry_run:
        await after_write(server, resource, target.key, written.decision)
        await continue_deletion(server, resource, target.name)
    return _response(written, target, options)


async def _delete_damaged(server: Server, target: Target, options: DeleteOptions) -> Response:
    """Remove a damaged object; preconditions on its state cannot be checked, so they are refused."""
    resource = target.resource
    if options.uid is not None or options.version is not None or server.agent_guard is not None:
        check_not_damaged(server, resource, target.key)
    meta = {"name": target.name, "uid": ""}
    if target.namespace:
        meta["namespace"] = target.namespace
    last: Json = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
    if not options.dry_run:
        await server.store.write(target.key, lambda _, rv: objects.removal(last, rv, resource))
    return json_response(status.success(resource.details(target.name)))


async def delete_collection(server: Server, request: Request, target: Target) -> Response:
    """Delete the objects that a list with the same parameters would return, and return that list."""
    listing = request_options.list_options(request, target.resource)
    options = await _read(request)
    page = get_list.page(server, target, listing)
    for start in range(0, len(page.records), _BATCH):
        async with asyncio.TaskGroup() as group:
            for record in page.records[start : start + _BATCH]:
                group.create_task(delete_record(server, target.resource, record.key, options))
    return Response(get_list.encode_list(page, target.resource))


async def _read(request: Request) -> DeleteOptions:
    media = bodies.media_type(request)
    data = await request.body()
    if not data:
        return request_options.delete_options(None, request)
    if media not in bodies.BUILT_IN_MEDIA_TYPES:
        raise status.unsupported_media_type(bodies.BUILT_IN_MEDIA_TYPES)
    try:
        body: Any = bodies.read_options(data, media)
    except bodies.Unreadable as wrong:
        if media == bodies.PROTOBUF:
            # kube-apiserver answers with a 500 here, too.
            raise ApiError(500, "", str(wrong)) from None
        message = f"couldn't get version/kind; json parse error: {wrong}"
        raise status.bad_request(message) from None
    return request_options.delete_options(request_options.check_delete_body(body), request)


def _response(written: Written, target: Target, options: DeleteOptions) -> Response:
    decision = written.decision
    if not isinstance(decision, Remove):
        return Response(written.body, 202 if options.orphan is False else 200)
    if target.resource.strategy.returns_deleted:
        return Response(written.body)
    details = target.resource.details(target.name, decision.last["metadata"]["uid"])
    return json_response(status.success(details))


async def after_write(
    server: Server, resource: ServedResource, key: Key, decision: Decision
) -> None:
    """Do what must follow a write of this object: serve its CRD, or finish the deletion of its CRD or namespace."""
    if key.resource == CRDS:
        _serve(server, key.name, decision)
    if isinstance(decision, Remove):
        if key.resource == NAMESPACES:
            server.terminating_namespaces.discard(key.name)
        if resource.is_custom:
            await _finish_crd_deletion(server, resource.qualified)


def begin_deletion(server: Server, target: Target, options: DeleteOptions) -> Decide | None:
    """Return the decision to begin the termination of a namespace or CRD; None for other objects."""
    begin = {NAMESPACES: _terminate_namespace, CRDS: _terminate_crd}.get(target.key.resource)
    if begin is None:
        return None
    resource = target.resource
    if target.key.resource == NAMESPACES and target.name in PROTECTED_NAMESPACES:
        reason = "this namespace may not be deleted"
        raise status.forbidden(resource.details(target.name), reason)

    def decide(current: Record | None) -> Decision:
        current = existing(current, resource, target.name)
        old = served(current, resource)
        check_preconditions(old, resource, options)
        if "deletionTimestamp" in old["metadata"]:
            return Keep(current)
        return Put(begin(server, old, options))

    return decide


async def continue_deletion(server: Server, resource: ServedResource, name: str) -> None:
    """Delete the objects of a terminating CRD as far as their finalizers allow."""
    if resource.stored_name == CRDS:
        for each in server.catalog.of_crd(name)[:1]:
            await _delete_objects(server, each)
        await _finish_crd_deletion(server, name)


async def resume_deletions(server: Server) -> None:
    """Continue the deletions of CRDs that were interrupted by a stop of the server."""
    for record in server.store.list(CRDS):
        if is_terminating(record):
            await continue_deletion(server, _crd_resource(server), record.key.name)


async def disable_shadowing_crds(server: Server) -> None:
    """Set CRDs that shadow built-in kinds, which an older release accepted, to not established."""
    for record in server.store.list(CRDS):
        if _is_builtin(server, record.key.name):
            with server.store.damage.skip_unreadable(record):
                await _disable_crd(server, record)


async def _disable_crd(server: Server, record: Record) -> None:
    now = server.clock.now()
    resource = _crd_resource(server)

    def decide(current: Record | None) -> Decision:
        current = existing(current, resource, record.key.name)
        old = served(current, resource)
        return Put(crds.disable(old, now)) if crds.is_established(old) else Keep(current)

    if isinstance((await write(server, resource, record.key, decide)).decision, Put):
        logger.warning("Disabled a CRD that shadows a built-in kind", name=record.key.name)


def _is_builtin(server: Server, name: str) -> bool:
    plural, _, group = name.partition(".")
    return server.catalog.has_builtin(group, plural)


def _has_objects(server: Server, name: str) -> bool:
    """Return whether objects block the deletion of a CRD; objects of a built-in kind do not."""
    return bool(server.store.list(name)) and not _is_builtin(server, name)


def _crd_resource(server: Server) -> ServedResource:
    return next(each for each in server.catalog if each.stored_name == CRDS)


async def delete_record(
    server: Server, resource: ServedResource, key: Key, options: DeleteOptions
) -> None:
    """Delete one object, or begin to, unless it was deleted meanwhile."""
    decide = decide_deletion(server, resource, key.name, options)
    await _write_if_present(server, resource, key, decide, dry_run=options.dry_run)


def check_crd_not_terminating(server: Server, resource: ServedResource) -> None:
    """Raise a 405 when the kind's CRD is terminating, so that nothing new may be created."""
    if is_terminating(server.store.get(Key(CRDS, "", resource.qualified))):
        message = "create not allowed while custom resource definition is terminating"
        raise ApiError(405, "MethodNotAllowed", message, details=resource.details())


def _serve(server: Server, name: str, decision: Decision) -> None:
    if isinstance(decision, Put):
        serve_crd(server, decision.new)
    elif isinstance(decision, Remove):
        server.catalog.remove(name)


def serve_crd(server: Server, crd: Json) -> None:
    """Serve the kind of a CRD, or nothing if the CRD is invalid, which an older release may have stored."""
    try:
        server.catalog.install(crd)
    except DECODE_ERRORS as error:
        name = crd["metadata"]["name"]
        server.catalog.remove(name)
        logger.warning("Cannot serve a CRD", name=name, reason=str(error))


def _terminate_namespace(server: Server, old: Json, options: DeleteOptions) -> Json:
    # At once, not when the deletion is durable: nothing may be created in between.
    if not options.dry_run:
        server.terminating_namespaces.add(old["metadata"]["name"])
    meta = {**old["metadata"], "deletionTimestamp": metadata.timestamp(server.clock.now())}
    set_finalizers(meta, options)
    return {
        **old,
        "metadata": meta,
        "status": {**dict_field(old, "status"), "phase": "Terminating"},
    }


def _terminate_crd(server: Server, old: Json, options: DeleteOptions) -> Json:
    del options
    now = metadata.timestamp(server.clock.now())
    meta = {**old["metadata"], "deletionTimestamp": now}
    # Keeps the CRD until its objects are gone; after a restart the deletion continues because of it.
    meta["finalizers"] = [*meta.get("finalizers", []), CLEANUP_FINALIZER]
    terminating = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": now,
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }
    state = dict_field(old, "status")
    before = state.get("conditions")
    conditions = [*before, terminating] if isinstance(before, list) else [terminating]
    return {**old, "metadata": meta, "status": {**state, "conditions": conditions}}


async def _delete_objects(server: Server, resource: ServedResource) -> None:
    records = server.store.list(resource.stored_name)
    for start in range(0, len(records), _BATCH):
        async with asyncio.TaskGroup() as group:
            for record in records[start : start + _BATCH]:
                group.create_task(delete_record(server, resource, record.key, _BACKGROUND))


async def _finish_crd_deletion(server: Server, name: str) -> None:
    key = Key(CRDS, "", name)
    # Called after each removal of an object; only the last one gets past this.
    if not is_terminating(server.store.get(key)) or _has_objects(server, name):
        return
    resource = _crd_resource(server)

    def decide(current: Record | None) -> Decision:
        old = served(existing(current, resource, name), resource)
        finalizers = [each for each in old["metadata"]["finalizers"] if each != CLEANUP_FINALIZER]
        new = {**old, "metadata": {**old["metadata"], "finalizers": finalizers}}
        return Put(new) if finalizers else Remove(new)

    await _write_if_present(server, resource, key, decide)


async def _write_if_present(
    server: Server, resource: ServedResource, key: Key, decide: Decide, *, dry_run: bool = False
) -> None:
    """Write an object unless it was deleted meanwhile."""
    try:
        written = await write(server, resource, key, decide, dry_run=dry_run)
    except ApiError as error:
        if error.code != 404:
            raise
    else:
        if not dry_run:
            await after_write(server, resource, key, written.decision)


def is_terminating(record: Record | None) -> bool:
    """Return whether an object is being deleted."""
    # CRDs are large and checked for every created object, so most are not decoded.
    if record is None or b'"deletionTimestamp"' not in record.body:
        return False
    return "deletionTimestamp" in decoded(record)["metadata"]
