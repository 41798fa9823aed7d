"""The HTTPS server: a second stop request forces the stop, and a stop waits for answers but not for streams."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bramley.app.https_server import InFlightRequests, Stop


async def nothing(*_: Any) -> dict[str, Any]:
    return {}


def scope(query: bytes = b"") -> dict[str, Any]:
    return {"type": "http", "query_string": query}


async def becomes_idle(requests: InFlightRequests, *, within: float) -> bool:
    try:
        async with asyncio.timeout(within):
            await requests.wait_idle()
    except TimeoutError:
        return False
    return True


def test_second_stop_request_forces_the_stop() -> None:
    stop = Stop()

    stop.request()
    assert (stop.requested.is_set(), stop.forced.is_set()) == (True, False)

    stop.request()
    assert (stop.requested.is_set(), stop.forced.is_set()) == (True, True)


@pytest.mark.parametrize(
    ("query", "awaited"),
    [
        (b"", True),
        (b"limit=500", True),
        (b"watch=false", True),
        (b"watch=0&limit=1", True),
        (b"watch=true", False),
        (b"watch=1", False),
        (b"resourceVersion=3&watch=true&timeoutSeconds=9", False),
        (b"follow=true", False),
        (b"nowatch=true", True),
    ],
)
async def test_stop_waits_for_answers_but_not_for_streams(query: bytes, awaited: bool) -> None:
    async def slow(*_: Any) -> None:
        await asyncio.sleep(60)

    requests = InFlightRequests(slow)

    async with asyncio.TaskGroup() as group:
        group.create_task(requests(scope(query), nothing, nothing))  # type: ignore[arg-type]
        await asyncio.sleep(1)
        assert awaited != await becomes_idle(requests, within=10)
    assert await becomes_idle(requests, within=1)


async def test_failed_request_is_no_longer_in_flight() -> None:
    async def failing(*_: Any) -> None:
        raise RuntimeError("bug")

    requests = InFlightRequests(failing)

    with pytest.raises(RuntimeError):
        await requests(scope(), nothing, nothing)  # type: ignore[arg-type]

    assert await becomes_idle(requests, within=1)


async def test_forced_stop_cancels_the_wait() -> None:
    async def slow(*_: Any) -> None:
        await asyncio.sleep(3600)

    requests = InFlightRequests(slow)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(requests(scope(), nothing, nothing))  # type: ignore[arg-type]
        await asyncio.sleep(1)

        requests.cancel_wait()

        assert await becomes_idle(requests, within=1)
        task.cancel()
