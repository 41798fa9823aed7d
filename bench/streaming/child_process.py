"""Child processes of the benchmark: they report in lines of JSON and exit when their parent is gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

# For one line; the whole benchmark takes less.
TIMEOUT = 900.0
_INPUT = 0


class ChildExited(Exception):
    """A process exited before it printed an expected line."""


@dataclass(frozen=True, slots=True)
class Child:
    """One started child process."""

    module: str
    process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self.process.pid

    async def read(self, name: str) -> Any:
        """Return the value of this name in the next line."""
        assert self.process.stdout is not None  # noqa: S101 - for the type checker
        async with asyncio.timeout(TIMEOUT):
            line = await self.process.stdout.readline()
        if not line:
            raise ChildExited(
                f"{self.module} exited before it reported {name!r}; its error is above"
            )
        return json.loads(line)[name]

    def proceed(self) -> None:
        """Set the event of `parent_signal` in the child."""
        assert self.process.stdin is not None  # noqa: S101 - for the type checker
        self.process.stdin.write(b"\n")


@contextlib.asynccontextmanager
async def started(module: str, *arguments: object) -> AsyncIterator[Child]:
    """Run a module while this context is active."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Child(module, process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        # Reads to the end and closes the pipes.
        await process.communicate()


def report(**values: Any) -> None:
    """Print a line of JSON for the parent process."""
    print(json.dumps(values), flush=True)


@contextlib.asynccontextmanager
async def parent_signal() -> AsyncIterator[asyncio.Event]:
    """Yield an event that the parent sets with `proceed`; this process exits at once when the parent is gone."""
    loop, signalled = asyncio.get_running_loop(), asyncio.Event()

    def on_input() -> None:
        if not os.read(_INPUT, 100):
            os._exit(0)
        signalled.set()

    loop.add_reader(_INPUT, on_input)
    try:
        yield signalled
    finally:
        loop.remove_reader(_INPUT)
