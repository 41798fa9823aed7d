"""The tasks of a context."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


class Tasks:
    """Tasks that are started inside `running` and cancelled at its end."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the tasks while the context lasts; an error of the block is raised as it is, not in a group."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    yield
                finally:
                    self._group = None
                    for task in self._tasks:
                        task.cancel()
        except BaseExceptionGroup as errors:
            if len(errors.exceptions) > 1:
                raise
            raise errors.exceptions[0] from None

    def start(self, steps: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task."""
        if self._group is None:
            steps.close()
            raise RuntimeError("the simulation is not running; enter `running()` first")
        task = self._group.create_task(steps)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
