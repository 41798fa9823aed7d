"""The language of staging: what a Node's annotation asks for, and what the other one answers. Pure.

A wish reads `{"images": ["ghcr.io/…@sha256:…"], "megabytesPerSecond": 20}`. The answer tells which wish it is for by the hash of its
text, so that whoever wrote the wish can tell an answer from one to the wish before.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

import msgspec

from bramley.base import errors

# More than a Mac's disk holds.
_MOST_IMAGES = 16
_LONGEST_MESSAGE = 300


class State(StrEnum):
    """How far a staged image is."""

    WAITING = "Waiting"
    PULLING = "Pulling"
    STAGED = "Staged"
    FAILED = "Failed"


class Wish(msgspec.Struct, frozen=True, rename="camel"):
    """Images to keep ready, in the order in which they are fetched."""

    images: tuple[str, ...] = ()
    megabytes_per_second: float | None = None


class StagedImage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How it stands with one of them."""

    image: str
    state: State
    percent: int | None = None
    digest: str = ""
    message: str = ""


class Report(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The answer to one wish; `message` says what is wrong with the wish itself."""

    request: str
    images: tuple[StagedImage, ...] = ()
    message: str = ""

    def text(self) -> str:
        """Return it as the annotation holds it."""
        return msgspec.json.encode(self).decode()


def read(text: str) -> Wish:
    """Read a wish; BadRequest when it cannot be understood. No text is the wish for nothing."""
    if not text.strip():
        return Wish()
    try:
        wish = msgspec.json.decode(text, type=Wish)
    except msgspec.DecodeError as error:
        raise errors.BadRequest(f"the wish cannot be read: {error}") from error
    if len(wish.images) > _MOST_IMAGES:
        raise errors.BadRequest(f"more than {_MOST_IMAGES} images cannot be staged")
    if wish.megabytes_per_second is not None and wish.megabytes_per_second <= 0:
        raise errors.BadRequest("megabytesPerSecond must be more than nothing")
    return Wish(tuple(dict.fromkeys(wish.images)), wish.megabytes_per_second)


def request_id(text: str) -> str:
    """Return what a report calls the wish of this text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def failed(image: str, error: errors.BramleyError) -> StagedImage:
    """Return the answer for an image that could not be had."""
    told = f"{error.reason}: {error}"
    return StagedImage(image, State.FAILED, message=told[:_LONGEST_MESSAGE])
