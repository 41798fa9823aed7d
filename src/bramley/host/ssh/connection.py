"""A Mac behind an SSH server; implements `host.connection.Connection`.

One connection serves all commands and is opened again when it was lost. What is sent and received is defined by `host.rendering`;
deadlines and results are handled here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.host import connection, shared_probes
from bramley.host.artifacts import ArtifactReader, ArtifactStore
from bramley.host.commands import (
    DEFAULT_TIMEOUT,
    Command,
    Probe,
    Reboot,
    Run,
    RunProbe,
    Stat,
    Stream,
    Wait,
    Write,
)
from bramley.host.connection import Connection, Renew
from bramley.host.facts import Facts, ProbeResult, RunResult
from bramley.host.rendering import command_scripts, probe_scripts
from bramley.host.rendering.script import Script, content_of
from bramley.host.ssh.target import CONNECT_TIMEOUT, Target

if TYPE_CHECKING:
    from bramley.host.ssh.connect import ClientConnection
    from bramley.host.ssh.process import RemoteProcess

logger = log.get(__name__)
T = TypeVar("T")
Interact = Callable[["RemoteProcess", Script, Renew], Awaitable[None]]

RETRY_INTERVAL = timedelta(seconds=10)
_END_OF_INPUT = b"\x04"
_REBOOT_ARGV = ("shutdown", "-r", "now")
_REBOOT_POLL_INTERVAL = timedelta(seconds=2)
_TOKEN_BYTES = 8
_PROBE_TIMEOUT = timedelta(seconds=30)
_MAX_PROBE_TIMEOUT = timedelta(minutes=5)
# For commands whose result is the exit code: enough for the token, and for a prompt after output of the login shell.
_COMMAND_OUTPUT = 64 * 1024
# The size of a result without its content.
_RESULT_OVERHEAD = 1024


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
        match command:
            case Wait():
                await self._wait(command)
            case Reboot():
                await reboot(
                    self,
                    command,
                    clock=self._clock,
                    disconnect=self.close,
                    sends_password=self._target.sends_password,
                )
            case Stream():
                await self._stream(command)
            case Run() if command.prompt:
                await self._execute(command, lambda it, script, _: _type_in(it, script, command))
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

    async def _stream(self, command: Stream) -> None:
        async with self._artifacts.open(command.artifact) as reader:
            await self._execute(
                command, lambda it, script, renew: send_file(it, script, reader, renew=renew)
            )

    async def _execute_with_password(self, command: Run | Write) -> None:
        password = command.sudo_password
        if password in self._wrong_passwords:
            raise self._wrong_password(command)
        await self._execute(command, lambda it, script, _: _send_input(it, script, password))

    async def _execute(self, command: command_scripts.Rendered, interact: Interact) -> None:
        script = command_scripts.render(command, token=_token())
        context = f"{self.host}: {command.purpose}"
        on_terminal = isinstance(command, Run) and bool(command.prompt)
        # Before the deadline: connecting has its own timeout.
        client = await self._reconnect()
        async with (
            _deadline(command, context) as renew,
            _start(
                client, script.line, context, _COMMAND_OUTPUT, on_terminal=on_terminal
            ) as process,
        ):
            code = await process.communicate(lambda remote: interact(remote, script, renew))
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
            connection.deadline(_probe_timeout(script), context),
            _start(client, script.line, context, _max_result_bytes(script)) as process,
        ):
            code = await process.communicate(_no_input)
        output = bytes(process.output.beginning)
        results = probe_scripts.parse_results(script, token=token, output=output)
        if len(results) < len(script.probes):
            tail = bytes(process.errors.tail)
            raise connection.command_failed(context, code, tail, secrets=self._secrets)
        return results

    async def _wait(self, command: Wait) -> None:
        async def probe() -> RunResult:
            return (await self.probe([command.probe])).result(command.probe)

        await connection.wait_until(command, probe, clock=self._clock, host=self.host)

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


async def reboot(
    mac: Connection,
    command: Reboot,
    *,
    clock: Clock,
    disconnect: Callable[[], Awaitable[None]],
    sends_password: bool,
) -> None:
    """Reboot a Mac and wait until it responds with a new boot session; TimedOut with the last reason if it does not in time."""
    before = await _boot_session(mac)
    if not before:
        raise errors.CommandFailed(
            f"{mac.host}: {command.purpose}: the boot session of this Mac is unknown"
        )
    # The connection ends with the Mac, possibly before the response; the boot session shows whether it rebooted.
    with suppress(errors.HostUnreachable, errors.TimedOut):
        await mac.execute(Run(argv=_REBOOT_ARGV, purpose=command.purpose, as_root=True))
    # A connection to a Mac that went down does not fail until its keepalives do.
    await disconnect()
    end = clock.monotonic() + command.timeout.total_seconds()
    reason = "it has not gone down"
    # A Mac that has just booted may not know its users' keys yet. A password is sent only once, because Macs lock accounts.
    transient = errors.Unavailable if sends_password else (errors.Unavailable, errors.LoginRefused)
    while clock.monotonic() < end:
        await asyncio.sleep(_REBOOT_POLL_INTERVAL.total_seconds())
        try:
            # The Mac may answer again before it goes down.
            if await _boot_session(mac) not in {"", before}:
                return
        except transient as error:
            reason = str(error).removeprefix(f"{mac.host}: ")
    raise errors.TimedOut(
        f"{mac.host}: {command.purpose}: not back within {command.timeout.total_seconds():g} s; last error: {reason}"
    )


async def _boot_session(mac: Connection) -> str:
    return shared_probes.boot_session(await mac.probe([shared_probes.BOOT_SESSION]))


def _start(
    client: ClientConnection, line: str, context: str, max_bytes: int, *, on_terminal: bool = False
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


def _probe_timeout(script: probe_scripts.ProbeScript) -> timedelta:
    timeouts = [probe.timeout for probe in script.probes.values() if isinstance(probe, RunProbe)]
    return min(sum(timeouts, _PROBE_TIMEOUT), _MAX_PROBE_TIMEOUT)


def _max_result_bytes(script: probe_scripts.ProbeScript) -> int:
    sizes = [0 if isinstance(probe, Stat) else probe.max_bytes for probe in script.probes.values()]
    # Base64 turns three bytes into four, and may break lines.
    return sum(size * 3 // 2 + _RESULT_OVERHEAD for size in sizes) + _COMMAND_OUTPUT


def _has_succeeded(
    command: command_scripts.Rendered, script: Script, process: RemoteProcess, code: int
) -> bool:
    """Return whether a command succeeded; without the token the exit code is that of sudo, which is never accepted."""
    accepted = command.accepted_codes if isinstance(command, Run) else (0,)
    return code in accepted and script.token.encode() in process.output.beginning
