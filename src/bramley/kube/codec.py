"""Decoders of single objects, lists and watches, prepared once for each kind; and the pager of lists.

One object that breaks its type must not hide the others, so a page that does not decode as a whole is decoded item by
item, and the undecodable items are returned beside the rest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, cast

import msgspec

from bramley.api.meta import Fields, K, Object, ObjectMeta, Resource
from bramley.base import errors, log
from bramley.kube.transport import Request
from bramley.kube.watch_stream import (
    DECODE_ERRORS,
    SAMPLE_BYTES,
    EventDecoder,
    describe,
    metadata_of,
)

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Undecodable:
    """An object that does not fit its type: its metadata, the error, and the beginning of its JSON."""

    metadata: ObjectMeta
    error: str
    raw: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Listing(Generic[K]):
    """Objects as of one version of the collection; a watch continues from `resource_version`."""

    items: list[K]
    resource_version: str
    continue_token: str = ""
    undecodable: list[Undecodable] = field(default_factory=list)


class _ListMeta(Fields, frozen=True, kw_only=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[K], frozen=True):
    metadata: _ListMeta
    items: list[K] | None = None


class _RawPage(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_RAW_PAGE = msgspec.json.Decoder(_RawPage)


class PageDecoder(Generic[K]):
    """Decodes pages of one kind."""

    def __init__(self, kind: type[K]) -> None:
        self._page = msgspec.json.Decoder(_Page[kind])  # type: ignore[valid-type]
        self._item = msgspec.json.Decoder(kind)

    def decode(self, body: bytes) -> Listing[K]:
        """Return the page; raise msgspec's error when it is not a list."""
        try:
            page = self._page.decode(body)
        except DECODE_ERRORS:
            return self._item_by_item(body)
        items = cast("list[K]", page.items or [])
        return Listing(items, page.metadata.resource_version, page.metadata.continue_)

    def _item_by_item(self, body: bytes) -> Listing[K]:
        page = _RAW_PAGE.decode(body)
        listing: Listing[K] = Listing([], page.metadata.resource_version, page.metadata.continue_)
        for raw in page.items or []:
            try:
                listing.items.append(self._item.decode(raw))
            except DECODE_ERRORS as error:
                failed = Undecodable(metadata_of(raw), describe(error), bytes(raw)[:SAMPLE_BYTES])
                listing.undecodable.append(failed)
        return listing


Fetch = Callable[[Request], Awaitable[Listing[K]]]


async def list_pages(first: Request, fetch: Fetch[K]) -> AsyncGenerator[Listing[K], None]:
    """Yield page after page, as of the version of the first one."""
    request = first
    while True:
        page = await fetch(request)
        yield page
        if not page.continue_token:
            return
        # The continue token includes the version, and the server rejects both together.
        query = {key: value for key, value in first.query.items() if key != "resourceVersion"}
        request = dataclasses.replace(first, query={**query, "continue": page.continue_token})


async def list_all(first: Request, fetch: Fetch[K]) -> Listing[K]:
    """Return all pages as one list; start over once when the version expires meanwhile."""
    try:
        return join_pages([page async for page in list_pages(first, fetch)])
    except errors.Gone as error:
        logger.info("Restarting expired list", path=first.path, reason=error.reason)
    return join_pages([page async for page in list_pages(first, fetch)])


def join_pages(pages: list[Listing[K]]) -> Listing[K]:
    """Return pages as one list, at the version of the first: a watch from there misses nothing."""
    if len(pages) == 1:
        return pages[0]
    return Listing(
        items=[item for page in pages for item in page.items],
        resource_version=pages[0].resource_version,
        undecodable=[failed for page in pages for failed in page.undecodable],
    )


class Codec(Generic[K]):
    """Decodes what the server sends about one kind."""

    def __init__(self, kind: type[K]) -> None:
        self._kind = kind
        self._object = msgspec.json.Decoder(kind)
        self._page = PageDecoder(kind)
        self.events = EventDecoder(kind)

    def object(self, body: bytes) -> K:
        """Return the object; raise InvalidSpec when it does not fit its type, because only a change of it helps."""
        try:
            return self._object.decode(body)
        except msgspec.ValidationError as error:
            raise self._invalid(error) from error
        except DECODE_ERRORS as error:
            raise not_json(self._kind.resource, error) from error

    def page(self, body: bytes) -> Listing[K]:
        """Return one page of a list."""
        try:
            return self._page.decode(body)
        except DECODE_ERRORS as error:
            raise not_json(self._kind.resource, error) from error

    def _invalid(self, error: msgspec.ValidationError) -> errors.InvalidSpec:
        cause = cause_of(error)
        text = f"the server's {self._kind.resource.kind} does not fit its type: {error}"
        return errors.InvalidSpec(text, causes=(cause,))


def decode_json(resource: Resource, body: bytes) -> dict[str, Any]:
    """Return an object as plain JSON values."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except DECODE_ERRORS as error:
        raise not_json(resource, error) from error


def not_json(resource: Resource, error: Exception) -> errors.ApiUnavailable:
    """Return the error for a body that is not JSON, such as the error page of a proxy."""
    return errors.ApiUnavailable(
        f"the response for {resource.plural} is not a JSON object: {describe(error)}"
    )


def cause_of(error: msgspec.ValidationError) -> errors.Cause:
    """Return the invalid field and the problem from msgspec's message, which may end in "- at `$.spec.field`"."""
    problem, _, path = str(error).partition(" - at `$")
    return errors.Cause(path.rstrip("`").removeprefix("."), "FieldValueTypeInvalid", problem)


def codec_of(kind: type[K]) -> Codec[K]:
    """Return the codec of a kind."""
    return cast("Codec[K]", _new_codec(kind))


@cache
def _new_codec(kind: type[Object]) -> Codec[Object]:
    # Shared by all clients of a process: codecs have no state, and creating one takes as long as decoding a hundred objects.
    return Codec(kind)
