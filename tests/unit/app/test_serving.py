from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bramley.app.serving import Calls, Stop


async def nothing(*_: Any) -> dict[str, Any]:
    return {}


def scope(query: bytes = b"") -> dict[str, Any]:
    return {"type": "http", "query_string": query}


async def settles(calls: Calls, *, within: float) -> bool:
    try:
        async with asyncio.timeout(within):
            await calls.settle()
    except TimeoutError:
        return False
    return True


def test_first_signal_asks_and_the_second_one_forces() -> None:
    stop = Stop()

    stop.ask()
    assert (stop.asked.is_set(), stop.forced.is_set()) == (True, False)

    stop.ask()
    assert (stop.asked.is_set(), stop.forced.is_set()) == (True, True)


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

    calls = Calls(slow)

    async with asyncio.TaskGroup() as group:
        group.create_task(calls(scope(query), nothing, nothing))  # type: ignore[arg-type]
        await asyncio.sleep(1)
        assert awaited != await settles(calls, within=10)
    assert await settles(calls, within=1)


async def test_request_that_fails_is_not_waited_for_for_ever() -> None:
    async def failing(*_: Any) -> None:
        raise RuntimeError("bug")

    calls = Calls(failing)

    with pytest.raises(RuntimeError):
        await calls(scope(), nothing, nothing)  # type: ignore[arg-type]

    assert await settles(calls, within=1)


async def test_forced_stop_gives_up_waiting() -> None:
    async def slow(*_: Any) -> None:
        await asyncio.sleep(3600)

    calls = Calls(slow)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(calls(scope(), nothing, nothing))  # type: ignore[arg-type]
        await asyncio.sleep(1)

        calls.give_up()

        assert await settles(calls, within=1)
        task.cancel()
