"""A Mac behind an SSH server, as host steps see it.

One connection is kept for all commands and dialled again when it was lost. What a command says on the line and what it takes
from it is `host.rendering`; here is for how long, and what becomes of it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from bramley.base import errors
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.host import deadlines, failures, waiting
from bramley.host.artifacts import Depot, Reading
from bramley.host.commands import SOON, Command, Find, Look, Probe, Reboot, Run, Stream, Wait, Write
from bramley.host.deadlines import Renew
from bramley.host.facts import Answer, Facts, Said
from bramley.host.rendering import doing, looking
from bramley.host.rendering.script import Script, content_of
from bramley.host.ssh import dialling, rebooting
from bramley.host.ssh.dialling import Line
from bramley.host.ssh.talking import Talk, talk
from bramley.host.ssh.target import PATIENCE, Target

_END_OF_INPUT = b"\x04"


async def give(talk: Talk, script: Script, password: Secret | None) -> None:
    """Give sudo its password if it asks, and then the command what it takes."""
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(_answer_sudo(talk, script, password))
        await talk.output.until(script.token)
        answering.cancel()
    await talk.send(script.given.reveal_bytes())


async def _answer_sudo(talk: Talk, script: Script, password: Secret | None) -> None:
    if password is None:
        return
    await talk.errors.until(script.asks)
    await talk.send(password.reveal().encode() + b"\n")
    await talk.errors.until(script.asks, times=2)
    # Asked again, so it was wrong. Two tries more, and the Mac might lock the account.
    talk.is_password_wrong = True
    talk.send_end()


async def stream(talk: Talk, script: Script, reading: Reading, *, renew: Renew) -> None:
    """Send a file, block by block, and tell of each one that was taken."""
    await talk.output.until(script.token)
    async for block in reading.blocks():
        await talk.send(block)
        renew()
    talk.send_end()


async def type_in(talk: Talk, script: Script, command: Run) -> None:
    """Type the input as a line once the program asks for it, and nothing if it asks again."""
    await talk.output.until(script.token)
    await talk.output.until(command.prompt)
    await talk.send(content_of(command.stdin) + b"\n")
    await talk.output.until(command.prompt, times=2)
    await talk.send(_END_OF_INPUT)


_TOKEN_BYTES = 8
_LOOKING = timedelta(seconds=30)
_LONGEST_LOOK = timedelta(minutes=5)
# Of commands that answer by their code alone: enough for the token, and for a prompt behind some greeting.
_SHORT = 64 * 1024
# Of an answer besides its bytes in base64.
_FRAME = 1024
Say = Callable[[Talk, Script, Renew], Awaitable[None]]


class SshConnection:
    """One Mac over one SSH connection, which is dialled again when it was lost."""

    def __init__(self, target: Target, *, clock: Clock, artifacts: Depot) -> None:
        self._target = target
        self._clock = clock
        self._artifacts = artifacts
        self._line: Line | None = None
        self._dialling = asyncio.Lock()
        self._wrong_passwords: set[Secret] = set()

    @property
    def host(self) -> str:
        """Return how people call this Mac."""
        return self._target.told

    async def do(self, command: Command) -> None:
        """Do one command to its end."""
        match command:
            case Wait():
                await self._wait(command)
            case Reboot():
                await rebooting.reboot(
                    self,
                    command,
                    clock=self._clock,
                    hang_up=self.close,
                    sends_password=self._target.sends_password,
                )
            case Stream():
                await self._stream(command)
            case Run() if command.prompt:
                await self._do(command, lambda it, script, _: type_in(it, script, command))
            case Run() | Write():
                await self._give(command)
            case _:
                await self._do(command, lambda it, script, _: give(it, script, None))

    async def look(self, probes: Collection[Probe]) -> Facts:
        """Ask all questions in one round trip."""
        wanted = list(dict.fromkeys(probes))
        if not wanted:
            return Facts()
        token = _token()
        found: dict[Probe, Answer] = {}
        for question in looking.render(wanted, token=token):
            found |= await self._ask(question, token)
        return Facts(found)

    async def reach(self, *, patience: timedelta) -> None:
        """Connect, waiting so long for the Mac's SSH server to be there."""
        await dialling.until_there(
            self._connected, told=self.host, clock=self._clock, patience=patience
        )

    async def close(self) -> None:
        """Hang up; the next command dials again."""
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def _connected(self) -> Line:
        async with self._dialling:
            if self._line is None or not self._line.is_open:
                await self.close()
                self._line = await dialling.dial(self._target)
            return self._line

    async def _stream(self, command: Stream) -> None:
        async with self._artifacts.reading(command.artifact) as reading:
            await self._do(
                command,
                lambda it, script, renew: stream(it, script, reading, renew=renew),
            )

    async def _give(self, command: Run | Write) -> None:
        password = command.sudo_password
        if password not in self._wrong_passwords:
            await self._do(command, lambda it, script, _: give(it, script, password))
            return
        raise self._wrong_password(command)

    async def _do(self, command: doing.Rendered, say: Say) -> None:
        script = doing.render(command, token=_token())
        told = f"{self.host}: {command.purpose}"
        is_typed = isinstance(command, Run) and bool(command.prompt)
        line = await self._connected()
        async with (
            _deadline(command, told) as renew,
            talk(line, script.line, told=told, most=_SHORT, on_terminal=is_typed) as running,
        ):
            code = await running.finish(lambda it: say(it, script, renew))
        if running.is_password_wrong and isinstance(command, Run | Write):
            raise self._wrong_password(command)
        if not _is_fine(command, script, running, code):
            raise self._failed(told, code, running, command, script)

    async def _ask(self, question: looking.Question, token: str) -> dict[Probe, Answer]:
        told = f"{self.host}: looking at the Mac"
        line = await self._connected()
        most = _answer_bytes(question)
        async with (
            deadlines.to_its_end(_looking_within(question), told),
            talk(line, question.line, told=told, most=most, on_terminal=False) as running,
        ):
            code = await running.finish(_say_nothing)
        found = looking.answers(question, token=token, output=bytes(running.output.beginning))
        if len(found) < len(question.probes):
            raise failures.failed(told, code, bytes(running.errors.tail), secrets=self._secrets)
        return found

    async def _wait(self, command: Wait) -> None:
        async def ask() -> Said:
            return (await self.look([command.look])).said(command.look)

        await waiting.until(command, ask, clock=self._clock, host=self.host)

    def _failed(
        self, told: str, code: int, running: Talk, command: Command, script: Script
    ) -> errors.CommandFailed:
        said = bytes(running.errors.tail or running.output.tail)
        for ours in (f"{script.token}?", script.token):
            said = said.replace(ours.encode(), b"")
        hidden = (*failures.secrets_of(command), *self._secrets)
        return failures.failed(told, code, said, secrets=hidden)

    def _wrong_password(self, command: Run | Write) -> errors.LoginRefused:
        if command.sudo_password:
            self._wrong_passwords.add(command.sudo_password)
        return errors.LoginRefused(
            f"{self.host}: {command.purpose}: sudo does not take this password of {self._target.user}; "
            "it is not tried again over this connection, since Macs lock accounts"
        )

    @property
    def _secrets(self) -> tuple[Secret, ...]:
        return self._target.credentials.secrets


