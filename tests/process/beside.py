"""Lets tests that mostly wait for processes of their own run beside each other: those of a module, each in a thread."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from inspect import Parameter, Signature
from typing import Any

import pytest

Threaded = Callable[..., Coroutine[Any, Any, None]]
FOLDER = "tmp_path"


def in_a_thread(test: Callable[..., None]) -> Threaded:
    """Run the test beside its neighbours in a thread, with a folder of its own; what else it is given, all share."""
    wanted = list(inspect.signature(test).parameters)

    async def beside(
        threads: ThreadPoolExecutor, tmp_path_factory: pytest.TempPathFactory, **shared: Any
    ) -> None:
        own = {FOLDER: tmp_path_factory.mktemp("beside")} if FOLDER in wanted else {}
        call = partial(test, **own, **shared)
        await asyncio.get_running_loop().run_in_executor(threads, call)

    # Not as a wrapper is made: pytest would look through it for the fixtures that are wanted.
    beside.__name__, beside.__qualname__ = test.__name__, test.__qualname__
    beside.__module__, beside.__doc__ = test.__module__, test.__doc__
    names = ["threads", "tmp_path_factory", *(each for each in wanted if each != FOLDER)]
    given = [Parameter(each, Parameter.KEYWORD_ONLY) for each in names]
    beside.__signature__ = Signature(given)  # type: ignore[attr-defined]
    marked: Threaded = pytest.mark.side_by_side(beside)
    return marked
