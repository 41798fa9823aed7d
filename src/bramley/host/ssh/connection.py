"""A Mac behind an SSH server; implements `host.connection.Connection`.

One connection serves all commands and is opened again when it was lost. What is sent and received is defined by `host.rendering`;
deadlines and results are handled here.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.host import claim, connection
from bramley.host.artifacts import ArtifactReader, ArtifactStore
from bramley.host.claim import Guard
from bramley.host.commands import (
    DEFAULT_TIMEOUT,
    Command,
    Probe,
    Reboot,
    Run,
    Stream,
    Wait,
    Write,
)
from bramley.host.connection import Batch, BatchResult, OnStarted, Renew
from bramley.host.facts import Facts, ProbeResult
from bramley.host.rendering import batch_scripts, command_scripts, probe_scripts
from bramley.host.rendering.script import Script, content_of
from bramley.host.ssh.batch import COMMAND_OUTPUT, BatchRun, max_result_bytes, probe_timeout
from bramley.host.ssh.reboot import reboot
from bramley.host.ssh.target import CONNECT_TIMEOUT, Target

if TYPE_CHECKING:
    from bramley.host.ssh.connect import ClientConnection
    from bramley.host.ssh.process import RemoteProcess

logger = log.get(__name__)
T = TypeVar("T")
Interact = Callable[["RemoteProcess", Script, Renew], Awaitable[None]]

RETRY_INTERVAL = timedelta(seconds=10)
_END_OF_INPUT = b"\x04"
_TOKEN_BYTES = 8


class SshConnection:
    """One Mac over one SSH connection, which is opened again when it was lost."""

    def __init__(self, target: Target, *, clock: Clock, artifacts: ArtifactStore) -> None:
        self._target = target
        self._clock = clock
        self._artifacts = artifacts
        self._connection: ClientConnection | None = None
        self._connecting = asyncio.Lock()
        self._wrong_passwords: set[Secret] = set()

    @property
    def host(self) -> str:
        """Return the display name of this Mac."""
        return self._target.display_name

    async def execute(self, command: Command) -> None:
        """Execute one command to its end."""
        await self._execute_alone(command, None)

    async def execute_all(
        self, batch: Batch, *, on_started: OnStarted = lambda _: None
    ) -> BatchResult:
        """Execute a batch in as few round trips as possible."""
        guard, ignored, first = batch.guard, "", 0
        if guard and guard.acquires and not batch.commands:
            return await self._run_batch(batch)
        for part in connection.segments(batch.commands):
            offset, first = first, first + len(part)
            if all(map(connection.is_batchable, part)):
                probes = batch.probes if first == len(batch.commands) else ()
                started = functools.partial(_call_with_offset, on_started, offset)
                shared = Batch(commands=part, probes=probes, guard=guard)
                result = await self._run_batch(shared, started)
                ignored = result.ignored_failure or ignored
                if probes:
                    return replace(result, ignored_failure=ignored)
            else:
                if guard and guard.acquires:
                    await self._run_batch(Batch(guard=guard))
                on_started(offset)
                await self._execute_alone(part[0], guard and guard.held())
            is_reboot = isinstance(part[-1], Reboot)
            guard = guard and (guard.acquiring(None) if is_reboot else guard.held())
        return BatchResult(await self.probe(batch.probes), ignored)

    async def _execute_alone(self, command: Command, guard: Guard | None) -> None:
        match command:
            case Wait():
                await self._run_batch(Batch(commands=(command,), guard=guard))
            case Reboot():
                await reboot(
                    self,
                    command,
                    clock=self._clock,
                    disconnect=self.close,
                    sends_password=self._target.sends_password,
                    guard=guard,
                )
            case Stream():
                await self._stream(command, guard)
            case Run() if command.prompt:
                await self._execute(
                    command, lambda it, script, _: _type_in(it, script, command), guard
                )
            case Run() | Write():
                await self._execute_with_password(command)
            case _:
                await self._execute(command, lambda it, script, _: _send_input(it, script, None))

    async def probe(self, probes: Collection[Probe]) -> Facts:
        """Execute all probes in one round trip."""
        token = _token()
        results: dict[Probe, ProbeResult] = {}
        if unique := list(dict.fromkeys(probes)):
            for script in probe_scripts.render(unique, token=token):
                results |= await self._run_probes(script, token)
        return Facts(results)

    async def connect(self, *, connect_timeout: timedelta) -> None:
        """Connect, waiting up to `connect_timeout` for the Mac's SSH server."""
        await connect_with_retry(
            self._reconnect, host=self.host, clock=self._clock, connect_timeout=connect_timeout
        )

    async def close(self) -> None:
        """Disconnect; the next command connects again."""
        client, self._connection = self._connection, None
        if client is not None:
            await client.close()

    async def _reconnect(self) -> ClientConnection:
        # Imported here, because it imports the SSH library.
        from bramley.host.ssh.connect import connect

        # The lock keeps concurrent commands from opening a connection each.
        async with self._connecting:
            if self._connection is None or not self._connection.is_open:
                await self.close()
                self._connection = await connect(self._target)
            return self._connection

    async def _run_batch(self, batch: Batch, on_started: OnStarted = lambda _: None) -> BatchResult:
        """Execute commands that share a round trip, and probes in the same one if they fit."""
        tokens = (_token(), _token())
        run = BatchRun.render(self.host, self._target.user, batch, tokens=tokens)
        run.on_started, run.secrets = on_started, self._secrets
        client = await self._reconnect()
        async with run.deadline(), _start(client, run.script.line, run, run.max_bytes) as process:
            code = await process.communicate(run.follow)
        result = run.result(process, code)
        return replace(result, facts=result.facts if run.then else await self.probe(batch.probes))

    async def _stream(self, command: Stream, guard: Guard | None) -> None:
        async with self._artifacts.open(command.artifact) as reader:
            await self._execute(
                command, lambda it, script, renew: send_file(it, script, reader, renew=renew), guard
            )

    async def _execute_with_password(self, command: Run | Write) -> None:
        password = command.sudo_password
        if password in self._wrong_passwords:
            raise self._wrong_password(command)
        await self._execute(command, lambda it, script, _: _send_input(it, script, password))

    async def _execute(
        self,
        command: command_scripts.Rendered,
        interact: Interact,
        guard: Guard | None = None,
    ) -> None:
        script = command_scripts.render(command, token=_token(), guard=guard)
        context = f"{self.host}: {command.purpose}"
        on_terminal = isinstance(command, Run) and bool(command.prompt)
        # Before the deadline: connecting has its own timeout.
        client = await self._reconnect()
        async with (
            _deadline(command, context) as renew,
            _start(
                client, script.line, context, COMMAND_OUTPUT, on_terminal=on_terminal
            ) as process,
        ):
            code = await process.communicate(lambda remote: interact(remote, script, renew))
        progress = batch_scripts.parse_progress(bytes(process.output.beginning), token=script.token)
        if progress.is_refused:
            raise claim.conflict(progress.refused)
        if process.is_password_wrong and isinstance(command, Run | Write):
            raise self._wrong_password(command)
        if not _has_succeeded(command, script, process, code):
            raise self._command_failed(context, code, process, command, script)

    async def _run_probes(
        self, script: probe_scripts.ProbeScript, token: str
    ) -> dict[Probe, ProbeResult]:
        context = f"{self.host}: probing the Mac"
        client = await self._reconnect()
        async with (
            connection.deadline(probe_timeout(script), context),
            _start(client, script.line, context, max_result_bytes(script)) as process,
        ):
            code = await process.communicate(_no_input)
        output = bytes(process.output.beginning)
        results = probe_scripts.parse_results(script, token=token, output=output)
        if len(results) < len(script.probes):
            tail = bytes(process.errors.tail)
            raise connection.command_failed(context, code, tail, secrets=self._secrets)
        return results

    def _command_failed(
        self, context: str, code: int, process: RemoteProcess, command: Command, script: Script
    ) -> errors.CommandFailed:
        output = bytes(process.errors.tail or process.output.tail)
        for marker in (f"{script.token}?", script.token):
            output = output.replace(marker.encode(), b"")
        hidden = (*connection.secrets_of(command), *self._secrets)
        return connection.command_failed(context, code, output, secrets=hidden)

    def _wrong_password(self, command: Run | Write) -> errors.LoginRefused:
        if command.sudo_password:
            self._wrong_passwords.add(command.sudo_password)
        return errors.LoginRefused(
            f"{self.host}: {command.purpose}: sudo does not accept this password of {self._target.user}; "
            "it is not tried again over this connection, because Macs lock accounts"
        )

    @property
    def _secrets(self) -> tuple[Secret, ...]:
        return self._target.credentials.secrets


