"""A Mac that several tests share: its loop runs whenever one of them does something, and everything of it ends with the module."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
# Of a busy machine.
PATIENCE = 300.0
Running = Callable[[Coroutine[Any, Any, Any]], Any]


@contextmanager
def kept(opening: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[tuple[T, Running]]:
    """Keep something open on a loop of its own; what is given beside it runs a coroutine there."""
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
            await asyncio.wait_for(holding, PATIENCE)

        holding, one = runner.run(begin())
        try:
            yield one, runner.run
        finally:
            runner.run(end())


async def until(holds: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Ask until the answer is yes, and return it."""
    async with asyncio.timeout(PATIENCE):
        while not (answer := await holds()):
            await asyncio.sleep(0.1)
    return answer
