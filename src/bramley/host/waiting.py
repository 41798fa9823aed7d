"""Asking a Mac again and again until it says yes: the one loop behind every connection's `Wait`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bramley.base.clock import Clock
from bramley.base.errors import TimedOut
from bramley.host.commands import Wait
from bramley.host.facts import Said


async def until(
    command: Wait, ask: Callable[[], Awaitable[Said]], *, clock: Clock, host: str
) -> None:
    """Return when the answer is as wanted; in time it was not: TimedOut, or nothing if the step tells it from its facts."""
    ends = clock.monotonic() + command.within.total_seconds()
    while True:
        said = await ask()
        if said.code == command.code and command.text.encode() in said.output:
            return
        if clock.monotonic() + command.every.total_seconds() > ends:
            break
        await asyncio.sleep(command.every.total_seconds())
    if not command.else_go_on:
        told = f"not so within {command.within.total_seconds():g} s"
        raise TimedOut(f"{host}: {command.purpose}: {told}")
