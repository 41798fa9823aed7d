"""A connection to a simulated Mac without a line: the vocabulary of host steps, answered by the model under any clock.

What a line may do to a command is planned in `Faults`: cut before it, after it, with its answer lost or at a byte of a stream; hang
until its deadline; fail. After a cut the next call is a new connection, as with SSH.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing
from datetime import timedelta

from bramley.base import errors
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.host import connection
from bramley.host.artifacts import ArtifactStore
from bramley.host.commands import (
    DEFAULT_TIMEOUT,
    Command,
    Folder,
    Link,
    Probe,
    Reboot,
    Remove,
    Rename,
    Run,
    Seal,
    Stream,
    Wait,
    Write,
)
from bramley.host.connection import Renew
from bramley.host.facts import Facts, RunResult
from bramley.sim.macos import host_commands
from bramley.sim.macos.faults import Cut, Fail, Fault, Faults, Garble, Hang, Moment
from bramley.sim.macos.mac import Mac

_LOOK = timedelta(seconds=60)
_EVERY = timedelta(seconds=5)


class ModelConnection:
    """One Mac, as host.connection.Connection has it; `done` are the commands that were done, `looks` counts the round trips of questions."""

    def __init__(
        self,
        mac: Mac,
        *,
        clock: Clock,
        user: str = "m1",
        faults: Faults | None = None,
        artifacts: ArtifactStore | None = None,
    ) -> None:
        self.mac = mac
        self.done: list[Command] = []
        self.probes = 0
        self.faults = faults or Faults()
        self._clock = clock
        self._user = user
        self._artifacts = artifacts or ArtifactStore()
        self._wrong_passwords: set[Secret] = set()
        self._is_cut = False
        self._pin = mac.state["host_key_id"]

    @property
    def host(self) -> str:
        """Return how people call this Mac."""
        return f"{self._user}@{self.mac.state['settings']['host_name']}"

    def trust_again(self) -> None:
        """Take the host key that the Mac shows now for the right one."""
        self._pin = self.mac.state["host_key_id"]

    async def do(self, command: Command) -> None:
        """Do one command to its end."""
        fault = self.faults.next(command)
        await self._reach(fault, _within(command), command.purpose)
        try:
            await self._perform(command, fault)
        except host_commands.PasswordRefused:
            raise self._wrong_password(command) from None
        except host_commands.Failed as error:
            told, said = f"{self.host}: {command.purpose}", str(error).encode()
            secrets = connection.secrets_of(command)
            raise connection.command_failed(told, error.code, said, secrets=secrets) from None
        self.done.append(command)
        self._leave(fault)

    async def probe(self, probes: Collection[Probe]) -> Facts:
        """Ask all questions in one round trip."""
        fault = self.faults.next_look()
        self.probes += 1
        await self._reach(fault, _LOOK, "look at the Mac")
        with self.mac.at_once():
            found = host_commands.facts(self.mac, self._user, probes)
        self._leave(fault)
        return found

    async def _reach(self, fault: Fault | None, limit: timedelta, purpose: str) -> None:
        """Come to the Mac, or do not."""
        await asyncio.sleep(0)
        if self._is_cut or fault == Cut(Moment.BEFORE):
            self._is_cut = False
            raise errors.HostUnreachable(f"{self.host}: the connection was cut: {purpose}")
        self._require_up(purpose)
        if isinstance(fault, Hang):
            await asyncio.sleep(limit.total_seconds())
            raise self._no_end(limit, purpose)

    def _require_up(self, purpose: str) -> None:
        if not self.mac.is_up:
            raise errors.HostUnreachable(f"{self.host}: does not answer: {purpose}")
        if self.mac.state["host_key_id"] != self._pin:
            raise errors.HostKeyChanged(
                f"{self.host} shows another host key than the one that was pinned; trust it again if it was reinstalled"
            )

    def _leave(self, fault: Fault | None) -> None:
        if isinstance(fault, Cut) and (
            fault.moment is Moment.UNANSWERED or fault.at_byte is not None
        ):
            raise errors.HostUnreachable(f"{self.host}: the connection was cut before the answer")
        self._is_cut = fault == Cut(Moment.AFTER)

    async def _perform(self, command: Command, fault: Fault | None) -> None:
        if isinstance(fault, Fail):
            raise host_commands.Failed(fault.code, fault.said)
        match command:
            case Wait():
                await self._wait(command)
            case Reboot():
                await self._reboot(command)
            case Stream():
                await self._stream(command, fault)
            case Run() | Write():
                await self._give(command)
            case _:
                with self.mac.at_once():
                    self._change(command)

    async def _give(self, command: Run | Write) -> None:
        if command.sudo_password in self._wrong_passwords:
            raise self._wrong_password(command)
        match command:
            case Run(argv=("sleep", seconds)):
                # The one program that only waits: those of the model never do.
                await self._sleep(float(seconds), command)
            case Run():
                with self.mac.at_once():
                    host_commands.run(self.mac, self._user, command)
            case Write():
                with self.mac.at_once():
                    host_commands.write(self.mac, self._user, command)

    async def _sleep(self, seconds: float, command: Run) -> None:
        await asyncio.sleep(min(seconds, command.timeout.total_seconds()))
        if seconds > command.timeout.total_seconds():
            raise self._no_end(command.timeout, command.purpose)

    def _no_end(self, limit: timedelta, purpose: str) -> errors.TimedOut:
        return errors.TimedOut(
            f"{self.host}: {purpose}: did not finish within {_shown(limit)}; it was stopped"
        )

    async def _stream(self, command: Stream, fault: Fault | None) -> None:
        line = _Line(self.host, fault)
        told = f"{self.host}: {command.purpose}"
        async with (
            self._artifacts.open(command.artifact) as reading,
            connection.stall_deadline(command.timeout, told) as renew,
            aclosing(line.through(reading.blocks(), renew)) as blocks,
        ):
            await host_commands.stream(self.mac, self._user, command, blocks)

    def _change(self, command: Folder | Link | Rename | Remove | Seal) -> None:
        match command:
            case Folder():
                host_commands.folder(self.mac, self._user, command)
            case Link():
                host_commands.link(self.mac, self._user, command)
            case Rename():
                host_commands.rename(self.mac, self._user, command)
            case Remove():
                host_commands.remove(self.mac, self._user, command)
            case Seal():
                host_commands.seal(self.mac, self._user, command)

    async def _wait(self, command: Wait) -> None:
        async def ask() -> RunResult:
            self._require_up(command.purpose)
            return host_commands.run_probe(self.mac, self._user, command.probe)

        await connection.wait_until(command, ask, clock=self._clock, host=self.host)

    async def _reboot(self, command: Reboot) -> None:
        before = self.mac.state["boot"]["boot_id"]
        restart = Run(argv=("shutdown", "-r", "now"), purpose=command.purpose, as_root=True)
        host_commands.run(self.mac, self._user, restart)
        until = self._clock.monotonic() + command.timeout.total_seconds()
        while self._clock.monotonic() < until:
            await asyncio.sleep(_EVERY.total_seconds())
            if self.mac.is_up and self.mac.state["boot"]["boot_id"] != before:
                return
        raise errors.TimedOut(
            f"{self.host}: {command.purpose}: did not come back within {_shown(command.timeout)}"
        )

    def _wrong_password(self, command: Command) -> errors.LoginRefused:
        if isinstance(command, Run | Write) and command.sudo_password:
            self._wrong_passwords.add(command.sudo_password)
        return errors.LoginRefused(
            f"{self.host}: {command.purpose}: sudo does not take this password of {self._user}; "
            "it is not tried again over this connection, since Macs lock accounts"
        )


class _Line:
    """What a line does to the bytes of a stream."""

    def __init__(self, host: str, fault: Fault | None) -> None:
        self._host = host
        self._garbles = isinstance(fault, Garble)
        self._left = fault.at_byte if isinstance(fault, Cut) else None

    async def through(self, blocks: AsyncIterator[bytes], renew: Renew) -> AsyncGenerator[bytes]:
        """Let blocks pass, whole and as they are unless a fault has it otherwise."""
        async for block in blocks:
            yield self._take(block)
            renew()

    def _take(self, block: bytes) -> bytes:
        if self._left is not None and len(block) > self._left:
            raise errors.HostUnreachable(f"{self._host}: the connection was cut in a stream")
        if self._left is not None:
            self._left -= len(block)
        if self._garbles:
            self._garbles = False
            return bytes([block[0] ^ 1]) + block[1:]
        return block


def _within(command: Command) -> timedelta:
    if isinstance(command, Folder | Link | Rename | Remove | Seal):
        return DEFAULT_TIMEOUT
    return command.timeout


def _shown(limit: timedelta) -> str:
    return f"{limit.total_seconds():g} s"
