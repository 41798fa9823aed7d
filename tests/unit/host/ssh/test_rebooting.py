"""A reboot is over when another boot answers, however the line behaves meanwhile."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from bramley.base import errors, virtual_time
from bramley.base.secret import Secret
from bramley.host.commands import Command, Probe, Reboot, Run
from bramley.host.facts import Facts, Said
from bramley.host.ssh import rebooting
from bramley.host.ssh.target import Credentials, Target

DOWN = errors.HostUnreachable("mac: refused")
COMMAND = Reboot(purpose="restart", within=timedelta(minutes=2))


@dataclass(slots=True)
class Mac:
    """Answers with its boot, or not at all; what it says next follows in order, and the last stays."""

    boots: list[str | errors.BramleyError]
    restarts: errors.BramleyError | None = None
    done: list[Command] = field(default_factory=list)
    hung_up: int = 0
    host: str = "mac"

    async def do(self, command: Command) -> None:
        self.done.append(command)
        if self.restarts:
            raise self.restarts

    async def look(self, probes: Collection[Probe]) -> Facts:
        boot = self.boots.pop(0) if len(self.boots) > 1 else self.boots[0]
        if isinstance(boot, errors.BramleyError):
            raise boot
        return Facts({probe: Said(0 if boot else 1, boot.encode()) for probe in probes})

    async def hang_up(self) -> None:
        self.hung_up += 1


async def reboot(mac: Mac, *, sends_password: bool = False) -> float:
    clock = virtual_time.clock()
    await rebooting.reboot(
        mac, COMMAND, clock=clock, hang_up=mac.hang_up, sends_password=sends_password
    )
    return clock.monotonic()


@pytest.mark.parametrize("answer", [None, DOWN, errors.TimedOut("mac: no end")])
async def test_a_reboot_ends_with_another_boot(answer: errors.BramleyError | None) -> None:
    mac = Mac(["one", "one", DOWN, "", "two"], restarts=answer)

    assert await reboot(mac) == 8
    assert mac.hung_up == 1
    assert mac.done == [Run(argv=("shutdown", "-r", "now"), purpose="restart", as_root=True)]


@pytest.mark.parametrize(("last", "reason"), [(DOWN, "refused"), ("one", "it has not gone down")])
async def test_a_mac_that_is_not_back_in_time_is_told_with_the_reason(
    last: str | errors.BramleyError, reason: str
) -> None:
    with pytest.raises(
        errors.TimedOut, match=f"^mac: restart: not back within 120 s; at last: {reason}$"
    ):
        await reboot(Mac(["one", last]))


@pytest.mark.parametrize(
    "refused", [errors.HostKeyChanged("changed"), errors.Unauthorized("nobody")]
)
async def test_what_waiting_does_not_mend_is_told_at_once(refused: errors.Refused) -> None:
    with pytest.raises(type(refused)):
        await reboot(Mac(["one", DOWN, refused]))


async def test_a_key_that_a_mac_does_not_know_yet_is_shown_again() -> None:
    """sshd answers before the Mac knows its users."""
    refused = errors.LoginRefused("mac: nothing of what was given was accepted")

    assert await reboot(Mac(["one", DOWN, refused, "two"])) == 6
    with pytest.raises(errors.TimedOut, match="at last: nothing of what was given was accepted"):
        await reboot(Mac(["one", refused]))


async def test_a_password_is_not_sent_again_since_macs_lock_accounts() -> None:
    with pytest.raises(errors.LoginRefused):
        await reboot(Mac(["one", DOWN, errors.LoginRefused("mac: no"), "two"]), sends_password=True)


def test_a_password_for_a_host_on_the_way_counts_as_well() -> None:
    keys, password = Credentials(agent="/agent"), Credentials(password=Secret("secret"))
    jump = Target(host="jump", user="m1", credentials=password)

    assert jump.sends_password
    assert not Target(host="mac", user="m1", credentials=keys).sends_password
    assert Target(host="mac", user="m1", credentials=keys, through=jump).sends_password


async def test_a_mac_that_refuses_to_restart_is_told() -> None:
    with pytest.raises(errors.CommandFailed, match="sudo"):
        await reboot(Mac(["one"], restarts=errors.CommandFailed("mac: restart: sudo says no")))


async def test_a_mac_that_does_not_tell_its_boot_is_not_restarted() -> None:
    mac = Mac([""])
    with pytest.raises(errors.CommandFailed, match="does not tell one boot from another"):
        await reboot(mac)
    assert mac.done == []
