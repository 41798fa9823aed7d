"""One batch in one round trip: sends its program, follows its progress, and turns the result into facts or an error."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from bramley.base import errors
from bramley.base.secret import Secret
from bramley.host import claim, connection
from bramley.host.commands import Batchable, Probe, Run, RunProbe, Stat, Wait
from bramley.host.connection import Batch, OnStarted
from bramley.host.facts import Facts, ProbeResult
from bramley.host.rendering import batch_scripts, probe_scripts
from bramley.host.rendering.probe_scripts import ProbeScript
from bramley.host.rendering.script import Script

if TYPE_CHECKING:
    from bramley.host.ssh.process import RemoteProcess

_PROBE_TIMEOUT = timedelta(seconds=30)
_MAX_PROBE_TIMEOUT = timedelta(minutes=5)
# For commands whose result is the exit code: enough for the token, and for a prompt after output of the login shell.
COMMAND_OUTPUT = 64 * 1024
# The size of a result without its content.
_RESULT_OVERHEAD = 1024
# Until the first command begins: a newer run may wait for a command of an older one.
START_TIMEOUT = timedelta(seconds=60)


@dataclass(slots=True)
class BatchRun:
    """A batch that runs on a Mac."""

    host: str
    commands: Sequence[Batchable]
    script: Script
    # The probes after the commands, and their token.
    then: ProbeScript | None = None
    then_token: str = ""
    on_started: OnStarted = lambda _: None
    secrets: tuple[Secret, ...] = ()
    _started: int = 0
    _purpose: str = "claim the Mac for this run"
    _limit: timedelta = START_TIMEOUT
    _scope: asyncio.Timeout | None = field(default=None, repr=False)

    @classmethod
    def render(cls, host: str, user: str, batch: Batch, *, tokens: tuple[str, str]) -> Self:
        """Return a batch of batchable commands as shell; without its probes if they are too many for one command line."""
        token, then_token = tokens
        commands = [command for command in batch.commands if connection.is_batchable(command)]
        guard = batch.guard
        scripts = probe_scripts.render(list(dict.fromkeys(batch.probes)), token=then_token)
        then = scripts[0] if batch.probes and len(scripts) == 1 else None
        script = batch_scripts.render(commands, token=token, user=user, guard=guard, then=then)
        if then and not batch_scripts.fits(script):
            script, then = batch_scripts.render(commands, token=token, user=user, guard=guard), None
        return cls(host, commands, script, then, then_token)

    @property
    def max_bytes(self) -> int:
        """Return how much output it may have."""
        return max_result_bytes(self.then) if self.then else COMMAND_OUTPUT

    def __post_init__(self) -> None:
        if self.commands:
            self._purpose = self.commands[0].purpose

    def __str__(self) -> str:
        """Return the current command, for errors of the connection."""
        return f"{self.host}: {self._purpose}"

    @contextlib.asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        """Raise TimedOut unless each command ends in time."""
        try:
            async with asyncio.timeout(self._limit.total_seconds()) as self._scope:
                yield
        except TimeoutError as error:
            limit = f"{self._limit.total_seconds():g} s"
            raise errors.TimedOut(
                f"{self}: did not finish within {limit}; it was stopped"
            ) from error

    async def follow(self, process: RemoteProcess) -> None:
        """Send the program, and report each command when it begins."""
        # Not earlier: what a login shell runs at its start may read input, and the program contains secrets.
        await process.output.wait_for(self.script.token)
        await process.send(self.script.input.reveal_bytes())
        for number in range(len(self.commands)):
            await process.output.wait_for(f"@{self.script.token} start {number}\n")
            self._begin(number)
        if self.then:
            await process.output.wait_for(f"@{self.then_token} begin")
            self._renew("probing the Mac", probe_timeout(self.then))

    def result(self, process: RemoteProcess, code: int) -> connection.BatchResult:
        """Return the result of an ended batch; raise its error."""
        output = bytes(process.output.beginning)
        progress = batch_scripts.parse_progress(output, token=self.script.token)
        # Those that were so fast that the end of the output came first.
        for number in range(self._started, progress.started):
            self._begin(number)
        if progress.is_refused:
            raise claim.conflict(progress.refused)
        ignored = ""
        for number, command in enumerate(self.commands):
            ended = progress.codes.get(number)
            if problem := self._problem(process, number, command, code if ended is None else ended):
                if ended is None or not getattr(command, "ignore_failure", False):
                    raise problem
                ignored = str(problem).removeprefix(f"{self.host}: ")
        if code and not self.commands:
            raise self._failed(process, 0, code)
        return connection.BatchResult(Facts(self._probe_results(process, output, code)), ignored)

    def _problem(
        self, process: RemoteProcess, number: int, command: Batchable, code: int
    ) -> errors.BramleyError | None:
        accepted = command.accepted_codes if isinstance(command, Run) else (0,)
        if number < self._started and code in accepted:
            return None
        if isinstance(command, Wait) and number < self._started:
            return connection.unmet(command, self.host)
        return self._failed(process, number, code)

    def _failed(self, process: RemoteProcess, number: int, code: int) -> errors.CommandFailed:
        token = self.script.token
        stderr = bytes(process.errors.tail or process.output.tail).replace(
            f"{token}\n".encode(), b""
        )
        output = batch_scripts.error_output(stderr, number, token=token)
        hidden = [secret for each in self.commands for secret in _hidden(each)]
        hidden += connection.secrets_of(self.commands[number]) if self.commands else ()
        purpose = self.commands[number].purpose if self.commands else self._purpose
        context = f"{self.host}: {purpose}"
        return connection.command_failed(context, code, output, secrets=(*hidden, *self.secrets))

    def _probe_results(
        self, process: RemoteProcess, output: bytes, code: int
    ) -> dict[Probe, ProbeResult]:
        if self.then is None:
            return {}
        results = probe_scripts.parse_results(self.then, token=self.then_token, output=output)
        if len(results) < len(self.then.probes):
            context, tail = f"{self.host}: probing the Mac", bytes(process.errors.tail)
            raise connection.command_failed(context, code, tail, secrets=self.secrets)
        return results

    def _begin(self, number: int) -> None:
        if number < self._started:
            return
        self._started = number + 1
        command = self.commands[number]
        self._renew(command.purpose, batch_scripts.timeout(command))
        self.on_started(number)

    def _renew(self, purpose: str, limit: timedelta) -> None:
        self._purpose, self._limit = purpose, limit
        scope = self._scope
        if scope is not None and scope.when() is not None and not scope.expired():
            with contextlib.suppress(RuntimeError):
                scope.reschedule(asyncio.get_running_loop().time() + limit.total_seconds())


def _hidden(command: Batchable) -> tuple[Secret, ...]:
    """Return the secrets of a command that must not be in errors of others; contents that are not secret may contain any text."""
    content = getattr(command, "stdin", None) or getattr(command, "content", None)
    return connection.secrets_of(command) if isinstance(content, Secret) else ()


def probe_timeout(script: ProbeScript) -> timedelta:
    """Return how long a script of probes may take."""
    timeouts = [probe.timeout for probe in script.probes.values() if isinstance(probe, RunProbe)]
    return min(sum(timeouts, _PROBE_TIMEOUT), _MAX_PROBE_TIMEOUT)


def max_result_bytes(script: ProbeScript) -> int:
    """Return how much output a script of probes may have."""
    sizes = [0 if isinstance(probe, Stat) else probe.max_bytes for probe in script.probes.values()]
    # Base64 turns three bytes into four, and may break lines.
    return sum(size * 3 // 2 + _RESULT_OVERHEAD for size in sizes) + COMMAND_OUTPUT