@asynccontextmanager
async def open(
    target: Target, *, clock: Clock, artifacts: Depot, patience: timedelta = PATIENCE
) -> AsyncIterator[SshConnection]:
    """Connect to a Mac, waiting so long for its SSH server to be there, and disconnect in the end."""
    mac = SshConnection(target, clock=clock, artifacts=artifacts)
    try:
        await mac.reach(patience=patience)
        yield mac
    finally:
        await mac.close()


def _token() -> str:
    return secrets.token_hex(_TOKEN_BYTES)


def _deadline(command: doing.Rendered, told: str) -> AbstractAsyncContextManager[Renew]:
    if isinstance(command, Stream):
        return deadlines.of_standstill(command.within, told)
    within = command.within if isinstance(command, Run | Write) else SOON
    return deadlines.to_its_end(within, told)


def _looking_within(question: looking.Question) -> timedelta:
    looks = [probe.within for probe in question.probes.values() if isinstance(probe, Look)]
    return min(sum(looks, _LOOKING), _LONGEST_LOOK)


def _answer_bytes(question: looking.Question) -> int:
    kept = [0 if isinstance(probe, Find) else probe.most for probe in question.probes.values()]
    # Base64 makes four of three bytes, and may break lines.
    return sum(most * 3 // 2 + _FRAME for most in kept) + _SHORT


def _is_fine(command: doing.Rendered, script: Script, running: Talk, code: int) -> bool:
    """Tell whether a command did what it was to do; a code of sudo's own, which let nothing begin, is never meant."""
    accepted = command.accepts if isinstance(command, Run) else (0,)
    return code in accepted and script.token.encode() in running.output.beginning


async def _say_nothing(_: Talk) -> None:
    pass