@asynccontextmanager
async def open(
    target: Target,
    *,
    clock: Clock,
    artifacts: ArtifactStore,
    connect_timeout: timedelta = CONNECT_TIMEOUT,
) -> AsyncIterator[SshConnection]:
    """Connect to a Mac, waiting up to `connect_timeout` for its SSH server, and disconnect at the end."""
    mac = SshConnection(target, clock=clock, artifacts=artifacts)
    try:
        await mac.connect(connect_timeout=connect_timeout)
        yield mac
    finally:
        await mac.close()


async def connect_with_retry(
    connect: Callable[[], Awaitable[T]], *, host: str, clock: Clock, connect_timeout: timedelta
) -> T:
    """Try to connect until the host responds; HostUnreachable with the last reason if it does not in time.

    A changed host key and rejected credentials are raised at once, because waiting does not help.
    """
    end = clock.monotonic() + connect_timeout.total_seconds()
    while True:
        try:
            return await connect()
        except errors.HostUnreachable as error:
            if clock.monotonic() + RETRY_INTERVAL.total_seconds() > end:
                if not connect_timeout:
                    raise
                reason = str(error).removeprefix(f"{host}: ")
                raise errors.HostUnreachable(
                    f"{host}: SSH is not available after {connect_timeout.total_seconds():g} s; last error: {reason}"
                ) from error
            logger.info("Waiting for SSH", host=host, reason=str(error))
        await asyncio.sleep(RETRY_INTERVAL.total_seconds())


