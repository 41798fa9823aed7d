"""Request bodies: decoded into an object of the right kind and shape, with the error messages of kube-apiserver.

Unknown fields are dropped; the client chooses whether they are an error, a warning or ignored.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from bramley.apiserver.apimachinery import causes, status
from bramley.apiserver.apimachinery.causes import quoted
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.http.exchange import Request
from bramley.apiserver.kinds import shapes
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest.request_options import WriteOptions

if TYPE_CHECKING:
    import yaml

MEDIA_TYPES = ("application/json", "application/yaml")
PROTOBUF = "application/vnd.kubernetes.protobuf"
BUILT_IN_MEDIA_TYPES = (*MEDIA_TYPES, PROTOBUF)

_SHOWN = 30
_PROBE = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
_JSON_NAMES: dict[type, str] = {list: "array", str: "string", bool: "bool", int: "number"}


class Unreadable(ValueError):
    """Bytes that are not of their media type; the text says where."""


def media_type(request: Request) -> str:
    """Return the body's media type in lower case, by default JSON."""
    text = request.header(b"content-type")
    kind, *parameters = (part.strip() for part in text.split(";"))
    if any("=" not in each for each in parameters if each):
        return text
    return kind.lower() or "application/json"


def decode(data: bytes, media: str) -> Any:
    """Return the value of JSON or YAML bytes."""
    return from_yaml(data) if media == "application/yaml" else from_json(data)


def from_json(data: bytes) -> Any:
    """Return the value of JSON bytes; raise Unreadable."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise Unreadable("exceeded max depth") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        truncated = not data.strip() or "truncated" in str(error)
        raise Unreadable("unexpected end of JSON input" if truncated else str(error)) from None


def from_yaml(data: bytes) -> Any:
    """Return the value of YAML bytes with JSON's types; raise Unreadable."""
    if data.startswith(b"{"):
        # Most clients apply JSON, which is also YAML, and parsing it as JSON is a hundred times as fast.
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(data)
    # Imported here: loading the library takes a tenth of the server's start, and few clients send YAML.
    import yaml

    try:
        events = list(yaml.parse(data, Loader=yaml.SafeLoader))
        if any(isinstance(event, yaml.AliasEvent) for event in events):
            # A few lines of aliases can expand to gigabytes.
            raise Unreadable("document contains excessive aliasing")
        return _json_value(yaml.load(data, Loader=_json_loader()))  # noqa: S506 - a safe loader
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise Unreadable(f"yaml: {' '.join(str(error).split())}") from None


@cache
def _json_loader() -> type[yaml.SafeLoader]:
    """Return a loader of what JSON can express; it reads dates as texts."""
    import yaml

    class JsonLoader(yaml.SafeLoader):
        yaml_implicit_resolvers = {
            first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith("timestamp")]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    return JsonLoader


