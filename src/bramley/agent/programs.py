"""The seam to the programs of the host: whatever the agent runs and waits for goes through `Programs`.

The real side starts processes, the simulated one answers the same command lines under virtual time. Deadlines are kept by
`within`, above the seam, so that both sides are held to the same ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from bramley.base import errors


class ProgramMissing(errors.Refused):
    """The program is not installed, or may not be executed; this says nothing about what it was asked for."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended: its exit code, or minus the signal that killed it, and what it said."""

    code: int
    stdout: str = ""
    stderr: str = ""


class Programs(Protocol):
    """Runs programs of this host to their end.

    Guarantees: cancelling `run` kills the program with its whole process group, and waits at most 2 s for pipes that a
    grandchild keeps open; output is bounded (the head of stdout is kept, and the tail of stderr); nothing is read from stdin
    but `stdin`. While a `gate` is not set the process group is stopped (SIGSTOP), and goes on (SIGCONT) when it is set again;
    killing works in both states.
    Errors: ProgramMissing.
    """

    async def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        on_line: Callable[[str], None] | None = None,
        gate: asyncio.Event | None = None,
    ) -> Finished:
        """Run a program; `environment` is added to ours, `on_line` hears each line of stdout as it comes, `gate` halts it."""
        ...


async def within(
    limit: timedelta,
    programs: Programs,
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    on_line: Callable[[str], None] | None = None,
    gate: asyncio.Event | None = None,
) -> Finished:
    """Run a program that has to end in time; TimedOut, after it was killed, if it does not."""
    try:
        async with asyncio.timeout(limit.total_seconds()):
            return await programs.run(
                argv, environment=environment, stdin=stdin, on_line=on_line, gate=gate
            )
    except TimeoutError as error:
        # The arguments may hold names of guests, never secrets: those travel by stdin or environment.
        told = " ".join(argv[:3])
        raise errors.TimedOut(f"{told} did not end within {limit.total_seconds():g} s") from error
