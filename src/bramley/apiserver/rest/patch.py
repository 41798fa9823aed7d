"""PATCH: the supported patch types, and the handler that applies a patch to an object or its status.

A patch returns a new object and leaves the old one unchanged; `error` explains why the result does not fit its kind.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from bramley.apiserver.apimachinery import causes, patches, status
from bramley.apiserver.apimachinery.status import ApiError, Details
from bramley.apiserver.http.exchange import Request, Response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.kinds import shapes
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest import bodies, objects, request_options, update
from bramley.apiserver.rest.request_options import WriteOptions
from bramley.apiserver.rest.server import Server, existing, served
from bramley.apiserver.rest.writes import Decision, write
from bramley.apiserver.store.records import Record

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
REJECTED = "the server rejected our request due to an error in our request"


async def patch(server: Server, request: Request, target: Target) -> Response:
    """Patch an object, or its status, or apply a configuration to it."""
    media = bodies.media_type(request)
    if media == APPLY:
        from bramley.apiserver.rest import apply

        return await apply.apply(server, request, target)
    options = request_options.patch_options(request)
    change = await read_patch(request, target.resource, media=media, validation=options.validation)

    def decide(current: Record | None) -> Decision:
        current = existing(current, target.resource, target.name)
        old = served(current, target.resource)
        # Applied to the newest state, inside the write: a patch without a version never conflicts.
        new = change(old)
        try:
            _check_shape(
                new,
                old,
                target.resource,
                options=options,
                request=request,
                repeated=change.repeated,
            )
        except shapes.WrongShape as wrong:
            raise change.error(old, str(wrong)) from None
        objects.check_name_and_namespace(new, name=target.name, namespace=target.namespace)
        track_managers = update.managers_tracker(
            server, request, target, new=new, old=old, options=options
        )
        return update.decide_update(
            server, new, old, current=current, target=target, track_managers=track_managers
        )

    written = await write(server, target.resource, target.key, decide, dry_run=options.dry_run)
    return await update.write_response(server, target, written, options)


def _check_shape(
    new: Json,
    old: Json,
    resource: ServedResource,
    *,
    options: WriteOptions,
    request: Request,
    repeated: tuple[str, ...],
) -> None:
    if new.get("metadata") is None:
        return  # check_name_and_namespace reports what is missing
    if resource.is_custom and type(new["metadata"]) is dict:
        bodies.check_kind(new, resource)
    _check_identity(new, resource)
    bodies.check_shape(new, resource, options=options, request=request, old=old, repeated=repeated)


def _check_identity(new: Json, resource: ServedResource) -> None:
    kind, version = new.get("kind"), new.get("apiVersion")
    if (kind, version) != (resource.kind, resource.api_version):
        detail = f"no kind {causes.text(kind)} is registered for version {causes.text(version)}"
        raise shapes.WrongShape(detail)


class Patch(Protocol):
    """A parsed patch; `repeated` are fields that it contains twice."""

    @property
    def repeated(self) -> tuple[str, ...]:
        """Return the fields that one object of the patch contains twice."""
        ...

    def __call__(self, old: Json, /) -> Json:
        """Return the new object and leave the old one unchanged."""
        ...

    def error(self, old: Json, why: str) -> ApiError:
        """Return the error for a patch whose result does not have its kind's shape."""
        ...


async def read_patch(
    request: Request, resource: ServedResource, *, media: str = "", validation: str = ""
) -> Patch:
    """Return the patch in a request's body; raise a 415 for an unsupported type and a 400 if it cannot be parsed."""
    media = media or bodies.media_type(request)
    if media == STRATEGIC and not resource.is_custom:
        return await _read_strategic(request, resource, validation)
    if media not in {MERGE, JSON_PATCH}:
        raise _unsupported_patch_type(resource)
    data = await request.body()
    try:
        value = bodies.from_json(data)
    except bodies.Unreadable as wrong:
        raise status.bad_request(f"error decoding patch: {wrong}") from None
    repeated = _duplicate_fields(data, validation)
    return _merge_patch(value, repeated) if media == MERGE else _json_patch(value, repeated)


def _duplicate_fields(data: bytes, validation: str) -> tuple[str, ...]:
    is_reported = validation in {"Strict", "Warn"}
    return tuple(bodies.duplicate_fields(data)) if is_reported else ()


def _unsupported_patch_type(resource: ServedResource) -> ApiError:
    if resource.is_custom:
        return status.unsupported_media_type((JSON_PATCH, MERGE, APPLY))
    message = "415: Unsupported Media Type"
    return ApiError(415, "UnsupportedMediaType", message, details=status.NO_DETAILS)


