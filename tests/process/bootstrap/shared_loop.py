"""A resource that the tests of a module share: its event loop runs while one of them runs a coroutine on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
# For a busy machine; it passes only when a test fails.
TIMEOUT = 300.0
RunOnLoop = Callable[[Coroutine[Any, Any, Any]], Any]


@contextmanager
def open_on_loop(
    opening: Callable[[], AbstractAsyncContextManager[T]],
) -> Iterator[tuple[T, RunOnLoop]]:
    """Keep a resource open on a separate event loop; yield it with a function that runs a coroutine there."""
    with asyncio.Runner() as runner:
        close = asyncio.Event()

        async def hold(opened: asyncio.Future[T]) -> None:
            async with opening() as one:
                opened.set_result(one)
                await close.wait()

        async def begin() -> tuple[asyncio.Task[None], T]:
            opened = asyncio.get_running_loop().create_future()
            holding = asyncio.create_task(hold(opened))
            await asyncio.wait([holding, opened], return_when=asyncio.FIRST_COMPLETED)
            if holding.done():
                await holding
            return holding, await opened

        async def end() -> None:
            close.set()
            await asyncio.wait_for(holding, TIMEOUT)

        holding, one = runner.run(begin())
        try:
            yield one, runner.run
        finally:
            runner.run(end())


async def wait_until(condition: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Poll until the result is true, and return it."""
    async with asyncio.timeout(TIMEOUT):
        while not (result := await condition()):
            await asyncio.sleep(0.1)
    return result
