"""The interface to one Mac: executes commands and probes; implemented over SSH and, in process, by the model of a Mac.

Every implementation guarantees: a command is complete when `execute` returns, and may or may not have been executed when it raises
HostUnreachable; a file has its old or its new content, never a mixture; no secret appears in an error, a log or the process table of
either machine; every call ends by its deadline. The deadlines, the wait loop and the error texts that they share are here as well.
Errors: HostUnreachable (the connection), CommandFailed (the program), TimedOut (its deadline), HostKeyChanged, LoginRefused.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Protocol

from bramley.base.clock import Clock
from bramley.base.errors import CommandFailed, TimedOut
from bramley.base.secret import Secret, SecretBytes, redact
from bramley.host.commands import Command, Probe, Run, Wait, Write
from bramley.host.facts import Facts, RunResult

Renew = Callable[[], None]
_MAX_OUTPUT = 600
# Shorter lines of a secret occur in any text.
_MIN_SECRET_LINE = 6
_NO_SUDO = "sudo: a password is required"


class Connection(Protocol):
    """One Mac."""

    @property
    def host(self) -> str:
        """Return the display name of this Mac, for progress and errors."""
        ...

    async def execute(self, command: Command) -> None:
        """Execute one command to its end."""
        ...

    async def probe(self, probes: Collection[Probe]) -> Facts:
        """Execute all probes in one round trip."""
        ...


async def wait_until(
    command: Wait, probe: Callable[[], Awaitable[RunResult]], *, clock: Clock, host: str
) -> None:
    """Repeat a probe until it returns the expected result; TimedOut if it does not in time, unless the command ignores that."""
    end = clock.monotonic() + command.timeout.total_seconds()
    while True:
        result = await probe()
        if result.code == command.code and command.text.encode() in result.output:
            return
        if clock.monotonic() + command.interval.total_seconds() > end:
            break
        await asyncio.sleep(command.interval.total_seconds())
    if not command.ignore_failure:
        limit = f"{command.timeout.total_seconds():g} s"
        raise TimedOut(f"{host}: {command.purpose}: condition not met within {limit}")


@asynccontextmanager
async def deadline(limit: timedelta, context: str) -> AsyncIterator[Renew]:
    """Raise TimedOut unless the block ends in time; renewing has no effect."""
    async with _timeout_scope(limit, f"{context}: did not finish"):
        yield lambda: None


@asynccontextmanager
async def stall_deadline(limit: timedelta, context: str) -> AsyncIterator[Renew]:
    """Raise TimedOut if the yielded function is not called for this long.

    How long a large file takes depends on how many hosts share the bandwidth; whether the transfer stalls does not.
    """
    async with _timeout_scope(limit, f"{context}: no data was accepted") as scope:
        loop = asyncio.get_running_loop()

        def renew() -> None:
            # A block may still be accepted after the timeout expired and before the cancellation is delivered.
            if not scope.expired():
                scope.reschedule(loop.time() + limit.total_seconds())

        yield renew


@asynccontextmanager
async def _timeout_scope(limit: timedelta, message: str) -> AsyncIterator[asyncio.Timeout]:
    seconds = limit.total_seconds()
    try:
        async with asyncio.timeout(seconds) as scope:
            yield scope
    except TimeoutError as error:
        raise TimedOut(f"{message} within {seconds:g} s; it was stopped") from error


def command_failed(
    context: str, code: int, output: bytes, *, secrets: Iterable[Secret]
) -> CommandFailed:
    """Return the error of a command that ended with an exit code it does not accept."""
    tail = redacted_tail(output, secrets=secrets) or "no output"
    if _NO_SUDO in tail:
        tail += "; the step sudo must come first, with the password of this user"
    return CommandFailed(f"{context}: failed with code {code}: {tail}")


def redacted_tail(output: bytes, *, secrets: Iterable[Secret]) -> str:
    """Return the end of a program's output, in one line and without secrets."""
    # Before it is truncated: part of a secret would not be recognized.
    text = redact(output.decode("utf-8", "replace"), *set(_all_forms(secrets)))
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= _MAX_OUTPUT else "…" + line[-_MAX_OUTPUT:]


def secrets_of(command: Command) -> tuple[Secret, ...]:
    """Return all secrets of a command; its input and content count as secrets."""
    match command:
        case Run():
            content = command.stdin
        case Write():
            content = command.content
        case _:
            return ()
    if not isinstance(content, Secret):
        content = Secret(content.decode("utf-8", "replace"))
    return (content, command.sudo_password) if command.sudo_password else (content,)


def _all_forms(secrets: Iterable[Secret]) -> Iterator[Secret]:
    """Yield the secrets, their base64 form and their lines: truncated output may contain only a part of a secret."""
    for secret in secrets:
        text = secret.reveal()
        if isinstance(secret, SecretBytes):
            sent = secret.reveal_bytes()
        else:
            sent = text.encode("utf-8", "surrogatepass")
        yield secret
        yield Secret(base64.b64encode(sent).decode())
        yield from (
            Secret(line.strip())
            for line in text.splitlines()
            if len(line.strip()) >= _MIN_SECRET_LINE
        )
