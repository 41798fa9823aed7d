"""Reading requests within limits, and the answers to errors.

Everything that arrives is from untrusted guests or from the internet: heads and bodies are bounded in size and time, and an error names
what is wrong without repeating a credential.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from bramley.base import errors, log

T = TypeVar("T")

logger = log.get(__name__)

Handler = Callable[[Request], Awaitable[Response]]
# Counts a refused request by the name of its endpoint and the reason.
OnRefusal = Callable[[str, str], None]

READ_DEADLINE = timedelta(seconds=5)
MAX_HEAD_BYTES = 16 * 1024
_SINGLE_HEADERS = ("authorization", "content-length", "host", "prefer", "x-hub-signature-256")


class TooLarge(errors.BadRequest):
    """The head or the body of a request exceeds its limit."""


class TooSlow(errors.BadRequest):
    """The body of a request did not arrive in time."""


# The first match counts.
_STATUSES: tuple[tuple[type[errors.BramleyError], int], ...] = (
    (TooLarge, 413),
    (TooSlow, 408),
    (errors.BadRequest, 400),
    (errors.Unauthorized, 401),
    (errors.Forbidden, 403),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.AlreadyExists, 409),
    (errors.RateLimited, 503),
    (errors.Unavailable, 503),
)


def guarded(handler: Handler, on_refusal: OnRefusal) -> Handler:
    """Return the handler with its limits for the head, and with errors as JSON, each of them counted."""
    endpoint = handler.__name__

    async def handle(request: Request) -> Response:
        with errors.Captured() as captured:
            check_head(request)
            return await handler(request)
        on_refusal(endpoint, type(captured.error).__name__)
        return problem(captured.error)

    return handle


def status_of(error: Exception | None) -> int:
    """Return the status of an error."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def problem(error: Exception | None) -> Response:
    """Return an error as JSON; of a bug, which is logged with its traceback, the client learns nothing."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=400)
    status = status_of(error)
    if status == 500:
        logger.error("Failed to handle request", exc=error)
        return answer(500, {"error": "internal error"})
    return answer(status, {"error": str(error)[:1024]})


def answer(status: int, body: Any) -> Response:
    """Return a JSON answer."""
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def check_head(request: Request) -> None:
    """Refuse heads that are too large, and headers whose meaning would be ambiguous if they were repeated."""
    raw = request.scope["headers"]
    if sum(len(name) + len(value) for name, value in raw) > MAX_HEAD_BYTES:
        raise TooLarge(f"the headers exceed {MAX_HEAD_BYTES} bytes")
    for name in _SINGLE_HEADERS:
        if len(request.headers.getlist(name)) > 1:
            raise errors.BadRequest(f"the header {name} is repeated")


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body, within its limit and the deadline."""
    declared = request.headers.get("content-length", "0")
    # By its length first: Python refuses to convert thousands of digits.
    if len(declared) > 18 or (declared.isdecimal() and int(declared) > limit):
        raise TooLarge(f"the body exceeds {limit} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(READ_DEADLINE.total_seconds()):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise TooLarge(f"the body exceeds {limit} bytes")
    except TimeoutError:
        seconds = READ_DEADLINE.total_seconds()
        raise TooSlow(f"the body did not arrive within {seconds:.0f} seconds") from None
    return bytes(body)


async def decoded(request: Request, kind: type[T], limit: int = 16 * 1024) -> T:
    """Return the JSON body as this type; BadRequest names the field that is invalid."""
    body = await read_body(request, limit)
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.BadRequest(f"the body is invalid: {error}") from None
