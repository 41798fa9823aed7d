"""The request and the report of image staging, which pool controller and agent exchange by two annotations of a Node.

A request reads `{"images": ["ghcr.io/…@sha256:…"], "megabytesPerSecond": 20, "namespace": "tuist-runners", "pullSecrets": ["ghcr"]}`,
of which only the images are necessary. The report identifies its request by the hash of the request's text.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

import msgspec

from bramley.base import errors

# More than the disk of a Mac holds.
_MAX_IMAGES = 16

# How the message of an image begins that was not pulled because the disk has no room for it.
NO_ROOM = "BelowFloor"
# The same, because the registry refused, and the host may not read the pull secret: no Pod on it refers to that Secret.
NO_ACCESS = "SecretForbidden"


class State(StrEnum):
    """The state of a staged image."""

    WAITING = "Waiting"
    PULLING = "Pulling"
    STAGED = "Staged"
    FAILED = "Failed"


class StagingRequest(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Images to stage, in the order in which they are pulled."""

    images: tuple[str, ...] = ()
    megabytes_per_second: float | None = None
    # The Secrets with credentials for the registries, and where they are.
    namespace: str = ""
    pull_secrets: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the annotation's value."""
        return msgspec.json.encode(self).decode()


class StagedImage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of one requested image."""

    image: str
    state: State
    percent: int | None = None
    digest: str = ""
    message: str = ""


class StagingReport(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The report on one request; `message` is set if the request itself is invalid."""

    request: str
    images: tuple[StagedImage, ...] = ()
    message: str = ""

    def text(self) -> str:
        """Return the annotation's value."""
        return msgspec.json.encode(self).decode()


def parse_request(text: str) -> StagingRequest:
    """Parse a request; BadRequest if it is invalid. An empty text requests nothing."""
    if not text.strip():
        return StagingRequest()
    try:
        request = msgspec.json.decode(text, type=StagingRequest)
    except msgspec.DecodeError as error:
        raise errors.BadRequest(f"the staging request is not valid: {error}") from error
    if len(request.images) > _MAX_IMAGES:
        raise errors.BadRequest(f"at most {_MAX_IMAGES} images can be staged")
    if request.megabytes_per_second is not None and request.megabytes_per_second <= 0:
        raise errors.BadRequest("megabytesPerSecond must be positive")
    if request.pull_secrets and not request.namespace:
        raise errors.BadRequest("pullSecrets need a namespace")
    return msgspec.structs.replace(request, images=tuple(dict.fromkeys(request.images)))


def request_id(text: str) -> str:
    """Return the identifier of a request, for its report."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse_report(text: str) -> StagingReport | None:
    """Parse a report; None if there is none, or it is not one."""
    try:
        return msgspec.json.decode(text, type=StagingReport) if text else None
    except msgspec.DecodeError:
        return None
