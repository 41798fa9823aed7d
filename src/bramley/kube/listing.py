"""Lists: one page or all of them, decoded straight into the type, with what does not fit kept aside.

One object that breaks its type must not hide the others, so a page that does not decode as a whole is decoded item by
item and the misfits are listed beside the rest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, cast

import msgspec

from bramley.api.meta import Fields, K, ObjectMeta
from bramley.base import errors, log
from bramley.kube.transport import Request
from bramley.kube.watching import SAMPLE_BYTES, UNFIT, describe, metadata_of

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Undecodable:
    """An object that does not fit its type: who it is, why, and the beginning of its text."""

    metadata: ObjectMeta
    error: str
    raw: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Listing(Generic[K]):
    """Objects as of one version of the collection; a watch goes on from `resource_version`."""

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


class _LoosePage(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_LOOSE = msgspec.json.Decoder(_LoosePage)


class PageDecoder(Generic[K]):
    """Decodes pages of one kind."""

    def __init__(self, kind: type[K]) -> None:
        self._page = msgspec.json.Decoder(_Page[kind])  # type: ignore[valid-type]
        self._item = msgspec.json.Decoder(kind)

    def decode(self, body: bytes) -> Listing[K]:
        """Return the page; raises what msgspec raises when it is no list at all."""
        try:
            page = self._page.decode(body)
        except UNFIT:
            return self._item_by_item(body)
        items = cast("list[K]", page.items or [])
        return Listing(items, page.metadata.resource_version, page.metadata.continue_)

    def _item_by_item(self, body: bytes) -> Listing[K]:
        page = _LOOSE.decode(body)
        found: Listing[K] = Listing([], page.metadata.resource_version, page.metadata.continue_)
        for raw in page.items or []:
            try:
                found.items.append(self._item.decode(raw))
            except UNFIT as error:
                misfit = Undecodable(metadata_of(raw), describe(error), bytes(raw)[:SAMPLE_BYTES])
                found.undecodable.append(misfit)
        return found


Fetch = Callable[[Request], Awaitable[Listing[K]]]


async def pages(first: Request, fetch: Fetch[K]) -> AsyncGenerator[Listing[K], None]:
    """Yield page after page, as of the version of the first one."""
    request = first
    while True:
        page = await fetch(request)
        yield page
        if not page.continue_token:
            return
        # The token stands for the version too, and the server refuses both together.
        query = {key: value for key, value in first.query.items() if key != "resourceVersion"}
        request = dataclasses.replace(first, query={**query, "continue": page.continue_token})


async def whole(first: Request, fetch: Fetch[K]) -> Listing[K]:
    """Return all pages as one list; when its version expires on the way it starts over, once."""
    try:
        return joined([page async for page in pages(first, fetch)])
    except errors.Gone as error:
        logger.info("Starting a list over", path=first.path, reason=error.reason)
    return joined([page async for page in pages(first, fetch)])


def joined(found: list[Listing[K]]) -> Listing[K]:
    """Return pages as one list, at the version of the first: a watch from there misses nothing."""
    if len(found) == 1:
        return found[0]
    return Listing(
        items=[item for page in found for item in page.items],
        resource_version=found[0].resource_version,
        undecodable=[misfit for page in found for misfit in page.undecodable],
    )
