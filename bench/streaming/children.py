"""Processes of the benchmark that speak in lines of JSON, and end when nobody listens to them any more."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

# For one line; everything here is over long before.
PATIENCE = 900.0
_INPUT = 0


class Ended(Exception):
    """A process ended, or was silent for too long, where it should have said something."""


@dataclass(frozen=True, slots=True)
class Child:
    """One process that was started here."""

    module: str
    process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self.process.pid

    async def hear(self, name: str) -> Any:
        """Return what the next line says of this name."""
        assert self.process.stdout is not None  # noqa: S101 - for the type checker
        async with asyncio.timeout(PATIENCE):
            line = await self.process.stdout.readline()
        if not line:
            raise Ended(f"{self.module} ended before it told of {name!r}; its error is above")
        return json.loads(line)[name]

    def go(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None  # noqa: S101 - for the type checker
        self.process.stdin.write(b"\n")


@contextlib.asynccontextmanager
async def started(module: str, *arguments: object) -> AsyncIterator[Child]:
    """Run a module for as long as this is entered."""
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
        # Reads to the end and closes what is open.
        await process.communicate()


def tell(**said: Any) -> None:
    """Say a line to whoever started this process."""
    print(json.dumps(said), flush=True)


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[asyncio.Event]:
    """Give an event that is set when this process may go on; it ends at once when the one who started it is gone."""
    loop, may_go = asyncio.get_running_loop(), asyncio.Event()

    def hear() -> None:
        if not os.read(_INPUT, 100):
            os._exit(0)
        may_go.set()

    loop.add_reader(_INPUT, hear)
    try:
        yield may_go
    finally:
        loop.remove_reader(_INPUT)
