"""The options of a log request, parsed as in a kubelet, and the encoding of the response."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from bramley.agent.serving.sources import Line, LogRequest
from bramley.base import errors

_TRUE = frozenset({"1", "t", "true"})
_FALSE = frozenset({"", "0", "f", "false"})
_MAX_SINCE = timedelta(days=365 * 100)


class Unprocessable(errors.Refused):
    """The options of a log request contradict each other or are out of range."""


def log_request(
    path_parts: tuple[str, str, str], query: Mapping[str, str], now: datetime
) -> LogRequest:
    """Parse the options; BadRequest for an invalid value, Unprocessable for one out of range."""
    namespace, pod, container = path_parts
    since_seconds = _count(query, "sinceSeconds", minimum=1)
    since_time = _time(query.get("sinceTime", ""))
    if since_seconds is not None and since_time is not None:
        raise Unprocessable("at most one of sinceTime or sinceSeconds may be specified")
    if since_seconds is not None:
        since_time = now - min(timedelta(seconds=min(since_seconds, 2**32)), _MAX_SINCE)
    return LogRequest(
        namespace=namespace,
        pod=pod,
        container=container,
        follow=_flag(query, "follow"),
        previous=_flag(query, "previous"),
        timestamps=_flag(query, "timestamps"),
        tail_lines=_count(query, "tailLines", minimum=0),
        since=since_time,
        limit_bytes=_count(query, "limitBytes", minimum=1),
    )


async def encode(
    batches: AsyncGenerator[Sequence[Line], None], request: LogRequest
) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a log response, up to the requested limit."""
    remaining = request.limit_bytes
    async for lines in batches:
        chunk = b"".join(_encode_line(line, request) for line in lines)
        if remaining is not None:
            chunk = chunk[:remaining]
            remaining -= len(chunk)
        if chunk:
            yield chunk
        if remaining == 0:
            return


def _encode_line(line: Line, request: LogRequest) -> bytes:
    return (timestamp_prefix(line.at) + line.text if request.timestamps else line.text) + b"\n"


def timestamp_prefix(at: datetime) -> bytes:
    """Return the timestamp of a line in the format of a kubelet."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}000Z ".encode()


def _flag(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "").lower()
    if text not in _TRUE | _FALSE:
        raise errors.BadRequest(f"{name} is neither true nor false")
    return text in _TRUE


def _count(query: Mapping[str, str], name: str, *, minimum: int) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise errors.BadRequest(f"{name} is not a number")
    if int(text) < minimum:
        raise Unprocessable(f"{name} must be at least {minimum}")
    return int(text)


def _time(text: str) -> datetime | None:
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise errors.BadRequest("sinceTime is not a time")
    return time
