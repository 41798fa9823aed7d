"""Prepared decoders, one set for each kind, made on first use and shared by all clients of a process."""

from __future__ import annotations

from functools import cache
from typing import Any, Generic, cast

import msgspec

from bramley.api.meta import K, Object, Resource
from bramley.base import errors
from bramley.kube.listing import Listing, PageDecoder
from bramley.kube.watching import UNFIT, EventDecoder, describe


class Codec(Generic[K]):
    """Decodes what the server sends about one kind."""

    def __init__(self, kind: type[K]) -> None:
        self._kind = kind
        self._object = msgspec.json.Decoder(kind)
        self._page = PageDecoder(kind)
        self.events = EventDecoder(kind)

    def object(self, body: bytes) -> K:
        """Return the object; one that does not fit its type is `InvalidSpec`, for only its change will help."""
        try:
            return self._object.decode(body)
        except msgspec.ValidationError as error:
            raise self._misfit(error) from error
        except UNFIT as error:
            raise no_answer(self._kind.resource, error) from error

    def page(self, body: bytes) -> Listing[K]:
        """Return one page of a list."""
        try:
            return self._page.decode(body)
        except UNFIT as error:
            raise no_answer(self._kind.resource, error) from error

    def _misfit(self, error: msgspec.ValidationError) -> errors.InvalidSpec:
        cause = cause_of(error)
        text = f"the server's {self._kind.resource.kind} does not fit its type: {error}"
        return errors.InvalidSpec(text, causes=(cause,))


def as_wire(resource: Resource, body: bytes) -> dict[str, Any]:
    """Return an object as plain JSON values."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except UNFIT as error:
        raise no_answer(resource, error) from error


def no_answer(resource: Resource, error: Exception) -> errors.ApiUnavailable:
    """Return the error for a body that is no JSON, as of a proxy that answers in the server's stead."""
    told = f"the answer about {resource.plural} is not what was asked for"
    return errors.ApiUnavailable(f"{told}: {describe(error)}")


def cause_of(error: msgspec.ValidationError) -> errors.Cause:
    """Return which field does not fit and why, out of msgspec's sentence, which may end in "- at `$.spec.field`"."""
    problem, _, place = str(error).partition(" - at `$")
    return errors.Cause(place.rstrip("`").removeprefix("."), "FieldValueTypeInvalid", problem)


def codec(kind: type[K]) -> Codec[K]:
    """Return the codec of a kind."""
    return cast("Codec[K]", _made(kind))


@cache
def _made(kind: type[Object]) -> Codec[Object]:
    # For all clients of a process: they keep nothing, and to make one takes as long as a hundred answers.
    return Codec(kind)
