"""A live graphical session is never ended by a run that has nothing to change, nor because macOS does not show the session.

Restarting loginwindow ends the session and all VMs in it. As on macOS, the simulated Mac shows the session to root only, and what root
wrote with `defaults` is unreadable for the user.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.api.names import launchd
from bramley.base.errors import NotConverged
from bramley.base.secret import Secret
from bramley.host import converge, loginwindow, preparation, sequence
from bramley.host.step import Step
from bramley.host.steps.auto_login import AutoLogin
from bramley.host.steps.sudo import Sudo
from bramley.sim.macos.call import Call, Result
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.mac import Mac
from tests import virtual_time
from tests.unit.host.steps import fixtures
from tests.unit.host.steps.interruption import PASSWORD

LOGIN: list[Step] = [Sudo("m1", Secret(PASSWORD)), AutoLogin("m1", Secret(PASSWORD))]


class MacWithoutAnswers(Mac):
    """A Mac whose launchctl answers questions about sessions with an error, a number of times."""

    answer: Result
    times: int

    def run(self, call: Call) -> Result:
        if self.times and call.argv[0] == "launchctl" and call.argv[1] == "print":
            self.times -= 1
            return self.answer
        return super().run(call)


def restarts(mac: Mac) -> int:
    return int(mac.state["console"].get("kicked_count", 0))


async def test_second_run_leaves_the_session_alone(tmp_path: Path) -> None:
    mac = Mac.create(tmp_path / "mac", clock=virtual_time.clock())
    connection = ModelConnection(mac, clock=virtual_time.clock())
    steps = sequence.steps(fixtures.spec(tmp_path), clock=virtual_time.clock())
    await converge.apply(connection, steps)
    before = restarts(mac)
    connection.done.clear()

    assert (await converge.plan(connection, steps)).is_empty
    report = await converge.apply(connection, steps)

    assert not report.is_changed
    assert connection.done == []
    assert restarts(mac) == before
    assert mac.state["console"]["user"] == "m1"


async def test_second_preparation_leaves_the_session_alone(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, *LOGIN)
    before = restarts(connection.mac)

    await preparation.prepare(connection, "m1", Secret(PASSWORD))

    assert restarts(connection.mac) == before
    assert connection.mac.state["console"]["user"] == "m1"


ERRORS = [
    pytest.param(
        Result(1, err="Could not print domain: 1: Operation not permitted\n"), id="refusal"
    ),
    pytest.param(Result(5, err="Could not print domain: 5: Input/output error\n"), id="error"),
    pytest.param(Result(124), id="timeout"),
    pytest.param(Result(0, out="gui/501 = {\n}\n"), id="no-session-line"),
    pytest.param(Result(0), id="no-output"),
]


# The beginning of what macOS 26 prints, which lists all services afterwards.
HEADER = """gui/501 = {
\ttype = login
\thandle = 100017
\tactive count = 425
\tservice count = 424
\tactive service count = 230
\tcreator = loginwindow[536]
\tcreator euid = 0
\tsession = Aqua
\tendpoint destination = com.apple.xpc.launchd.domain.user.501
"""


async def test_session_is_found_at_the_beginning_of_a_long_output(tmp_path: Path) -> None:
    answer = Result(0, out=HEADER + "\t\t     887      - \tcom.example.service\n" * 4000)
    connection = await mac_without_answers(tmp_path, answer, times=1000)
    probe = loginwindow.session_probe(501)

    assert (await converge.plan(connection, LOGIN)).is_empty
    assert len((await connection.probe([probe])).result(probe).output) < 10_000


async def mac_without_answers(folder: Path, answer: Result, *, times: int) -> ModelConnection:
    connection = await fixtures.mac(folder, *LOGIN)
    mac = MacWithoutAnswers(connection.mac.root, clock=virtual_time.clock())
    mac.answer, mac.times = answer, times
    return ModelConnection(mac, clock=virtual_time.clock())


@pytest.mark.parametrize("answer", ERRORS)
async def test_unreadable_session_is_not_ended(answer: Result, tmp_path: Path) -> None:
    connection = await mac_without_answers(tmp_path, answer, times=1000)
    before = restarts(connection.mac)

    with pytest.raises(
        NotConverged, match="auto-login: whether m1 is logged in at the Mac is unknown"
    ):
        await converge.apply(connection, LOGIN)

    assert restarts(connection.mac) == before
    assert connection.mac.state["console"]["user"] == "m1"


@pytest.mark.parametrize("answer", ERRORS)
async def test_session_that_is_unreadable_for_a_moment_is_read_again(
    answer: Result, tmp_path: Path
) -> None:
    connection = await mac_without_answers(tmp_path, answer, times=3)
    before = restarts(connection.mac)

    await converge.apply(connection, LOGIN)

    assert restarts(connection.mac) == before
    assert (await converge.plan(connection, LOGIN)).is_empty


async def test_first_plan_ends_no_session_that_only_root_could_see(tmp_path: Path) -> None:
    """The user works at the Mac, which has never been prepared: sudo needs a password, so the session is unknown."""
    mac = Mac.create(tmp_path / "mac", clock=virtual_time.clock())
    with mac.change() as state:
        state["console"]["user"] = "m1"
    connection = ModelConnection(mac, clock=virtual_time.clock())

    plan = await converge.plan(connection, LOGIN)
    await converge.apply(connection, LOGIN)

    purposes = [command.purpose for step in plan.steps for command in step.commands]
    assert "restart loginwindow" not in purposes
    assert restarts(mac) == 0
    assert mac.state["console"]["user"] == "m1"


async def test_session_is_shown_to_root_only(tmp_path: Path) -> None:
    connection = await fixtures.mac(tmp_path, *LOGIN)
    probe = loginwindow.session_probe(501)

    assert probe.as_root
    assert launchd.GUI_SESSION in (await connection.probe([probe])).result(probe).text
    assert connection.mac.run(Call(probe.argv, "m1")).code != 0
