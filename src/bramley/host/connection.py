"""The interface to one Mac: executes commands and probes; implemented over SSH and, in process, by the model of a Mac.

Every implementation guarantees: a command is complete when `execute` returns, and may or may not have been executed when it raises
HostUnreachable; a file has its old or its new content, never a mixture; no secret appears in an error, a log or the process table of
either machine; every call ends by its deadline. The deadlines and the error texts that they share are here as well.
Errors: HostUnreachable (the connection), CommandFailed (the program), TimedOut (its deadline), HostKeyChanged, LoginRefused, and
Conflict (the Mac is claimed by another run).
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeGuard

from bramley.base.errors import CommandFailed, TimedOut
from bramley.base.secret import Secret, SecretBytes, redact
from bramley.host.claim import Guard
from bramley.host.commands import Batchable, Command, Probe, Run, Wait, Write
from bramley.host.facts import Facts

# Called with the number of a command when it begins.
OnStarted = Callable[[int], None]
Renew = Callable[[], None]
_MAX_OUTPUT = 600
# Shorter lines of a secret occur in any text.
_MIN_SECRET_LINE = 6
_NO_SUDO = "sudo: a password is required"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Commands to execute in order until one fails, the probes that follow them, and the claim under which they are executed."""

    commands: Sequence[Command] = ()
    probes: Sequence[Probe] = ()
    guard: Guard | None = None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The results of the probes, and the error of the last command whose failure is ignored."""

    facts: Facts
    ignored_failure: str = ""


class Connection(Protocol):
    """One Mac."""

    @property
    def host(self) -> str:
        """Return the display name of this Mac, for progress and errors."""
        ...

    async def execute(self, command: Command) -> None:
        """Execute one command to its end."""
        ...

    async def execute_all(
        self, batch: Batch, *, on_started: OnStarted = lambda _: None
    ) -> BatchResult:
        """Execute a batch in as few round trips as possible; the last started command is that which failed."""
        ...

    async def probe(self, probes: Collection[Probe]) -> Facts:
        """Execute all probes in one round trip."""
        ...


def is_batchable(command: Command) -> TypeGuard[Batchable]:
    """Return whether a command can share a round trip with others."""
    if isinstance(command, Run | Write) and command.sudo_password:
        return False
    if isinstance(command, Run):
        # Behind sudo, an exit code other than 0 may be that of sudo.
        return not command.prompt and (command.as_root or command.accepted_codes == (0,))
    return isinstance(command, Batchable)


def segments(commands: Sequence[Command]) -> list[list[Command]]:
    """Return the commands of each round trip."""
    found: list[list[Command]] = []
    for command in commands:
        if found and is_batchable(command) and is_batchable(found[-1][-1]):
            found[-1].append(command)
        else:
            found.append([command])
    return found


def round_trips(batch: Batch) -> int:
    """Return the number of round trips of a batch; the probes share that of the last command, if it can be shared."""
    if not batch.commands:
        return 1
    claims_first = bool(batch.guard and batch.guard.acquires) and not is_batchable(
        batch.commands[0]
    )
    is_shared = is_batchable(batch.commands[-1])
    probes_last = bool(batch.probes) and not is_shared
    return len(segments(batch.commands)) + claims_first + probes_last


def unmet(command: Wait, host: str) -> TimedOut:
    """Return the error of a condition that was not met in time."""
    limit = f"{command.timeout.total_seconds():g} s"
    return TimedOut(f"{host}: {command.purpose}: condition not met within {limit}")


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
