"""Runs the tests of a module concurrently, each in a thread; for tests that mostly wait for their own processes."""

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
    """Run a test in a thread with its own `tmp_path`; other fixtures are shared by all tests of the module."""
    parameters = list(inspect.signature(test).parameters)

    async def threaded(
        threads: ThreadPoolExecutor, tmp_path_factory: pytest.TempPathFactory, **shared: Any
    ) -> None:
        own = {FOLDER: tmp_path_factory.mktemp("threaded")} if FOLDER in parameters else {}
        call = partial(test, **own, **shared)
        await asyncio.get_running_loop().run_in_executor(threads, call)

    # Not functools.wraps: pytest would follow `__wrapped__` for the names of the fixtures.
    threaded.__name__, threaded.__qualname__ = test.__name__, test.__qualname__
    threaded.__module__, threaded.__doc__ = test.__module__, test.__doc__
    names = ["threads", "tmp_path_factory", *(each for each in parameters if each != FOLDER)]
    fixtures = [Parameter(each, Parameter.KEYWORD_ONLY) for each in names]
    threaded.__signature__ = Signature(fixtures)  # type: ignore[attr-defined]
    marked: Threaded = pytest.mark.side_by_side(threaded)
    return marked
