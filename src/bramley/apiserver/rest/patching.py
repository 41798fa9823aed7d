"""The patch types that are understood: how each is read from a request, what it changes, and how it is refused.

A change makes the new object out of the old one, which stays as it is; `refusal` words why the result is no object of its kind.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from bramley.apiserver.apimachinery import causes, patches, status
from bramley.apiserver.apimachinery.status import ApiError, Details
from bramley.apiserver.http.exchange import Request
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest import bodies
from bramley.apiserver.store.records import Record

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

REJECTED = "the server rejected our request due to an error in our request"


class Change(Protocol):
    """What a patch does to an object; `repeated` are fields that its text names twice."""

    @property
    def repeated(self) -> tuple[str, ...]:
        """Return the fields that stand twice in one object of the patch."""
        ...

    def __call__(self, old: Json, current: Record, /) -> Json:
        """Return the new object; the old one is left as it is."""
        ...

    def refusal(self, old: Json, current: Record, why: str) -> ApiError:
        """Return the refusal of a patch whose result does not have its kind's shape."""
        ...


async def read(
    request: Request, resource: ServedResource, *, media: str = "", validation: str = ""
) -> Change:
    """Return the change that a patch describes; raise a 415 for what we do not understand and a 400 for nonsense."""
    media = media or bodies.media_type(request)
    if media == STRATEGIC and not resource.is_custom:
        return await _read_strategic(request, resource, validation)
    if media not in {MERGE, JSON_PATCH}:
        raise _unknown(resource)
    data = await request.body()
    try:
        value = bodies.from_json(data)
    except bodies.Unreadable as wrong:
        raise status.bad_request(f"error decoding patch: {wrong}") from None
    repeated = _repeated(data, validation)
    return _merging(value, repeated) if media == MERGE else _operating(value, repeated)


def _repeated(data: bytes, validation: str) -> tuple[str, ...]:
    looked_at = validation in {"Strict", "Warn"}
    return tuple(bodies.repeated_fields(data)) if looked_at else ()


def _unknown(resource: ServedResource) -> ApiError:
    if resource.is_custom:
        return status.unsupported_media_type((JSON_PATCH, MERGE, APPLY))
    message = "415: Unsupported Media Type"
    return ApiError(415, "UnsupportedMediaType", message, details=status.NOTHING)


class Merging(msgspec.Struct, frozen=True):
    """A merge patch."""

    patch: Json
    repeated: tuple[str, ...] = ()

    def __call__(self, old: Json, _current: Record, /) -> Json:
        """Return the object with the patch merged in."""
        merged: Json = patches.merge(old, self.patch)
        return merged

    def refusal(self, old: Json, current: Record, why: str) -> ApiError:
        """Return a refusal that shows the patched object."""
        return misshapen(_sorted(self(old, current)), why)


class Operating(msgspec.Struct, frozen=True):
    """A JSON patch."""

    operations: list[Json]
    repeated: tuple[str, ...] = ()

    def __call__(self, old: Json, _current: Record, /) -> Json:
        """Return the object after all operations."""
        own = msgspec.json.decode(msgspec.json.encode(old))
        try:
            new = patches.apply(own, self.operations)
        except patches.PatchFailed:
            raise ApiError(422, "Invalid", REJECTED, details=status.NOTHING) from None
        if type(new) is not dict:
            raise _not_a_patch(new, "map[string]interface {}")
        return new

    def refusal(self, old: Json, current: Record, why: str) -> ApiError:
        """Return a refusal that shows the patched object."""
        return misshapen(_sorted(self(old, current)), why)


class Strategic(msgspec.Struct, frozen=True):
    """A strategic merge patch of a built-in kind; kept as bytes because merging uses a patch up."""

    patch: bytes
    struct: str
    repeated: tuple[str, ...] = ()

    def __call__(self, old: Json, _current: Record, /) -> Json:
        """Return the object with the patch merged in by the kind's keys and strategies."""
        merged = self._merged(old, msgspec.json.decode(self.patch))
        # What a patch says of the kind does not matter: the path has said it.
        return {**merged, "kind": old["kind"], "apiVersion": old["apiVersion"]}

    def _merged(self, old: Json, patch: Json) -> Json:
        from bramley.apiserver.strategic import lists, merging, schema

        try:
            return merging.merge(old, patch, self.struct)
        except lists.BadPatch as wrong:
            raise status.bad_request(str(wrong)) from None
        except lists.ListOfLists:
            raise ApiError(422, "Invalid", REJECTED, details=status.NOTHING) from None
        except (lists.Unmergeable, schema.NoSuchField) as wrong:
            raise ApiError(500, "", str(wrong)) from None

    def refusal(self, old: Json, _current: Record, why: str) -> ApiError:
        """Return a refusal that shows what is left of the patch, as Go prints it."""
        from bramley.apiserver.strategic import go_text, restoring

        patch = msgspec.json.decode(self.patch)
        new = self._merged(old, patch)
        strict = why.startswith("strict decoding error")
        better = None if strict else restoring.complaint(new, self.struct)
        return misshapen(go_text.printed(patch), better or why)


async def _read_strategic(request: Request, resource: ServedResource, validation: str) -> Strategic:
    from bramley.apiserver.fields import structs

    struct = structs.of_kind(resource.api_version, resource.kind)
    if struct is None:
        raise _unknown(resource)
    data = await request.body()
    try:
        value = bodies.from_json(data)
    except bodies.Unreadable as wrong:
        raise status.bad_request(str(wrong)) from None
    if value is None:
        value = {}
    if type(value) is not dict:
        raise status.bad_request(_mismatch(value, "map[string]interface {}"))
    return Strategic(msgspec.json.encode(value), struct, _repeated(data, validation))


def _merging(value: Any, repeated: tuple[str, ...]) -> Merging:
    if type(value) is not dict:
        raise _not_a_patch(value, "map[string]interface {}")
    return Merging(value, repeated)


def _operating(value: Any, repeated: tuple[str, ...]) -> Operating:
    if type(value) is not list or not all(type(each) is dict for each in value):
        raise _not_a_patch(value, "[]handlers.jsonPatchOp")
    if len(value) > patches.OPERATIONS_LIMIT:
        message = f"The allowed maximum operations in a JSON patch is {patches.OPERATIONS_LIMIT}, got {len(value)}"
        raise status.too_large(message)
    return Operating(value, repeated)


def _not_a_patch(value: Any, wanted: str) -> ApiError:
    return status.bad_request(f"error decoding patch: {_mismatch(value, wanted)}")


def _mismatch(value: Any, wanted: str) -> str:
    found = {dict: "object", list: "array", str: "string", bool: "bool"}.get(type(value), "number")
    return f"json: cannot unmarshal {found} into Go value of type {wanted}"


def _sorted(new: Json) -> str:
    return msgspec.json.encode(new, order="sorted").decode()


def misshapen(shown: str, why: str) -> ApiError:
    """Return the refusal of a patch, of which a text shows what came of it."""
    return status.invalid(Details(), [causes.invalid("patch", shown, why)])
