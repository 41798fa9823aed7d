"""The interface to the programs of the host: the agent runs every program that it waits for through `Programs`.

The real implementation starts processes; the simulated one executes the same command lines in virtual time. Deadlines are
enforced above this interface, by `run_with_timeout`, so that they are the same for both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from bramley.base import errors


class ProgramMissing(errors.Refused):
    """The program is not installed or not executable; its arguments were never checked."""


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """How a program ended: its exit code, or minus the signal that killed it, and its output."""

    code: int
    stdout: str = ""
    stderr: str = ""


class Programs(Protocol):
    """Runs programs of this host to their end.

    Guarantees: cancelling `run` kills the program with its whole process group, and waits at most 2 s for pipes that a
    grandchild keeps open; output is bounded (the head of stdout is kept, and the tail of stderr); nothing is read from stdin
    but `stdin`. While a `gate` is not set the process group is stopped (SIGSTOP), and continued (SIGCONT) when it is set again;
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
    ) -> ProgramResult:
        """Run a program; `environment` extends ours, `on_line` is called for each line of stdout, `gate` stops and continues it."""
        ...


async def run_with_timeout(
    limit: timedelta,
    programs: Programs,
    argv: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    on_line: Callable[[str], None] | None = None,
    gate: asyncio.Event | None = None,
) -> ProgramResult:
    """Run a program with a deadline; TimedOut, after it was killed, if it does not end in time."""
    try:
        async with asyncio.timeout(limit.total_seconds()):
            return await programs.run(
                argv, environment=environment, stdin=stdin, on_line=on_line, gate=gate
            )
    except TimeoutError as error:
        # Arguments never contain secrets; those are passed by stdin or environment.
        command = " ".join(argv[:3])
        raise errors.TimedOut(
            f"{command} did not end within {limit.total_seconds():g} s"
        ) from error
