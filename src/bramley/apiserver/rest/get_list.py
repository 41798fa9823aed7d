"""GET of one object, or of a list: complete, in pages at a fixed version, or as of a past version.

Lists are the joined stored bytes; only tables decode objects.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from bramley.apiserver.apimachinery import causes, status
from bramley.apiserver.apimachinery.causes import quoted
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.http.exchange import Request, Response
from bramley.apiserver.http.request_info import Target
from bramley.apiserver.registry.resources import ServedResource
from bramley.apiserver.rest import negotiation
from bramley.apiserver.rest.negotiation import (
    PLAIN,
    Form,
    View,
    list_prefix,
    metadata_only,
    view_of,
    with_include_object,
)
from bramley.apiserver.rest.request_options import ListOptions
from bramley.apiserver.rest.server import Server, check_not_damaged, served_bytes
from bramley.apiserver.store.errors import Compacted, FutureRevision
from bramley.apiserver.store.records import Record

_TOO_OLD = "The resourceVersion for the provided list is too old."
_LIST_CHANGED = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You can start a new list without the continue parameter, or use the continue token in this response to retrieve "
    "the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that "
    "were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
)
_ANY_VERSION = -1
_MAX_VERSION_LENGTH = 20


class Page(msgspec.Struct, frozen=True):
    """A page of a list: its records, the version of the list, and where the next page begins."""

    records: list[Record]
    version: int
    continue_token: str = ""
    remaining: int | None = None


class _Token(msgspec.Struct):
    """The content of a continue token: the version of the list and the first name of the next page."""

    v: str
    rv: int
    start: str


async def get(server: Server, request: Request, target: Target) -> Response:
    """Return one object."""
    if request.query.get("resourceVersion"):
        _check_not_in_future(server, request.query["resourceVersion"])
    record = server.store.get(target.key)
    if record is None:
        # A damaged object is not absent: because of a 404 the garbage collector would delete its dependents.
        check_not_damaged(server, target.resource, target.key)
        raise status.not_found(target.resource.details(target.name))
    return Response(served_bytes(record, target.resource))


def list_objects(
    server: Server, request: Request, target: Target, options: ListOptions
) -> Response:
    """Return a list."""
    view = view_of(request)
    result = page(server, target, options)
    if view.form is Form.TABLE:
        view = with_include_object(view, request)
        return Response(_table(server, result, target.resource, view))
    return Response(encode_list(result, target.resource, view))


def page(server: Server, target: Target, options: ListOptions) -> Page:
    """Return the page that the options select."""
    if options.continue_token:
        return _next_page(server, target, options)
    # Nothing is awaited until the records are read, so this is their version.
    version = server.store.revision
    if options.version not in {"", "0"}:
        requested = _version(options.version)
        if requested > version:
            raise status.version_too_large(requested, version)
        if options.match == "Exact" or (options.limit > 0 and not options.match):
            version = requested
    records = _records(server, target, options, version=version)
    # kube-apiserver's cache ignores the limit for version 0.
    limit = 0 if options.version == "0" else options.limit
    return _truncate(records, options, version=version, limit=limit)


def encode_list(page: Page, resource: ServedResource, view: View = PLAIN) -> bytes:
    """Return a page as JSON."""
    head = list_prefix(resource, view)
    items = _items(page.records, resource, view)
    return b'%b%b,"items":[%b]}\n' % (head, msgspec.json.encode(_meta(page)), items)


def _table(server: Server, page: Page, resource: ServedResource, view: View) -> bytes:
    bodies = [served_bytes(record, resource) for record in page.records]
    return negotiation.encode_table(
        bodies, resource, view, now=server.clock.now(), meta=_meta(page)
    )


def _meta(page: Page) -> dict[str, str | int]:
    meta: dict[str, str | int] = {"resourceVersion": str(page.version)}
    if page.continue_token:
        meta["continue"] = page.continue_token
        if page.remaining is not None:
            meta["remainingItemCount"] = page.remaining
    return meta


def _items(records: list[Record], resource: ServedResource, view: View) -> bytes:
    bodies = [served_bytes(record, resource) for record in records]
    if view.form is not Form.PLAIN:
        return b",".join([metadata_only(body, view.version) for body in bodies])
    if resource.is_custom or not bodies:
        return b",".join(bodies)
    # Items of built-in lists do not contain the kind, which comes first in each stored object.
    skip = len(resource.prefix)
    return b"{" + b",{".join([body[skip:] for body in bodies])


def _records(server: Server, target: Target, options: ListOptions, *, version: int) -> list[Record]:
    namespace = target.namespace or None
    stored = target.resource.stored_name
    try:
        if version == server.store.revision:
            records = server.store.list(stored, namespace)
        else:
            records = server.store.list_at(stored, version, namespace)
    except (Compacted, FutureRevision):
        # A future version comes from a continue token of a store that was replaced since.
        raise status.expired(_TOO_OLD) from None
    if options.selection.is_everything:
        return records
    return [record for record in records if options.selection.matches(record)]


def _truncate(records: list[Record], options: ListOptions, *, version: int, limit: int) -> Page:
    if limit <= 0 or len(records) <= limit:
        return Page(records, version)
    on_page = records[:limit]
    last = on_page[-1].key
    token = _encoded_token(version, f"{last.namespace}/{last.name}\0")
    # kube-apiserver does not count the remaining items of a list with a selector.
    remaining = len(records) - limit if options.selection.is_everything else None
    return Page(on_page, version, token, remaining)


def _next_page(server: Server, target: Target, options: ListOptions) -> Page:
    token = _decoded_token(options.continue_token)
    if options.version not in {"", "0"}:
        raise status.bad_request("specifying resource version is not allowed when using continue")
    version = server.store.revision if token.rv == _ANY_VERSION else token.rv
    try:
        records = _records(server, target, options, version=version)
    except ApiError:
        again = _encoded_token(_ANY_VERSION, token.start)
        raise status.expired(_LIST_CHANGED, continue_token=again) from None
    namespace, _, name = token.start.partition("/")
    start = (namespace, name)
    remaining = [each for each in records if (each.key.namespace, f"{each.key.name}") >= start]
    return _truncate(remaining, options, version=version, limit=options.limit)


def _encoded_token(version: int, start: str) -> str:
    text = msgspec.json.encode(_Token("meta.k8s.io/v1", version, start))
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def _decoded_token(text: str) -> _Token:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=_Token)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        message = f"invalid continue token: continue key is not valid: {error}"
        raise status.bad_request(message) from None


def _version(text: str) -> int:
    if _is_version(text):
        return int(text)
    detail = f"strconv.ParseUint: parsing {quoted(text)}: invalid syntax"
    wrong = causes.invalid("resourceVersion", text, detail)
    raise status.bad_request(f"invalid resource version: {wrong.field}: {wrong.message}")


def _is_version(text: str) -> bool:
    # Longer numbers exceed every version, and Python refuses to parse the longest ones.
    return text.isascii() and text.isdigit() and len(text) <= _MAX_VERSION_LENGTH


def check_version_syntax(text: str) -> None:
    """Raise a 500, as kube-apiserver does, for a version that is not a number; an empty one is valid."""
    if text and not _is_version(text):
        detail = f"strconv.ParseUint: parsing {quoted(text)}: invalid syntax"
        wrong = causes.invalid("resourceVersion", text, detail)
        raise ApiError(500, "", f"{wrong.field}: {wrong.message}")


def _check_not_in_future(server: Server, text: str) -> None:
    check_version_syntax(text)
    if int(text) > server.store.revision:
        raise status.version_too_large(int(text), server.store.revision)
