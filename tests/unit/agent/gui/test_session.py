from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import pytest

from bramley.agent.gui_session import GuiSession, NoSession
from bramley.agent.programs import Finished
from bramley.base import virtual_time
from tests.unit.agent.node.worlds import Programs

KICK = "sudo -n launchctl kickstart -k system/com.apple.loginwindow"
AQUA = Finished(0, "gui/501 = {\n\tsession = Aqua\n}")
NOBODY = Finished(113, "", "Could not find domain for user gui: 501")


class Mac:
    """A console at which somebody is logged in, or comes back some time after a kick."""

    def __init__(
        self, *, alive: bool = True, login: timedelta | None = timedelta(seconds=4)
    ) -> None:
        self.programs = Programs(
            {
                "launchctl print gui/501": self._look,
                "kickstart -k system/com.apple.loginwindow": self._kick,
            }
        )
        self.is_alive = alive
        self.login = login
        self.vms = 0

    def session(self) -> GuiSession:
        return GuiSession(
            501,
            self.programs,
            clock=virtual_time.clock(),
            rng=random.Random(1),
            has_running_vm=lambda: self.vms > 0,
        )

    def _look(self) -> Finished:
        return AQUA if self.is_alive else NOBODY

    def _kick(self) -> Finished:
        if self.login is not None:
            asyncio.get_running_loop().call_later(self.login.total_seconds(), self._log_in)
        return Finished(0)

    def _log_in(self) -> None:
        self.is_alive = True


async def test_a_session_that_is_alive_is_only_looked_at() -> None:
    mac = Mac()
    session = mac.session()

    await session.ensure()

    assert mac.programs.calls == ["sudo -n launchctl print gui/501"]
    assert session.is_alive


async def test_a_session_seen_alive_a_moment_ago_is_not_looked_at_again() -> None:
    mac = Mac()
    session = mac.session()

    await session.check()
    await asyncio.sleep(4)
    await session.ensure(max_age=timedelta(seconds=5))
    looks_at_once = len(mac.programs.calls)
    await asyncio.sleep(1)
    await session.ensure(max_age=timedelta(seconds=5))

    assert (looks_at_once, len(mac.programs.calls)) == (1, 2)


async def test_a_session_seen_dead_a_moment_ago_is_revived_all_the_same() -> None:
    mac = Mac(alive=False)
    session = mac.session()

    await session.check()
    await session.ensure(max_age=timedelta(seconds=5))

    assert session.is_alive
    assert KICK in mac.programs.calls


async def test_a_dead_session_is_revived_by_restarting_loginwindow() -> None:
    mac = Mac(alive=False)
    session = mac.session()

    await session.ensure()

    assert session.is_alive
    assert [line for line in mac.programs.calls if "print" not in line] == [KICK]


async def test_no_signal_is_sent_to_loginwindow() -> None:
    mac = Mac(alive=False)

    await mac.session().ensure()

    assert mac.programs.count("killall") == 0


async def test_loginwindow_is_never_restarted_while_a_vm_runs() -> None:
    mac = Mac(alive=False)
    mac.vms = 1
    session = mac.session()

    with pytest.raises(NoSession, match="while a VM runs"):
        await session.ensure()
    assert mac.programs.count("kickstart") == 0

    mac.vms = 0
    await session.ensure()
    assert session.is_alive


async def test_kicks_that_do_not_help_become_rare() -> None:
    mac = Mac(alive=False, login=None)
    session = mac.session()
    for _ in range(360):
        with pytest.raises(NoSession):
            await session.ensure()
        await asyncio.sleep(10)

    # Over more than an hour: a kick at least every quarter of an hour, and not every time somebody asks.
    assert 6 <= mac.programs.count("kickstart") <= 14


async def test_two_who_ask_at_once_kick_once() -> None:
    mac = Mac(alive=False)
    session = mac.session()

    await asyncio.gather(session.ensure(), session.ensure())

    assert mac.programs.count("kickstart") == 1


@pytest.mark.parametrize("part", ["print", "kickstart"])
async def test_a_launchctl_that_hangs_is_no_session_and_holds_nobody_up(part: str) -> None:
    mac = Mac(alive=False)
    mac.programs.hanging.add(part)
    session = mac.session()
    began = asyncio.get_running_loop().time()

    with pytest.raises(NoSession):
        await session.ensure()

    assert session.is_alive is False
    assert asyncio.get_running_loop().time() - began < 80


async def test_sudo_that_wants_a_password_is_told() -> None:
    mac = Mac(alive=False)
    mac.programs.answers["kickstart -k system/com.apple.loginwindow"] = Finished(
        1, "", "sudo: a password is required"
    )

    with pytest.raises(NoSession, match="a password is required"):
        await mac.session().ensure()
