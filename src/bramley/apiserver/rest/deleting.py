"""DELETE: of one object or of many."""

from __future__ import annotations

import asyncio
from typing import Any

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.http.exchange import Request, Response, json_response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.registry.resources import Json
from bramley.apiserver.rest import bodies, listing, objects, options, terminating
from bramley.apiserver.rest.deletion import deletion
from bramley.apiserver.rest.options import DeleteOptions
from bramley.apiserver.rest.server import Server, check_whole
from bramley.apiserver.rest.writing import Remove, Written, write

_AT_ONCE = 100
_JOBS, _PRIORITIES = "jobs.batch", "priorityclasses.scheduling.k8s.io"
_PODS_STAY = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


async def delete(server: Server, request: Request, target: Target) -> Response:
    """Delete one object, or begin to."""
    how = await _read(request)
    resource = target.resource
    if resource.stored_name == _JOBS and how.orphan is None and not how.propagation:
        request.warnings.append(_PODS_STAY)
    if resource.stored_name == _PRIORITIES and target.name.startswith("system-"):
        why = "this is a system priority class and cannot be deleted"
        raise status.forbidden(resource.details(target.name), why)
    if target.key in server.store.damage.quarantined:
        return await _discard(server, target, how)
    decide = terminating.beginning(server, target, how)
    decide = decide or deletion(server, resource, target.name, how)
    written = await write(server, resource, target.key, decide, dry_run=how.dry_run)
    if not how.dry_run:
        await terminating.after(server, resource, target.key, written.decision)
        await terminating.go_on(server, resource, target.name)
    return _answer(written, target, how)


async def _discard(server: Server, target: Target, how: DeleteOptions) -> Response:
    """Remove an object that is damaged; what is asked of its state cannot be told, so nothing may be."""
    resource = target.resource
    if how.uid is not None or how.version is not None or server.oversee is not None:
        check_whole(server, resource, target.key)
    meta = {"name": target.name, "uid": ""}
    if target.namespace:
        meta["namespace"] = target.namespace
    last: Json = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
    if not how.dry_run:
        await server.store.write(target.key, lambda _, rv: objects.removal(last, rv, resource))
    return json_response(status.success(resource.details(target.name)))


async def delete_many(server: Server, request: Request, target: Target) -> Response:
    """Delete the objects that a list with the same parameters would show; answer with that list."""
    asked = options.listing(request, target.resource)
    how = await _read(request)
    page = listing.page(server, target, asked)
    for start in range(0, len(page.records), _AT_ONCE):
        async with asyncio.TaskGroup() as group:
            for record in page.records[start : start + _AT_ONCE]:
                group.create_task(terminating.remove(server, target.resource, record.key, how))
    return Response(listing.encoded(page, target.resource))


async def _read(request: Request) -> DeleteOptions:
    media = bodies.media_type(request)
    data = await request.body()
    if not data:
        return options.deleting(None, request)
    if media not in bodies.BUILT_IN_MEDIA_TYPES:
        raise status.unsupported_media_type(bodies.BUILT_IN_MEDIA_TYPES)
    try:
        body: Any = bodies.read_options(data, media)
    except bodies.Unreadable as wrong:
        if media == bodies.PROTOBUF:
            # A real server takes no blame off itself here.
            raise ApiError(500, "", str(wrong)) from None
        message = f"couldn't get version/kind; json parse error: {wrong}"
        raise status.bad_request(message) from None
    return options.deleting(options.delete_options(body), request)


def _answer(written: Written, target: Target, how: DeleteOptions) -> Response:
    decision = written.decision
    if not isinstance(decision, Remove):
        return Response(written.body, 202 if how.orphan is False else 200)
    if target.resource.rules.returns_deleted:
        return Response(written.body)
    details = target.resource.details(target.name, decision.last["metadata"]["uid"])
    return json_response(status.success(details))