def _call_with_offset(on_started: OnStarted, offset: int, number: int) -> None:
    on_started(offset + number)


def _start(
    client: ClientConnection,
    line: str,
    context: object,
    max_bytes: int,
    *,
    on_terminal: bool = False,
) -> AbstractAsyncContextManager[RemoteProcess]:
    # Imported here, because it imports the SSH library.
    from bramley.host.ssh import process

    return process.start(
        client, line, context=context, max_bytes=max_bytes, on_terminal=on_terminal
    )


async def _send_input(process: RemoteProcess, script: Script, password: Secret | None) -> None:
    """Answer the prompt of sudo, if there is one, and then send the command's input."""
    async with asyncio.TaskGroup() as group:
        sudo_task = group.create_task(_answer_sudo(process, script, password))
        # The token shows that sudo has let the command start.
        await process.output.wait_for(script.token)
        sudo_task.cancel()
    await process.send(script.input.reveal_bytes())


async def _answer_sudo(process: RemoteProcess, script: Script, password: Secret | None) -> None:
    if password is None:
        return
    await process.errors.wait_for(script.sudo_prompt)
    await process.send(password.reveal().encode() + b"\n")
    await process.errors.wait_for(script.sudo_prompt, times=2)
    # A second prompt means that the password was wrong. Further attempts might lock the account.
    process.is_password_wrong = True
    process.send_eof()


async def send_file(
    process: RemoteProcess, script: Script, reader: ArtifactReader, *, renew: Renew
) -> None:
    """Send a file in blocks, and renew the deadline after each."""
    await process.output.wait_for(script.token)
    async for block in reader.blocks():
        await process.send(block)
        renew()
    process.send_eof()


async def _type_in(process: RemoteProcess, script: Script, command: Run) -> None:
    """Type the input as a line at the program's prompt, and end the input at a second prompt."""
    await process.output.wait_for(script.token)
    await process.output.wait_for(command.prompt)
    await process.send(content_of(command.stdin) + b"\n")
    await process.output.wait_for(command.prompt, times=2)
    await process.send(_END_OF_INPUT)


async def _no_input(_: RemoteProcess) -> None:
    pass


def _token() -> str:
    return secrets.token_hex(_TOKEN_BYTES)


def _deadline(
    command: command_scripts.Rendered, context: str
) -> AbstractAsyncContextManager[Renew]:
    if isinstance(command, Stream):
        return connection.stall_deadline(command.timeout, context)
    timeout = command.timeout if isinstance(command, Run | Write) else DEFAULT_TIMEOUT
    return connection.deadline(timeout, context)


def _has_succeeded(
    command: command_scripts.Rendered, script: Script, process: RemoteProcess, code: int
) -> bool:
    """Return whether a command succeeded; without the token the exit code is that of sudo, which is never accepted."""
    accepted = command.accepted_codes if isinstance(command, Run) else (0,)
    return code in accepted and script.token.encode() in process.output.beginning
