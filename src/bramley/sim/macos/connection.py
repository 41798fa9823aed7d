"""An in-process connection to a simulated Mac: executes the commands and probes of host steps on the model, under any clock.

`Faults` plans what happens to a command: the connection is cut before it, after it, before its response or at a byte of a stream; it
hangs until its timeout; it fails. After a cut the next call is a new connection, as with SSH.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
)
from contextlib import aclosing
from datetime import timedelta
from typing import Any

from bramley.api.names import host as names
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.host import commands, connection
from bramley.host.artifacts import ArtifactStore
from bramley.host.connection import Batch, BatchResult, OnStarted, Renew
from bramley.host.facts import Facts, RunResult
from bramley.sim.macos import host_commands
from bramley.sim.macos.faults import Cut, CutPoint, Fail, Fault, Faults, Garble, Hang
from bramley.sim.macos.mac import Mac

_PROBE_TIMEOUT = timedelta(seconds=60)
_REBOOT_POLL = timedelta(seconds=5)
_CHANGES: Mapping[type, Callable[[Mac, str, Any], None]] = {
    commands.Folder: host_commands.folder,
    commands.Link: host_commands.link,
    commands.Remove: host_commands.remove,
    commands.Rename: host_commands.rename,
    commands.Run: host_commands.run,
    commands.Seal: host_commands.seal,
    commands.Write: host_commands.write,
}


class ModelConnection:
    """A host.connection.Connection to one Mac; `done` are the commands that were done.

    `probes` counts the calls that probe, and `trips` the round trips that the same calls take over SSH.
    """

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
        self.done: list[commands.Command] = []
        self.probes = 0
        self.trips = 0
        self.faults = faults or Faults()
        self._clock = clock
        self._user = user
        self._artifacts = artifacts or ArtifactStore()
        self._wrong_passwords: set[Secret] = set()
        self._is_cut = False
        self._pinned_key_id = mac.state["host_key_id"]

    @property
    def host(self) -> str:
        """Return the name of this Mac in messages."""
        return f"{self._user}@{self.mac.state['settings']['host_name']}"

    def accept_new_host_key(self) -> None:
        """Pin the host key that the Mac presents now."""
        self._pinned_key_id = self.mac.state["host_key_id"]

    async def execute(self, command: commands.Command) -> None:
        """Run one command to its end."""
        self.trips += 1
        fault = self.faults.next(command)
        await self._begin(fault, _timeout_of(command), command.purpose)
        try:
            await self._perform(command, fault)
        except host_commands.PasswordRefused:
            raise self._wrong_password(command) from None
        except host_commands.Failed as error:
            subject, output = f"{self.host}: {command.purpose}", str(error).encode()
            secrets = connection.secrets_of(command)
            raise connection.command_failed(subject, error.code, output, secrets=secrets) from None
        self.done.append(command)
        self._end(fault)

    async def execute_all(
        self, batch: Batch, *, on_started: OnStarted = lambda _: None
    ) -> BatchResult:
        """Run the commands one by one, so that faults apply to each of them, and count the round trips that they take over SSH."""
        trips = self.trips + connection.round_trips(batch)
        result = await execute_in_order(
            self, batch, on_started, read_claim=lambda: self.mac.files.read(names.CLAIM)
        )
        self.trips = trips
        return result

    async def probe(self, probes: Collection[commands.Probe]) -> Facts:
        """Run all probes in one round trip."""
        self.trips += 1
        fault = self.faults.next_probe()
        self.probes += 1
        await self._begin(fault, _PROBE_TIMEOUT, "probe the Mac")
        with self.mac.caching():
            facts = host_commands.facts(self.mac, self._user, probes)
        self._end(fault)
        return facts

    async def _begin(self, fault: Fault | None, limit: timedelta, purpose: str) -> None:
        """Fail or hang before the command, if a fault or the Mac requires it."""
        await asyncio.sleep(0)
        if self._is_cut or fault == Cut(CutPoint.BEFORE):
            self._is_cut = False
            raise errors.HostUnreachable(f"{self.host}: the connection was cut: {purpose}")
        self._require_up(purpose)
        if isinstance(fault, Hang):
            await asyncio.sleep(limit.total_seconds())
            raise self._timed_out(limit, purpose)

    def _require_up(self, purpose: str) -> None:
        if not self.mac.is_up:
            raise errors.HostUnreachable(f"{self.host}: does not respond: {purpose}")
        if self.mac.state["host_key_id"] != self._pinned_key_id:
            raise errors.HostKeyChanged(f"{self.host} does not present the pinned host key")

    def _end(self, fault: Fault | None) -> None:
        if isinstance(fault, Cut) and (
            fault.point is CutPoint.UNANSWERED or fault.at_byte is not None
        ):
            raise errors.HostUnreachable(f"{self.host}: the connection was cut before the response")
        self._is_cut = fault == Cut(CutPoint.AFTER)

    async def _perform(self, command: commands.Command, fault: Fault | None) -> None:
        if isinstance(fault, Fail):
            raise host_commands.Failed(fault.code, fault.stderr)
        match command:
            case commands.Wait():
                await self._wait(command)
            case commands.Reboot():
                await self._reboot(command)
            case commands.Stream():
                await self._stream(command, fault)
            case _:
                await self._change(command)

    async def _change(self, command: commands.Command) -> None:
        if getattr(command, "sudo_password", None) in self._wrong_passwords:
            raise self._wrong_password(command)
        if isinstance(command, commands.Run) and command.argv[0] == "sleep":
            # The only program that waits: those of the model never do.
            await self._sleep(float(command.argv[1]), command)
            return
        with self.mac.caching():
            _CHANGES[type(command)](self.mac, self._user, command)

    async def _sleep(self, seconds: float, command: commands.Run) -> None:
        await asyncio.sleep(min(seconds, command.timeout.total_seconds()))
        if seconds > command.timeout.total_seconds():
            raise self._timed_out(command.timeout, command.purpose)

    def _timed_out(self, limit: timedelta, purpose: str) -> errors.TimedOut:
        return errors.TimedOut(
            f"{self.host}: {purpose}: did not finish within {_seconds(limit)}; it was stopped"
        )

    async def _stream(self, command: commands.Stream, fault: Fault | None) -> None:
        faulty = _FaultyStream(self.host, fault)
        subject = f"{self.host}: {command.purpose}"
        async with (
            self._artifacts.open(command.artifact) as artifact,
            connection.stall_deadline(command.timeout, subject) as renew,
            aclosing(faulty.through(artifact.blocks(), renew)) as blocks,
        ):
            await host_commands.stream(self.mac, self._user, command, blocks)

    async def _wait(self, command: commands.Wait) -> None:
        async def run_probe() -> RunResult:
            self._require_up(command.purpose)
            return host_commands.run_probe(self.mac, self._user, command.probe)

        await _wait_until(command, run_probe, clock=self._clock, host=self.host)

    async def _reboot(self, command: commands.Reboot) -> None:
        before = self.mac.state["boot"]["boot_id"]
        restart = commands.Run(
            argv=("shutdown", "-r", "now"), purpose=command.purpose, as_root=True
        )
        host_commands.run(self.mac, self._user, restart)
        until = self._clock.monotonic() + command.timeout.total_seconds()
        while self._clock.monotonic() < until:
            await asyncio.sleep(_REBOOT_POLL.total_seconds())
            if self.mac.is_up and self.mac.state["boot"]["boot_id"] != before:
                return
        raise errors.TimedOut(
            f"{self.host}: {command.purpose}: did not come back within {_seconds(command.timeout)}"
        )

    def _wrong_password(self, command: commands.Command) -> errors.LoginRefused:
        if isinstance(command, commands.Run | commands.Write) and command.sudo_password:
            self._wrong_passwords.add(command.sudo_password)
        return errors.LoginRefused(
            f"{self.host}: {command.purpose}: sudo does not accept this password of {self._user}; "
            "it is not tried again over this connection, since Macs lock accounts"
        )


async def execute_in_order(
    mac: connection.Connection,
    batch: Batch,
    on_started: OnStarted,
    *,
    read_claim: Callable[[], bytes | None],
) -> BatchResult:
    """Execute a batch by single calls, and check the claim before each command, as a Mac does."""
    guard, ignored = batch.guard, ""
    if guard and guard.acquires and not batch.commands:
        guard.check(read_claim())
        await mac.execute(guard.write())
    for number, command in enumerate(batch.commands):
        if guard:
            guard.check(read_claim())
            if guard.acquires:
                await mac.execute(guard.write())
            guard = guard.held()
        on_started(number)
        try:
            await mac.execute(command)
        except errors.CommandFailed as error:
            if not (isinstance(command, commands.Run) and command.ignore_failure):
                raise
            ignored = str(error).removeprefix(f"{mac.host}: ")
        if guard and isinstance(command, commands.Reboot):
            guard = guard.acquiring(None)
    return BatchResult(await mac.probe(batch.probes) if batch.probes else Facts(), ignored)


async def _wait_until(
    command: commands.Wait, probe: Callable[[], Awaitable[RunResult]], *, clock: Clock, host: str
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
        raise connection.unmet(command, host)


class _FaultyStream:
    """The bytes of a stream as a faulty connection delivers them."""

    def __init__(self, host: str, fault: Fault | None) -> None:
        self._host = host
        self._corrupts = isinstance(fault, Garble)
        self._remaining = fault.at_byte if isinstance(fault, Cut) else None

    async def through(self, blocks: AsyncIterator[bytes], renew: Renew) -> AsyncGenerator[bytes]:
        """Yield the blocks, cut or corrupted by the fault."""
        async for block in blocks:
            yield self._next_block(block)
            renew()

    def _next_block(self, block: bytes) -> bytes:
        if self._remaining is not None and len(block) > self._remaining:
            raise errors.HostUnreachable(f"{self._host}: the connection was cut in a stream")
        if self._remaining is not None:
            self._remaining -= len(block)
        if self._corrupts:
            self._corrupts = False
            return bytes([block[0] ^ 1]) + block[1:]
        return block


def _timeout_of(command: commands.Command) -> timedelta:
    timeout: timedelta = getattr(command, "timeout", commands.DEFAULT_TIMEOUT)
    return timeout


def _seconds(limit: timedelta) -> str:
    return f"{limit.total_seconds():g} s"
