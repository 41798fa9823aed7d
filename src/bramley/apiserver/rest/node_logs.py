"""A container's log from the agent on its node: the options that are passed on, the answer, and refusals in a real server's words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta

import msgspec

from bramley.apiserver.apimachinery import status
from bramley.apiserver.apimachinery.status import ApiError, Details
from bramley.apiserver.http.exchange import TEXT, Request, Response
from bramley.apiserver.nodes.kubelet_client import KubeletClient
from bramley.base import errors, log
from bramley.kube.transport import Stream

logger = log.get(__name__)

# An agent that falls silent in the middle of a log that nobody follows.
SILENCE = timedelta(seconds=30)
_LONGEST_REFUSAL_BYTES = 16 * 1024
_FLAGS = ("follow", "previous", "timestamps")
_PASSED_ON = ("tailLines", "sinceSeconds", "sinceTime", "limitBytes")
_FALSE = frozenset({"", "0", "f", "false"})
_RESOURCE = "pods/log"
# What a real server says of an agent's answers; the text of the agent itself is shown for some only.
_SAID = {
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    404: ("NotFound", "the server could not find the requested resource"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: (
        "TooManyRequests",
        "the server has received too many requests and has asked us to try again later",
    ),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: (
        "Timeout",
        "the server was unable to return a response in the time allotted, but may still be processing the request",
    ),
}


class Pieces(msgspec.Struct):
    """The rest of an agent's answer; `held` is given back by closing."""

    held: AsyncExitStack
    chunks: AsyncIterator[bytes]
    silence: float | None

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return itself."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece; the log ends here when the agent goes away, as it does on a real server."""
        try:
            async with asyncio.timeout(self.silence):
                return await anext(self.chunks)
        except (errors.BramleyError, TimeoutError) as error:
            logger.info("A log ended early", reason=str(error) or "the agent fell silent")
            raise StopAsyncIteration from error

    async def aclose(self) -> None:
        """Hang up."""
        await self.held.aclose()


async def opened(lines: KubeletClient, url: str, path: str, request: Request, *, name: str) -> Response:
    """Return the log that a request asks for, from the agent at this address."""
    query = passed_on(request.query)
    async with AsyncExitStack() as held:
        try:
            stream = await held.enter_async_context(lines.stream(url, path, query))
            if stream.status != 200:
                raise refusal(stream.status, await _text(stream), name)
        except errors.BramleyError as error:
            raise _unreachable(url, path, query, error) from error
        silence = None if "follow" in query else SILENCE.total_seconds()
        chunks = Pieces(held.pop_all(), stream.chunks, silence)
    return Response(b"", content_type=TEXT, chunks=chunks)


def passed_on(query: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the agent has to know."""
    flags = {each: "true" for each in _FLAGS if query.get(each, "").lower() not in _FALSE}
    return {**flags, **{each: query[each] for each in _PASSED_ON if query.get(each)}}


def refusal(code: int, text: str, name: str) -> ApiError:
    """Return what a real server makes of an agent's refusal."""
    if code == 500:
        return status.internal(text)
    if code == 400:
        return status.bad_request(text)
    reason, message = _SAID.get(code, ("", ""))
    if code == 403:
        reason, message = "Forbidden", text
    elif not message:
        reason = "InternalError" if code > 500 else ""
        message = f'an error on the server ("{text}") has prevented the request from succeeding'
    told = f"{message} ( {_RESOURCE} {name})"
    return ApiError(code, reason, told, details=Details(kind=_RESOURCE, name=name))


def _unreachable(
    url: str, path: str, query: Mapping[str, str], error: errors.BramleyError
) -> ApiError:
    asked = "&".join(f"{key}={value}" for key, value in sorted(query.items()))
    where = f"{url}{path}?{asked}" if asked else f"{url}{path}"
    why = str(error).removeprefix(f"GET {path}: ")
    return ApiError(500, "", f'Get "{where}": {why}')


async def _text(stream: Stream) -> str:
    found = b""
    async for chunk in stream.chunks:
        found += chunk
        if len(found) >= _LONGEST_REFUSAL_BYTES:
            break
    return found[:_LONGEST_REFUSAL_BYTES].decode("utf-8", "replace").strip()
