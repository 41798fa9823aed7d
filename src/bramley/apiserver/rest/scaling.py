"""The scale subresource: reading it, and writing the replicas of the object behind it."""

from __future__ import annotations

from collections.abc import Callable

from bramley.apiserver.apimachinery import causes, shapes, status
from bramley.apiserver.http.exchange import Request, Response, json_response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.kinds.virtual import SCALE
from bramley.apiserver.registry.resources import Json, ScalePaths
from bramley.apiserver.rest import bodies, objects, options, scales, updating
from bramley.apiserver.rest.options import WriteOptions
from bramley.apiserver.rest.server import Server, served
from bramley.apiserver.rest.writing import Decision, Keep, Put, write
from bramley.apiserver.store.records import Record


async def get(server: Server, _request: Request, target: Target) -> Response:
    """Return an object's Scale."""
    record = server.store.get(target.key)
    if record is None:
        raise status.not_found(target.resource.details(target.name))
    return json_response(scales.of(served(record, target.resource), paths_of(target), reading=True))


async def replace(server: Server, request: Request, target: Target) -> Response:
    """Scale an object to what the Scale in the body says."""
    how = options.writing(request, "UpdateOptions")
    body = await bodies.read_object(request, SCALE, how)
    objects.check_address(body, name=target.name, namespace=target.namespace)
    return await _scaled(server, request, target, how=how, change=lambda _old, _record: body)


async def patch(server: Server, request: Request, target: Target) -> Response:
    """Scale an object by a patch of its Scale."""
    how = options.patching(request)
    change = await updating.read_patch(request, SCALE)

    def patched(scale: Json, record: Record) -> Json:
        new = change(scale, record)
        try:
            bodies.shape(new, SCALE, options=how, request=request)
        except shapes.WrongShape as wrong:
            raise status.bad_request(str(wrong)) from None
        objects.check_address(new, name=target.name, namespace=target.namespace)
        return new

    return await _scaled(server, request, target, how=how, change=patched)


def paths_of(target: Target) -> ScalePaths:
    """Return where the target's kind keeps its replicas."""
    if target.resource.scale is None:
        raise status.no_such_path()
    return target.resource.scale


async def _scaled(
    server: Server,
    request: Request,
    target: Target,
    *,
    how: WriteOptions,
    change: Callable[[Json, Record], Json],
) -> Response:
    resource, paths = target.resource, paths_of(target)
    shown: list[Json] = []

    def decide(current: Record | None) -> Decision:
        if current is None:
            raise status.not_found(resource.details(target.name))
        old = served(current, resource)
        asked = change(scales.of(old, paths), current)
        _check_version(asked, old, target)
        _check_count(asked, target)
        new = scales.with_replicas(old, scales.wanted_replicas(asked), paths)
        settle = updating.settling(server, request, target, new=new, old=old, how=how)
        new = objects.updated(new, old, resource)
        new = new if settle is None else settle(new)
        shown[:] = [new]
        return Keep(current) if objects.is_unchanged(new, old) else Put(new)

    written = await write(server, resource, target.key, decide, dry_run=how.dry_run)
    body: Json = bodies.from_json(written.body)
    return json_response(scales.of(body, paths))


def _check_version(asked: Json, old: Json, target: Target) -> None:
    version = asked["metadata"].get("resourceVersion", "")
    if version and version != old["metadata"]["resourceVersion"]:
        options.whole_number(version)
        raise status.conflict(target.resource.details(target.name), objects.MODIFIED)


def _check_count(asked: Json, target: Target) -> None:
    replicas = scales.wanted_replicas(asked)
    if replicas < 0 and not target.resource.is_custom:
        wrong = causes.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise status.invalid(SCALE.kind_details(target.name), [wrong])
