"""What people see of `bramley host`: lines that stand alone, words for what is not there, and how to go on when it was stopped."""

from __future__ import annotations

import io
import json
import sys

import pytest
import typer

from bramley.base.errors import UnsupportedHost
from bramley.cli import host_screen, main
from bramley.host.commands import Remove, Run
from bramley.host.converge import (
    CommandStarted,
    Plan,
    PlannedStep,
    Report,
    StepFinished,
    StepSkipped,
    StepStarted,
)
from bramley.host.report import Overview
from bramley.host.steps.hostname import Hostname
from bramley.host.steps.sleep import Sleep

Captured = pytest.CaptureFixture[str]
MAC = "m1@mac"
STEP = Hostname("mac-1")
BARE = Overview(
    macos="26.3",
    chip="arm64",
    cpus=8,
    memory_gib=16,
    free_gib=None,
    file_vault="FileVault is Off.",
    sudo_without_password=False,
    graphical_session=False,
    automatic_login=False,
    password_sealed=None,
    vms_running=False,
    tart=None,
    agent_pid=None,
    applied={},
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_a_bare_mac_lacks_is_told_apart_from_what_could_not_be_found_out(
    capsys: Captured,
) -> None:
    host_screen.tell_facts(MAC, BARE, as_json=False)

    told = {line[:24].strip(): line[24:] for line in capsys.readouterr().out.splitlines()}
    assert (told["tart"], told["agent pid"], told["applied"]) == ("none", "not running", "nothing")
    assert told["free gib"] == told["password sealed"] == "not known"


def test_facts_for_machines_are_named_as_everything_else_is(capsys: Captured) -> None:
    host_screen.tell_facts(MAC, BARE, as_json=True)

    told = json.loads(capsys.readouterr().out)
    assert told["memoryGib"] == 16
    assert not [name for name in told if "_" in name]


def test_a_purpose_that_says_it_all_is_told_once(capsys: Captured) -> None:
    commands = (
        Remove(path="/opt/x", purpose="remove /opt/x"),
        Run(argv=("true",), purpose="do nothing"),
    )
    host_screen.tell_plan(Plan(MAC, (PlannedStep(STEP, commands),)), as_json=False)

    _, first, second, last = capsys.readouterr().out.splitlines()
    assert first == "  remove /opt/x"
    assert second == "  do nothing  (run true)"
    assert last == "m1@mac: 1 of 1 step has something to do."


def test_a_mac_that_waits_for_its_restart_is_not_told_as_wanted(capsys: Captured) -> None:
    waits = Plan(MAC, (PlannedStep(STEP, pending="RebootPending: VMs are not filtered"),))

    host_screen.tell_plan(waits, as_json=True)
    assert json.loads(capsys.readouterr().out)["asWanted"] is False
    host_screen.tell_plan(waits, as_json=False)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "m1@mac is not as wanted yet: RebootPending; there is nothing to do now."
    screen = host_screen.Screen(MAC, as_json=False)
    screen.tell(Report(MAC, {"hostname": 1}, waits.pending))
    screen.tell(Report(MAC, {"hostname": 0}, waits.pending))
    assert capsys.readouterr().out.splitlines() == [
        "m1@mac is not as wanted yet: RebootPending; 1 step changed something.",
        "m1@mac is not as wanted yet: RebootPending; nothing was changed.",
    ]


def test_a_mac_that_only_people_could_make_better_is_as_wanted_and_told_so(
    capsys: Captured,
) -> None:
    old = Plan(MAC, (PlannedStep(STEP, advice="UpdateAdvised: this macOS is old"),))

    assert old.is_converged
    host_screen.tell_plan(old, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["asWanted"], told["steps"][0]["advice"]) == (
        True,
        "UpdateAdvised: this macOS is old",
    )
    host_screen.tell_plan(old, as_json=False)
    screen = host_screen.Screen(MAC, as_json=False)
    screen.hear(StepStarted(STEP, 0))
    screen.hear(StepFinished(STEP, 0, advice="UpdateAdvised: this macOS is old"))
    screen.tell(Report(MAC, {"hostname": 1}, advice=old.advice))
    screen.tell(Report(MAC, {"hostname": 0}, advice=old.advice))
    said = [
        "hostname          as wanted",
        "                  UpdateAdvised: this macOS is old",
    ]
    far = ", as far as it can be: UpdateAdvised"
    assert capsys.readouterr().out.splitlines() == [
        *said,
        f"m1@mac is as wanted{far}; there is nothing to do.",
        *said,
        f"m1@mac is as wanted now{far}; 1 step changed something.",
        f"m1@mac was as wanted already{far}; nothing was changed.",
    ]


@pytest.mark.parametrize(("pending", "code"), [("", 0), ("RebootPending: VMs are not filtered", 1)])
def test_verify_fails_while_something_is_waited_for(
    pending: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(*_: object) -> Plan:
        return Plan(MAC, (PlannedStep(STEP, pending=pending),))

    monkeypatch.setattr("bramley.app.hosts.plan", found)

    assert main.run(["host", "verify", MAC, "-c", "mac.yaml", "-i", "/dev/null/no-key"]) == code


def test_a_line_does_not_begin_behind_the_step_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    screen = host_screen.Screen(MAC, as_json=False)
    with screen.showing():
        screen.hear(StepFinished(STEP, 0, ""))
        screen.hear(StepFinished(STEP, 0, ""))

    between = terminal.getvalue().split("as wanted")[1]
    drawn, cleared, rest = between.rpartition("\x1b[2K")
    assert cleared
    assert "connecting" in drawn
    assert "connecting" not in rest


class AsciiTerminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_a_terminal_that_shows_ascii_only_gets_no_other_sign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", AsciiTerminal(shown, encoding="ascii"))
    monkeypatch.setenv("TERM", "xterm")

    with host_screen.Screen(MAC, as_json=False).showing():
        pass
    sys.stdout.flush()

    assert b"connecting to m1@mac" in shown.getvalue()


def test_who_wants_no_colours_gets_no_faint_letters_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")

    host_screen.tell_facts(MAC, BARE, as_json=False)

    assert "tart" in terminal.getvalue()
    assert "\x1b" not in terminal.getvalue()


def stop_in_the_middle(screen: host_screen.Screen) -> None:
    with screen.showing():
        screen.hear(StepStarted(STEP, 1))
        screen.hear(CommandStarted(STEP, Run(argv=("true",), purpose="do nothing")))
        raise KeyboardInterrupt


def test_who_stops_a_run_is_told_where_it_stands_and_how_to_go_on(capsys: Captured) -> None:
    screen = host_screen.Screen(MAC, as_json=False)
    with pytest.raises(typer.Exit) as raised:
        stop_in_the_middle(screen)

    # Told here, so that nobody tells it a second time, with less.
    assert (raised.value.exit_code, raised.value.__cause__) == (130, None)
    assert capsys.readouterr().err == (
        "bramley: m1@mac: stopped in the step hostname; the same command takes it up again\n"
    )


@pytest.mark.parametrize(
    ("leaves", "changed", "told"),
    [
        (False, 0, "m1@mac was as wanted already; nothing was changed.\n"),
        (False, 2, "m1@mac is as wanted now; 1 step changed something.\n"),
        (True, 0, "m1@mac has nothing to be taken away; nothing was changed.\n"),
        (True, 2, "m1@mac was left; 1 step took something away.\n"),
    ],
)
def test_the_end_says_whether_a_mac_was_made_or_left(
    leaves: bool,
    changed: int,
    told: str,
    capsys: Captured,
) -> None:
    screen = host_screen.Screen(MAC, as_json=False, leaves=leaves)
    screen.tell(Report(MAC, {"hostname": changed}))

    assert capsys.readouterr().out == told


@pytest.mark.parametrize("as_json", [False, True])
def test_a_step_that_was_left_out_is_told_with_what_was_done(
    capsys: Captured, *, as_json: bool
) -> None:
    screen = host_screen.Screen(MAC, as_json=as_json)

    def run() -> None:
        with screen.showing():
            screen.hear(StepSkipped(STEP, "turn FileVault off"))
            screen.hear(StepStarted(Sleep(), 1))
            screen.hear(StepFinished(Sleep(), 1))
            raise UnsupportedHost("m1@mac: step hostname: turn FileVault off")

    with pytest.raises(UnsupportedHost):
        run()

    told = capsys.readouterr().out
    if as_json:
        left_out = {"hostname": "turn FileVault off"}
        expected = {
            "host": MAC,
            "changed": {"sleep": 1},
            "pending": [],
            "advice": [],
            "leftOut": left_out,
        }
        assert json.loads(told) == expected
    else:
        assert told.splitlines()[0] == "hostname          left out: turn FileVault off"


def test_a_password_is_not_asked_for_where_nobody_can_type_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr("bramley.cli.host_connection.TERMINAL", "/dev/null/no-terminal")
    monkeypatch.setattr(sys, "stdin", io.StringIO("guess\n"))

    assert main.run(["host", "prepare", "m1@mac", "-i", "/dev/null/no-key"]) == 2
    assert "m1@mac: there is no terminal to ask for the password on" in capsys.readouterr().err
