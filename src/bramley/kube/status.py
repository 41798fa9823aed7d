"""Translates the server's `Status` of a refused request into one of `base.errors`.

The reason decides where the code is ambiguous (409 is both a conflict and an object that exists already); the code decides
when there is no `Status`, as from a proxy. Messages of the server are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import msgspec

from bramley.api.meta import Fields
from bramley.base import errors
from bramley.base.clock import Clock

MAX_MESSAGE_LENGTH = 2000
DEFAULT_WAIT = timedelta(seconds=1)
# A bound, so that a hostile number cannot overflow a timedelta.
MAX_WAIT_SECONDS = 86_400.0


class StatusCause(Fields, frozen=True, kw_only=True):
    """One invalid field, as reported by the server."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Fields, frozen=True, kw_only=True):
    """Details of a refusal."""

    name: str = ""
    kind: str = ""
    causes: list[StatusCause] | None = None
    retry_after_seconds: int = 0


class Status(Fields, frozen=True, kw_only=True):
    """The server's response when it returns no object."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None

    def causes(self) -> tuple[errors.Cause, ...]:
        """Return the invalid fields as `errors.Cause`."""
        causes = (self.details.causes if self.details else None) or []
        return tuple(errors.Cause(c.field, c.reason, bounded(c.message)) for c in causes)

    def wait(self) -> timedelta | None:
        """Return how long the server requests to wait, if it does."""
        seconds = self.details.retry_after_seconds if self.details else 0
        return timedelta(seconds=min(seconds, MAX_WAIT_SECONDS)) if seconds > 0 else None


_DECODER = msgspec.json.Decoder(Status)


def parse(body: bytes) -> Status:
    """Decode a Status; anything else becomes a Status with the beginning of the text as its message."""
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Status(message=bounded(body[:MAX_MESSAGE_LENGTH].decode(errors="replace")))


def bounded(text: str) -> str:
    """Return the text, truncated to the longest message."""
    return text if len(text) <= MAX_MESSAGE_LENGTH else text[:MAX_MESSAGE_LENGTH] + " …"


def error(
    about: str, status: Status, *, code: int = 0, wait: timedelta | None = None
) -> errors.BramleyError:
    """Return the error for a Status; `about` is the request, `wait` the value of a Retry-After header."""
    code = code or status.code
    text = f"{about}: {bounded(status.message) or status.reason or 'refused'} ({code})"
    if code == 422 or status.reason == "Invalid":
        return errors.InvalidSpec(text, causes=status.causes())
    if code == 429 or status.reason == "TooManyRequests":
        return errors.RateLimited(text, after=wait or status.wait() or DEFAULT_WAIT)
    make = _BY_REASON.get(status.reason) or _by_code(code)
    if make is errors.Forbidden:
        return errors.Forbidden(text, causes=status.causes())
    return make(text)


def retry_after(headers: Mapping[str, str], clock: Clock) -> timedelta | None:
    """Return the value of a Retry-After header, given as seconds or as a date."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return timedelta(seconds=min(float(text), MAX_WAIT_SECONDS))
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    return _between(clock.now(), until)


def _between(now: datetime, until: datetime) -> timedelta:
    aware = until if until.tzinfo else until.replace(tzinfo=UTC)
    seconds = (aware - now).total_seconds()
    return timedelta(seconds=min(max(seconds, 0.0), MAX_WAIT_SECONDS))


Make = Callable[[str], errors.BramleyError]

_BY_REASON: Mapping[str, Make] = {
    "AlreadyExists": errors.AlreadyExists,
    "Conflict": errors.Conflict,
    "Expired": errors.Gone,
    "Forbidden": errors.Forbidden,
    "Gone": errors.Gone,
    "NotFound": errors.NotFound,
    "ServerTimeout": errors.ApiUnavailable,
    "ServiceUnavailable": errors.ApiUnavailable,
    "Timeout": errors.TimedOut,
    "Unauthorized": errors.Unauthorized,
}

_BY_CODE: Mapping[int, Make] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    408: errors.TimedOut,
    409: errors.Conflict,
    410: errors.Gone,
    504: errors.TimedOut,
}


def _by_code(code: int) -> Make:
    return _BY_CODE.get(code) or (errors.BadRequest if code < 500 else errors.ApiUnavailable)