def _json_value(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = ((key, _json_value(each)) for key, each in value.items())
        return {key if isinstance(key, str) else json.dumps(key): each for key, each in pairs}
    return [_json_value(each) for each in value] if isinstance(value, list) else value


async def read_object(request: Request, resource: ServedResource, options: WriteOptions) -> Json:
    """Return the object in a request's body, of the resource's kind and shape."""
    media = media_type(request)
    media_types = MEDIA_TYPES if resource.is_custom else BUILT_IN_MEDIA_TYPES
    if media not in media_types:
        raise status.unsupported_media_type(media_types)
    data = await request.body()
    if media == PROTOBUF:
        body, repeated = _from_protobuf(data, resource), []
    else:
        body = _object(data, media, resource)
        repeated = duplicate_fields(data) if options.validation in {"Strict", "Warn"} else []
    try:
        check_shape(body, resource, options=options, request=request, repeated=repeated)
    except shapes.WrongShape as wrong:
        raise _cannot_be_handled(body, resource, str(wrong)) from None
    return body


def _from_protobuf(data: bytes, resource: ServedResource) -> Json:
    from bramley.apiserver.fields import structs
    from bramley.apiserver.protobuf import messages, wire

    try:
        envelope = messages.open_envelope(data)
    except wire.Malformed as wrong:
        raise _unrecognized(resource, str(wrong), data) from None
    body = _with_type_meta({"kind": envelope.kind, "apiVersion": envelope.api_version}, resource)
    struct = structs.of_kind(resource.api_version, resource.kind)
    if struct is None:
        raise status.unsupported_media_type(MEDIA_TYPES)
    try:
        return {**body, **messages.read(envelope.message, struct)}
    except wire.Malformed as wrong:
        raise _cannot_be_handled(body, resource, str(wrong)) from None


def read_options(data: bytes, media: str) -> Any:
    """Return the decoded delete options; raise Unreadable."""
    if media != PROTOBUF:
        return decode(data, media)
    from bramley.apiserver.protobuf import messages, wire

    try:
        return messages.read(messages.open_envelope(data).message, "meta/v1.DeleteOptions")
    except wire.Malformed as wrong:
        raise Unreadable(str(wrong)) from None


def _object(data: bytes, media: str, resource: ServedResource) -> Json:
    try:
        body = decode(data, media)
    except Unreadable as wrong:
        problem = (
            str(wrong)
            if media != "application/json"
            else f"couldn't get version/kind; json parse error: {wrong}"
        )
        raise _unrecognized(resource, problem, data) from None
    if body is None and not resource.is_custom:
        body = {}
    if body is not None and type(body) is not dict:
        json_type = _JSON_NAMES.get(type(body), "number")
        problem = f"couldn't get version/kind; json parse error: json: cannot unmarshal {json_type} into Go value of type {_PROBE}"
        raise _unrecognized(resource, problem, data)
    if resource.is_custom and not (body or {}).get("kind"):
        text = data.decode(errors="replace")
        raise _unrecognized(resource, f"Object 'Kind' is missing in '{text}'", data)
    return _with_type_meta(body or {}, resource)


def _with_type_meta(body: Json, resource: ServedResource) -> Json:
    """Return the body with its kind first, as objects are stored."""
    version = body.get("apiVersion") or ("" if resource.is_custom else resource.api_version)
    kind = body.get("kind") or resource.kind
    body = {"kind": kind, "apiVersion": version, "metadata": body.get("metadata"), **body}
    body["kind"], body["apiVersion"] = kind, version
    if body["metadata"] is None:
        body["metadata"] = {}
    if version != resource.api_version and resource.is_custom:
        message = f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        raise status.bad_request(message)
    if not resource.is_custom and (kind, version) != (resource.kind, resource.api_version):
        detail = f"no kind {causes.text(kind)} is registered for version {causes.text(version)}"
        raise _cannot_be_handled(body, resource, detail)
    return body


def check_kind(body: Json, resource: ServedResource) -> None:
    """Raise a 422 when an object of a custom kind has another kind or apiVersion."""
    for field, expected in (("kind", resource.kind), ("apiVersion", resource.api_version)):
        if body.get(field) != expected:
            kind = body["kind"] if isinstance(body.get("kind"), str) else ""
            details = status.Details(resource.group, kind, body["metadata"].get("name", ""))
            error = causes.invalid(field, body.get(field), f"must be {expected}")
            raise status.invalid(details, [error])


def check_shape(
    body: Json,
    resource: ServedResource,
    *,
    options: WriteOptions,
    request: Request,
    repeated: Sequence[str] = (),
    old: Json | None = None,
) -> None:
    """Check types, and drop unknown fields in place; raise WrongShape.

    Parts that are the very ones of `old` were checked when they were stored.
    """
    unknown = (
        _check_custom(body, resource, old or {})
        if resource.is_custom
        else _check_builtin(body, resource, old)
    )
    if options.silent or not (unknown or repeated):
        return
    messages = [f"duplicate field {quoted(each)}" for each in repeated]
    messages += [f"unknown field {quoted(each)}" for each in unknown]
    if options.strict:
        raise shapes.WrongShape(f"strict decoding error: {', '.join(messages)}")
    request.warnings.extend(messages)


def _check_builtin(body: Json, resource: ServedResource, old: Json | None) -> list[str]:
    check = shapes.checker(resource.strategy.shape)
    unknown: list[str] = []
    if old is None:
        check(body, "", unknown)
        return unknown
    changed = {key: value for key, value in body.items() if value is not old.get(key)}
    checked = check(dict(changed), "", unknown)
    for key in changed:
        if key in checked:
            body[key] = checked[key]
        else:
            del body[key]
    return unknown


def _check_custom(body: Json, resource: ServedResource, old: Json) -> list[str]:
    unknown: list[str] = []
    metadata = body.get("metadata")
    if type(metadata) is not dict:
        json_type = _JSON_NAMES.get(type(metadata), "number")
        raise shapes.WrongShape(
            f"json: cannot unmarshal {json_type} into Go value of type v1.ObjectMeta"
        )
    if metadata is not old.get("metadata"):
        shapes.checker("v1.ObjectMeta")(metadata, "", unknown)
    pruned = resource.structural.prune(body) if resource.structural else []
    return sorted([*(f"metadata.{each}" for each in unknown), *pruned])


def _cannot_be_handled(body: Json, resource: ServedResource, reason: str) -> ApiError:
    version = str(body["apiVersion"]).rpartition("/")[2]
    message = (
        f'{body["kind"]} in version "{version}" cannot be handled as a {resource.kind}: {reason}'
    )
    return status.bad_request(message)


def _unrecognized(resource: ServedResource, reason: str, data: bytes) -> ApiError:
    message = f"the object provided is unrecognized (must be of type {resource.kind}): {reason} ({_summary(data)})"
    return status.bad_request(message)


def _summary(data: bytes) -> str:
    if not data:
        return "<empty>"
    shown = data[:_SHOWN].decode(errors="replace") if data[:1] == b"{" else data[:_SHOWN].hex()
    return f"{shown} ..." if len(data) > _SHOWN else shown


def duplicate_fields(data: bytes) -> list[str]:
    """Return the paths of fields that a JSON text contains twice in one object."""
    try:
        pairs = json.loads(data, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return []
    return list(_find_duplicates(pairs, ""))


class _Pairs(list[tuple[str, Any]]):
    """The fields of one object in the order of the text, including duplicates."""


def _find_duplicates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen = set()
        for key, each in value:
            field_path = f"{path}.{key}" if path else key
            if key in seen:
                yield field_path
            seen.add(key)
            yield from _find_duplicates(each, field_path)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _find_duplicates(each, f"{path}[{index}]")
