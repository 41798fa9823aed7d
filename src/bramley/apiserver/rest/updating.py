"""PUT and PATCH: of an object, of its status, of its scale; and the patch types that are understood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from bramley.apiserver import causes, patches, shapes, status
from bramley.apiserver.paths import Target
from bramley.apiserver.resources import Json, ServedResource
from bramley.apiserver.rest import bodies, creating, objects, options, terminating
from bramley.apiserver.rest.exchange import Answer, Request
from bramley.apiserver.rest.options import WriteOptions
from bramley.apiserver.rest.server import Server, served
from bramley.apiserver.rest.writing import Decision, Keep, Put, Remove, Written, write
from bramley.apiserver.status import ApiError, Details
from bramley.apiserver.store.records import Record

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

# A change makes the new object out of the old one; it must leave the old one as it is.
Change = Callable[[Json, Record], Json]


async def replace(server: Server, request: Request, target: Target) -> Answer:
    """Replace an object, or its status, by the one in the body."""
    resource = target.resource
    how = options.writing(request, "UpdateOptions")
    body = await bodies.read_object(request, resource, how)
    objects.check_address(body, name=target.name, namespace=target.namespace)

    def decide(current: Record | None) -> Decision:
        if current is None and resource.rules.create_on_update and not target.subresource:
            creating.check_open(server, resource, target.namespace, target.name)
            return creating.creation(server, resource, body)(None)
        current = _existing(current, target)
        old = served(current, resource)
        _check_uid(body, old, resource)
        return _changed(server, body, old, current=current, target=target)

    written = await write(server, resource, target.key, decide, dry_run=how.dry_run)
    return await _answered(server, target, written, how)


async def patch(server: Server, request: Request, target: Target) -> Answer:
    """Patch an object, or its status."""
    how = options.patching(request)
    change = await read_patch(request, target.resource)

    def decide(current: Record | None) -> Decision:
        current = _existing(current, target)
        old = served(current, target.resource)
        new = change(old, current)
        try:
            _shape(new, old, target.resource, how=how, request=request)
        except shapes.WrongShape as wrong:
            raise _misshapen(change(old, current), str(wrong)) from None
        objects.check_address(new, name=target.name, namespace=target.namespace)
        return _changed(server, new, old, current=current, target=target)

    written = await write(server, target.resource, target.key, decide, dry_run=how.dry_run)
    return await _answered(server, target, written, how)


async def read_patch(request: Request, resource: ServedResource) -> Change:
    """Return the change that a patch describes; raise a 415 for what we do not understand and a 400 for nonsense."""
    media = bodies.media_type(request)
    if media not in {MERGE, JSON_PATCH}:
        raise _unknown_patch(media, resource)
    data = await request.body()
    try:
        value = bodies.from_json(data)
    except bodies.Unreadable as wrong:
        raise status.bad_request(f"error decoding patch: {wrong}") from None
    return _merging(value) if media == MERGE else _operating(value)


def _unknown_patch(media: str, resource: ServedResource) -> ApiError:
    if resource.is_custom:
        return status.unsupported_media_type((JSON_PATCH, MERGE, APPLY))
    if media in {STRATEGIC, APPLY}:
        return status.unsupported_media_type((JSON_PATCH, MERGE))
    message = "415: Unsupported Media Type"
    return ApiError(415, "UnsupportedMediaType", message, details=status.NOTHING)


def _merging(value: Any) -> Change:
    if type(value) is not dict:
        raise _not_a_patch(value, "map[string]interface {}")

    def change(old: Json, _current: Record) -> Json:
        merged: Json = patches.merge(old, value)
        return merged

    return change


def _operating(value: Any) -> Change:
    if type(value) is not list or not all(type(each) is dict for each in value):
        raise _not_a_patch(value, "[]handlers.jsonPatchOp")
    if len(value) > patches.OPERATIONS_LIMIT:
        message = f"The allowed maximum operations in a JSON patch is {patches.OPERATIONS_LIMIT}, got {len(value)}"
        raise status.too_large(message)

    def change(old: Json, _current: Record) -> Json:
        own = msgspec.json.decode(msgspec.json.encode(old))
        try:
            new = patches.apply(own, value)
        except patches.PatchFailed:
            message = "the server rejected our request due to an error in our request"
            raise ApiError(422, "Invalid", message, details=status.NOTHING) from None
        if type(new) is not dict:
            raise _not_a_patch(new, "map[string]interface {}")
        return new

    return change


def _not_a_patch(value: Any, wanted: str) -> ApiError:
    found = {dict: "object", list: "array", str: "string", bool: "bool"}.get(type(value), "number")
    message = f"error decoding patch: json: cannot unmarshal {found} into Go value of type {wanted}"
    return status.bad_request(message)


def _existing(current: Record | None, target: Target) -> Record:
    if current is None:
        raise status.not_found(target.resource.details(target.name))
    return current


def _changed(server: Server, new: Json, old: Json, *, current: Record, target: Target) -> Decision:
    """Return what a changed object leads to: nothing, a new state, or the object's end."""
    resource = target.resource
    objects.check_version(new, old, resource)
    if target.subresource == "status":
        new = objects.with_status(new, old, resource)
    else:
        new = objects.updated(new, old, resource, server.admission(resource))
    if objects.is_finished(new, old, resource):
        return Remove(new)
    return Keep(current) if objects.is_unchanged(new, old) else Put(new)


def _shape(
    new: Json, old: Json, resource: ServedResource, *, how: WriteOptions, request: Request
) -> None:
    if type(new.get("metadata")) is not dict:
        return  # check_address says what is missing
    if resource.is_custom:
        bodies.check_kind(new, resource)
    _check_identity(new, resource)
    bodies.shape(new, resource, options=how, request=request, old=old)


def _misshapen(new: Json, why: str) -> ApiError:
    text = msgspec.json.encode(new, order="sorted").decode()
    return status.invalid(Details(), [causes.invalid("patch", text, why)])


def _check_identity(new: Json, resource: ServedResource) -> None:
    kind, version = new.get("kind"), new.get("apiVersion")
    if (kind, version) != (resource.kind, resource.api_version):
        detail = f"no kind {causes.shown(kind)} is registered for version {causes.shown(version)}"
        raise shapes.WrongShape(detail)


def _check_uid(body: Json, old: Json, resource: ServedResource) -> None:
    asked, found = body["metadata"].get("uid"), old["metadata"]["uid"]
    if asked and asked != found:
        why = f"Precondition failed: UID in precondition: {asked}, UID in object meta: {found}"
        raise status.conflict(resource.details(body["metadata"]["name"]), why)


async def _answered(server: Server, target: Target, written: Written, how: WriteOptions) -> Answer:
    if not how.dry_run:
        await terminating.after(server, target.resource, target.key, written.decision)
    created = isinstance(written.decision, Put) and written.decision.created
    return Answer(written.body, 201 if created else 200)
