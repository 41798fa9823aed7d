from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import pytest

from bramley.agent.gui_session import GuiSession, NoSession
from bramley.agent.programs import ProgramResult
from tests import virtual_time
from tests.unit.agent.node.worlds import Programs

KICK = "sudo -n launchctl kickstart -k system/com.apple.loginwindow"
AQUA = ProgramResult(0, "gui/501 = {\n\tsession = Aqua\n}")
NO_SESSION = ProgramResult(112, "", "Bad request.\nCould not find domain for user gui: 501")


class Mac:
    """A console with a logged-in user, or one who logs in some time after loginwindow is restarted."""

    def __init__(
        self, *, alive: bool = True, login: timedelta | None = timedelta(seconds=4)
    ) -> None:
        self.programs = Programs(
            {
                "launchctl print gui/501": self._print,
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

    def _print(self) -> ProgramResult:
        return AQUA if self.is_alive else NO_SESSION

    def _kick(self) -> ProgramResult:
        if self.login is not None:
            asyncio.get_running_loop().call_later(self.login.total_seconds(), self._log_in)
        return ProgramResult(0)

    def _log_in(self) -> None:
        self.is_alive = True


async def test_live_session_is_only_probed() -> None:
    mac = Mac()
    session = mac.session()

    await session.ensure()

    assert mac.programs.calls == ["sudo -n launchctl print gui/501"]
    assert session.is_alive


async def test_session_probed_alive_recently_is_not_probed_again() -> None:
    mac = Mac()
    session = mac.session()

    await session.check()
    await asyncio.sleep(4)
    await session.ensure(max_age=timedelta(seconds=5))
    calls_at_once = len(mac.programs.calls)
    await asyncio.sleep(1)
    await session.ensure(max_age=timedelta(seconds=5))

    assert (calls_at_once, len(mac.programs.calls)) == (1, 2)


async def test_session_probed_dead_recently_is_still_restarted() -> None:
    mac = Mac(alive=False)
    session = mac.session()

    await session.check()
    await session.ensure(max_age=timedelta(seconds=5))

    assert session.is_alive
    assert KICK in mac.programs.calls


async def test_dead_session_is_restarted_with_loginwindow() -> None:
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


async def test_restarts_without_effect_back_off() -> None:
    mac = Mac(alive=False, login=None)
    session = mac.session()
    for _ in range(360):
        with pytest.raises(NoSession):
            await session.ensure()
        await asyncio.sleep(10)

    # Over more than an hour: a restart at least every quarter of an hour, and not on every call.
    assert 6 <= mac.programs.count("kickstart") <= 14


async def test_concurrent_calls_restart_once() -> None:
    mac = Mac(alive=False)
    session = mac.session()

    await asyncio.gather(session.ensure(), session.ensure())

    assert mac.programs.count("kickstart") == 1


@pytest.mark.parametrize("part", ["print", "kickstart"])
async def test_hanging_launchctl_is_no_session_and_blocks_nothing(part: str) -> None:
    mac = Mac(alive=False)
    mac.programs.hanging.add(part)
    session = mac.session()
    began = asyncio.get_running_loop().time()

    with pytest.raises(NoSession):
        await session.ensure()

    assert not session.is_alive
    assert asyncio.get_running_loop().time() - began < 80


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (
            ProgramResult(1, "", "sudo: a password is required\n"),
            "code 1: sudo: a password is required",
        ),
        (
            ProgramResult(1, "", "Could not print domain: 1: Operation not permitted\n"),
            "not permitted",
        ),
        (ProgramResult(5, "", "Could not print domain: 5: Input/output error\n"), "Input/output"),
        (ProgramResult(-9, "", ""), "code -9"),
        (ProgramResult(0, "", ""), "it printed no session"),
    ],
)
async def test_session_that_cannot_be_read_is_not_ended(result: ProgramResult, reason: str) -> None:
    mac = Mac()
    mac.programs.answers["launchctl print gui/501"] = result
    session = mac.session()

    for _ in range(20):
        with pytest.raises(NoSession, match=reason):
            await session.ensure()
        await asyncio.sleep(60)

    assert session.is_alive is None
    assert mac.programs.count("kickstart") == 0


async def test_session_is_not_ended_while_launchctl_hangs() -> None:
    mac = Mac()
    mac.programs.hanging.add("print")
    session = mac.session()

    with pytest.raises(NoSession, match="cannot be checked, so loginwindow is not restarted"):
        await session.ensure()
    assert mac.programs.count("kickstart") == 0

    mac.programs.hanging.clear()
    await session.ensure()
    assert session.is_alive


@pytest.mark.parametrize(
    "missing",
    [
        NO_SESSION,
        ProgramResult(113, "", "Could not find domain for user gui: 501"),
        ProgramResult(
            125, "", "Could not print domain: 125: Domain does not support specified action"
        ),
        ProgramResult(0, "gui/501 = {\n\tsession = LoginWindow\n}"),
    ],
)
async def test_every_answer_without_a_session_restarts_loginwindow(missing: ProgramResult) -> None:
    mac = Mac(alive=False)
    mac.programs.answers["launchctl print gui/501"] = lambda: AQUA if mac.is_alive else missing

    await mac.session().ensure()

    assert mac.programs.count("kickstart") == 1


async def test_sudo_that_needs_a_password_is_an_error() -> None:
    mac = Mac(alive=False)
    mac.programs.answers["kickstart -k system/com.apple.loginwindow"] = ProgramResult(
        1, "", "sudo: a password is required"
    )

    with pytest.raises(NoSession, match="a password is required"):
        await mac.session().ensure()
