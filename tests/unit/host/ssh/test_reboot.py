"""A reboot is finished when another boot session answers, however the connection behaves until then."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from bramley.base import errors
from bramley.base.secret import Secret
from bramley.host.commands import Command, Probe, Reboot, Run
from bramley.host.connection import Batch, BatchResult, OnStarted
from bramley.host.facts import Facts, RunResult
from bramley.host.ssh import reboot as module
from bramley.host.ssh.target import Credentials, Target
from bramley.sim.macos.connection import execute_in_order
from tests import virtual_time

DOWN = errors.HostUnreachable("mac: refused")
COMMAND = Reboot(purpose="restart", timeout=timedelta(minutes=2))


@dataclass(slots=True)
class Mac:
    """Returns or raises the boot sessions in order; the last one repeats."""

    boots: list[str | errors.BramleyError]
    restarts: errors.BramleyError | None = None
    done: list[Command] = field(default_factory=list)
    disconnects: int = 0
    host: str = "mac"

    async def execute(self, command: Command) -> None:
        self.done.append(command)
        if self.restarts:
            raise self.restarts

    async def execute_all(
        self, batch: Batch, *, on_started: OnStarted = lambda _: None
    ) -> BatchResult:
        return await execute_in_order(self, batch, on_started, read_claim=lambda: None)

    async def probe(self, probes: Collection[Probe]) -> Facts:
        boot = self.boots.pop(0) if len(self.boots) > 1 else self.boots[0]
        if isinstance(boot, errors.BramleyError):
            raise boot
        return Facts({probe: RunResult(0 if boot else 1, boot.encode()) for probe in probes})

    async def disconnect(self) -> None:
        self.disconnects += 1


async def reboot(mac: Mac, *, sends_password: bool = False) -> float:
    clock = virtual_time.clock()
    await module.reboot(
        mac, COMMAND, clock=clock, disconnect=mac.disconnect, sends_password=sends_password
    )
    return clock.monotonic()


@pytest.mark.parametrize("answer", [None, DOWN, errors.TimedOut("mac: no end")])
async def test_reboot_ends_with_another_boot_session(answer: errors.BramleyError | None) -> None:
    mac = Mac(["one", "one", DOWN, "", "two"], restarts=answer)

    assert await reboot(mac) == 8
    assert mac.disconnects == 1
    assert mac.done == [Run(argv=("shutdown", "-r", "now"), purpose="restart", as_root=True)]


@pytest.mark.parametrize(("last", "reason"), [(DOWN, "refused"), ("one", "it has not gone down")])
async def test_timeout_is_reported_with_the_last_error(
    last: str | errors.BramleyError, reason: str
) -> None:
    with pytest.raises(
        errors.TimedOut, match=f"^mac: restart: not back within 120 s; last error: {reason}$"
    ):
        await reboot(Mac(["one", last]))


@pytest.mark.parametrize(
    "refused", [errors.HostKeyChanged("changed"), errors.Unauthorized("refused")]
)
async def test_permanent_error_is_raised_at_once(refused: errors.Refused) -> None:
    with pytest.raises(type(refused)):
        await reboot(Mac(["one", DOWN, refused]))


async def test_refused_key_is_retried() -> None:
    """sshd answers before the Mac has loaded its user accounts."""
    refused = errors.LoginRefused("mac: no credential was accepted")

    assert await reboot(Mac(["one", DOWN, refused, "two"])) == 6
    with pytest.raises(errors.TimedOut, match="last error: no credential was accepted"):
        await reboot(Mac(["one", refused]))


async def test_refused_password_is_not_retried() -> None:
    """macOS locks an account after repeated wrong passwords."""
    with pytest.raises(errors.LoginRefused):
        await reboot(Mac(["one", DOWN, errors.LoginRefused("mac: no"), "two"]), sends_password=True)


def test_password_of_a_jump_host_counts() -> None:
    keys, password = Credentials(agent="/agent"), Credentials(password=Secret("secret"))
    jump = Target(host="jump", user="m1", credentials=password)

    assert jump.sends_password
    assert not Target(host="mac", user="m1", credentials=keys).sends_password
    assert Target(host="mac", user="m1", credentials=keys, jump=jump).sends_password


async def test_failed_shutdown_command_is_raised() -> None:
    with pytest.raises(errors.CommandFailed, match="sudo"):
        await reboot(Mac(["one"], restarts=errors.CommandFailed("mac: restart: sudo refused")))


async def test_mac_with_an_unknown_boot_session_is_not_rebooted() -> None:
    mac = Mac([""])
    with pytest.raises(errors.CommandFailed, match="the boot session of this Mac is unknown"):
        await reboot(mac)
    assert mac.done == []