class MergePatch(msgspec.Struct, frozen=True):
    """A merge patch."""

    patch: Json
    repeated: tuple[str, ...] = ()

    def __call__(self, old: Json, /) -> Json:
        """Return the object with the patch merged in."""
        merged: Json = patches.merge(old, self.patch)
        return merged

    def error(self, old: Json, why: str) -> ApiError:
        """Return a refusal that shows the patched object."""
        return _invalid_patch(msgspec.json.encode(self(old), order="sorted").decode(), why)


class JsonPatch(msgspec.Struct, frozen=True):
    """A JSON patch."""

    operations: list[Json]
    repeated: tuple[str, ...] = ()

    def __call__(self, old: Json, /) -> Json:
        """Return the object after all operations."""
        own = msgspec.json.decode(msgspec.json.encode(old))
        try:
            new = patches.apply(own, self.operations)
        except patches.PatchFailed:
            raise ApiError(422, "Invalid", REJECTED, details=status.NO_DETAILS) from None
        if type(new) is not dict:
            raise _not_a_patch(new, "map[string]interface {}")
        return new

    def error(self, old: Json, why: str) -> ApiError:
        """Return a refusal that shows the patched object."""
        return _invalid_patch(msgspec.json.encode(self(old), order="sorted").decode(), why)


class StrategicMergePatch(msgspec.Struct, frozen=True):
    """A strategic merge patch of a built-in kind; kept as bytes because merging modifies a patch."""

    patch: bytes
    struct: str
    repeated: tuple[str, ...] = ()

    def __call__(self, old: Json, /) -> Json:
        """Return the object with the patch merged in by the kind's keys and strategies."""
        merged = self._merged(old, msgspec.json.decode(self.patch))
        # The kind is that of the path, whatever the patch contains.
        return {**merged, "kind": old["kind"], "apiVersion": old["apiVersion"]}

    def _merged(self, old: Json, patch: Json) -> Json:
        from bramley.apiserver.strategic import lists, merge

        try:
            return merge.merge(old, patch, self.struct)
        except lists.BadPatch as wrong:
            raise status.bad_request(str(wrong)) from None
        except lists.ListOfLists:
            raise ApiError(422, "Invalid", REJECTED, details=status.NO_DETAILS) from None
        except (lists.Unmergeable, merge.NoSuchField) as wrong:
            raise ApiError(500, "", str(wrong)) from None

    def error(self, old: Json, why: str) -> ApiError:
        """Return an error that shows the remaining patch as Go prints it."""
        from bramley.apiserver.strategic import go_values

        patch = msgspec.json.decode(self.patch)
        new = self._merged(old, patch)
        strict = why.startswith("strict decoding error")
        better = None if strict else go_values.conversion_error(new, self.struct)
        return _invalid_patch(go_values.as_text(patch), better or why)


async def _read_strategic(
    request: Request, resource: ServedResource, validation: str
) -> StrategicMergePatch:
    from bramley.apiserver.fields import structs

    struct = structs.of_kind(resource.api_version, resource.kind)
    if struct is None:
        raise _unsupported_patch_type(resource)
    data = await request.body()
    try:
        value = bodies.from_json(data)
    except bodies.Unreadable as wrong:
        raise status.bad_request(str(wrong)) from None
    if value is None:
        value = {}
    if type(value) is not dict:
        raise status.bad_request(_mismatch(value, "map[string]interface {}"))
    return StrategicMergePatch(
        msgspec.json.encode(value), struct, _duplicate_fields(data, validation)
    )


def _merge_patch(value: Any, repeated: tuple[str, ...]) -> MergePatch:
    if type(value) is not dict:
        raise _not_a_patch(value, "map[string]interface {}")
    return MergePatch(value, repeated)


def _json_patch(value: Any, repeated: tuple[str, ...]) -> JsonPatch:
    if type(value) is not list or not all(type(each) is dict for each in value):
        raise _not_a_patch(value, "[]handlers.jsonPatchOp")
    if len(value) > patches.OPERATIONS_LIMIT:
        message = f"The allowed maximum operations in a JSON patch is {patches.OPERATIONS_LIMIT}, got {len(value)}"
        raise status.too_large(message)
    return JsonPatch(value, repeated)


def _not_a_patch(value: Any, expected_type: str) -> ApiError:
    return status.bad_request(f"error decoding patch: {_mismatch(value, expected_type)}")


def _mismatch(value: Any, expected_type: str) -> str:
    actual = {dict: "object", list: "array", str: "string", bool: "bool"}.get(type(value), "number")
    return f"json: cannot unmarshal {actual} into Go value of type {expected_type}"


def _invalid_patch(shown: str, why: str) -> ApiError:
    """Return the error for a patch; `shown` is the patched object or the patch."""
    return status.invalid(Details(), [causes.invalid("patch", shown, why)])
