"""Server-side apply: PATCH with a whole configuration, which makes the object or merges into it and notes who owns what."""

from __future__ import annotations

from typing import Any

from bramley.apiserver.apimachinery import shapes, status
from bramley.apiserver.apimachinery.metadata import timestamp
from bramley.apiserver.apimachinery.status import ApiError, Details
from bramley.apiserver.apply import checking, last_applied, managers, merging
from bramley.apiserver.apply.managers import Manager, Owned
from bramley.apiserver.apply.merging import Applied, Conflicts, Kind
from bramley.apiserver.http.exchange import Request, Response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.registry.resources import Json
from bramley.apiserver.rest import bodies, creating, objects, options, ownership, updating
from bramley.apiserver.rest.options import WriteOptions
from bramley.apiserver.rest.server import Server, served
from bramley.apiserver.rest.writing import Decision, Put, write
from bramley.apiserver.store.records import Record
from bramley.base.errors import Cause


async def apply(server: Server, request: Request, target: Target) -> Response:
    """Apply the configuration in the body to an object, or to its status."""
    how = options.applying(request)
    config = await _read(request, how)
    kind = ownership.kind_of(target.resource, target.subresource)

    def decide(current: Record | None) -> Decision:
        _check(config, target)
        if current is None:
            return _creation(server, request, target, config=config, how=how, kind=kind)
        return _change(server, request, target, current=current, config=config, how=how, kind=kind)

    written = await write(server, target.resource, target.key, decide, dry_run=how.dry_run)
    return await updating.answered(server, target, written, how)


async def _read(request: Request, how: WriteOptions) -> Json:
    data = await request.body()
    try:
        value = bodies.from_yaml(data)
    except bodies.Unreadable as wrong:
        why = f"error converting YAML to JSON: {wrong}"
        raise status.bad_request(f"error decoding YAML: {why}") from None
    if value is None:
        value = {}
    if type(value) is not dict:
        why = "json: cannot unmarshal into Go value of type map[string]interface {}"
        raise status.bad_request(f"error decoding YAML: {why}")
    repeated = bodies.repeated_fields(data) if how.validation in {"Strict", "Warn"} else []
    if repeated and how.strict:
        said = ", ".join(f'key "{each}" already set in map' for each in repeated)
        raise status.bad_request(f"error strict decoding YAML: {said}")
    return value


def _check(config: Json, target: Target) -> None:
    """Raise unless the configuration is one of the target's kind."""
    resource = target.resource
    if (config.get("kind"), config.get("apiVersion")) != (resource.kind, resource.api_version):
        raise status.bad_request(f"invalid object type: {_type(config)}")
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and metadata.get(ownership.FIELD) is not None:
        raise status.bad_request("metadata.managedFields must be nil")
    schema = ownership.kind_of(resource, "").schema
    if wrong := checking.complaint(config, schema):
        about = _about(config)
        raise ApiError(500, "", f"failed to create typed patch object ({about}): {wrong}")


def _about(config: Json) -> str:
    metadata = config.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    return f"{named.get('namespace', '')}/{named.get('name', '')}; {_type(config)}"


def _type(config: Json) -> str:
    group, _, version = str(config.get("apiVersion") or "").rpartition("/")
    return f"{group}/{version}, Kind={config.get('kind') or ''}"


def _creation(
    server: Server,
    request: Request,
    target: Target,
    *,
    config: Json,
    how: WriteOptions,
    kind: Kind,
) -> Decision:
    resource = target.resource
    if target.subresource:
        raise status.not_found(resource.details(target.name))
    empty = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {}}
    done = _applied(server, empty, config, {}, how=how, kind=kind)
    new = _shaped(done.new, None, target, how=how, request=request)
    if uid := new["metadata"].get("uid"):
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise status.conflict(resource.details(target.name), why)
    creating.check_open(server, resource, target.namespace, target.name)
    made = creating.creation(server, resource, new)(None)
    if not isinstance(made, Put):
        return made
    return Put(ownership.with_managers(made.new, done.managers), created=True)


def _change(
    server: Server,
    request: Request,
    target: Target,
    *,
    current: Record,
    config: Json,
    how: WriteOptions,
    kind: Kind,
) -> Decision:
    old = served(current, target.resource)
    try:
        known = managers.read(old["metadata"].get(ownership.FIELD))
    except managers.Unreadable as wrong:
        raise ApiError(500, "", f"failed to decode managed fields: {wrong}") from None
    done = _applied(server, ownership.bared(old), config, known, how=how, kind=kind)
    renewed = last_applied.renewed(done.new, config, how.manager)
    new = _shaped(renewed, old, target, how=how, request=request)

    def settle(final: Json) -> Json:
        return ownership.with_managers(final, done.managers)

    return updating.changed(server, new, old, current=current, target=target, settle=settle)


def _applied(
    server: Server,
    live: Json,
    config: Json,
    known: dict[Manager, Owned],
    *,
    how: WriteOptions,
    kind: Kind,
) -> Applied:
    now = timestamp(server.clock.now())
    who = managers.applier(how.manager, kind.subresource)
    try:
        return merging.apply(live, config, known, who=who, kind=kind, force=how.force, now=now)
    except Conflicts as conflicts:
        left = conflicts.without(last_applied.allowed(live, how.manager, kind))
        if left is not None:
            raise _conflict(left) from None
    return merging.apply(live, config, known, who=who, kind=kind, force=True, now=now)


def _shaped(
    new: Json, old: Json | None, target: Target, *, how: WriteOptions, request: Request
) -> Json:
    """Return the merged object with its kind first and in its kind's shape."""
    resource = target.resource
    new = {"kind": resource.kind, "apiVersion": resource.api_version, **new}
    new["metadata"] = dict(new.get("metadata") or {})
    try:
        bodies.shape(new, resource, options=how, request=request, old=old)
    except shapes.WrongShape as wrong:
        raise ApiError(500, "", str(wrong)) from None
    objects.check_address(new, name=target.name, namespace=target.namespace)
    return new


def _conflict(conflicts: Conflicts) -> ApiError:
    from bramley.apiserver.apply import sets

    found: list[tuple[str, str]] = []
    for who, fields in sorted(conflicts.found.items()):
        named = who.shown(conflicts.managers[who].version)
        found += [(named, sets.shown(path)) for path in fields.paths()]
    causes = [Cause(path, "FieldManagerConflict", f"conflict with {who}") for who, path in found]
    return ApiError(409, "Conflict", _sentence(found), causes=causes, details=Details())


def _sentence(found: list[tuple[str, str]]) -> str:
    if len(found) == 1:
        who, path = found[0]
        return f"Apply failed with 1 conflict: conflict with {who}: {path}"
    lines: dict[str, list[Any]] = {}
    for who, path in found:
        lines.setdefault(who, []).append(path)
    text = "\n".join(
        "\n".join([f"conflicts with {who}:", *(f"- {path}" for path in paths)])
        for who, paths in lines.items()
    )
    return f"Apply failed with {len(found)} conflicts: {text}"
