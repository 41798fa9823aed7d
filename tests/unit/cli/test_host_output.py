"""The output of `bramley host`: plain lines, absent and unknown facts, and how to continue after an interrupt."""

from __future__ import annotations

import io
import json
import sys

import pytest
import typer

from bramley.base.errors import UnsupportedHost
from bramley.cli import host_output, main
from bramley.host import removal, sequence
from bramley.host.commands import Reboot, Remove, Run
from bramley.host.drift import Part
from bramley.host.progress import (
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


def test_absent_parts_differ_from_unknown_facts(capsys: Captured) -> None:
    host_output.print_facts(MAC, BARE, as_json=False)

    printed = {line[:24].strip(): line[24:] for line in capsys.readouterr().out.splitlines()}
    assert (printed["tart"], printed["agent pid"], printed["applied"]) == (
        "none",
        "not running",
        "nothing",
    )
    assert printed["free gib"] == printed["password sealed"] == "unknown"


def test_json_facts_have_camel_case_names(capsys: Captured) -> None:
    host_output.print_facts(MAC, BARE, as_json=True)

    printed = json.loads(capsys.readouterr().out)
    assert printed["memoryGib"] == 16
    assert not [name for name in printed if "_" in name]


def test_description_equal_to_the_purpose_is_printed_once(capsys: Captured) -> None:
    commands = (
        Remove(path="/opt/x", purpose="remove /opt/x"),
        Run(argv=("true",), purpose="do nothing"),
    )
    host_output.print_plan(Plan(MAC, (PlannedStep(STEP, commands),)), as_json=False)

    _, first, second, last = capsys.readouterr().out.splitlines()
    assert first == "  remove /opt/x"
    assert second == "  do nothing  (run true)"
    assert last == "m1@mac: 1 of 1 step has something to do."


def test_mac_with_a_pending_reboot_is_not_up_to_date(capsys: Captured) -> None:
    plan = Plan(MAC, (PlannedStep(STEP, pending="RebootPending: VMs are not filtered"),))

    host_output.print_plan(plan, as_json=True)
    assert json.loads(capsys.readouterr().out)["converged"] is False
    host_output.print_plan(plan, as_json=False)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "m1@mac is not up to date yet: RebootPending; there is nothing to do now."
    display = host_output.ProgressDisplay(MAC, as_json=False)
    display.print_report(Report(MAC, {"hostname": 1}, plan.pending))
    display.print_report(Report(MAC, {"hostname": 0}, plan.pending))
    assert capsys.readouterr().out.splitlines() == [
        "m1@mac is not up to date yet: RebootPending; 1 step changed something.",
        "m1@mac is not up to date yet: RebootPending; nothing was changed.",
    ]


def test_mac_with_advice_is_up_to_date_and_the_advice_is_printed(capsys: Captured) -> None:
    plan = Plan(MAC, (PlannedStep(STEP, advice="UpdateAdvised: this macOS is old"),))

    assert plan.is_converged
    host_output.print_plan(plan, as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["converged"], printed["steps"][0]["advice"]) == (
        True,
        "UpdateAdvised: this macOS is old",
    )
    host_output.print_plan(plan, as_json=False)
    display = host_output.ProgressDisplay(MAC, as_json=False)
    display.on_progress(StepStarted(STEP, 0))
    display.on_progress(StepFinished(STEP, 0, advice="UpdateAdvised: this macOS is old"))
    display.print_report(Report(MAC, {"hostname": 1}, advice=plan.advice))
    display.print_report(Report(MAC, {"hostname": 0}, advice=plan.advice))
    lines = [f"{'hostname':<30}up to date", f"{'':<30}UpdateAdvised: this macOS is old"]
    suffix = " except for UpdateAdvised"
    assert capsys.readouterr().out.splitlines() == [
        *lines,
        f"m1@mac is up to date{suffix}; there is nothing to do.",
        *lines,
        f"m1@mac is now up to date{suffix}; 1 step changed something.",
        f"m1@mac was already up to date{suffix}; nothing was changed.",
    ]


@pytest.mark.parametrize(("pending", "code"), [("", 0), ("RebootPending: VMs are not filtered", 1)])
def test_verify_fails_while_something_is_pending(
    pending: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fake_plan(*_: object) -> Plan:
        return Plan(MAC, (PlannedStep(STEP, pending=pending),))

    monkeypatch.setattr("bramley.app.hosts.plan", fake_plan)

    assert main.run(["host", "verify", MAC, "-c", "mac.yaml", "-i", "/dev/null/no-key"]) == code


def test_status_line_is_cleared_before_a_printed_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    display = host_output.ProgressDisplay(MAC, as_json=False)
    with display.status_shown():
        display.on_progress(StepFinished(STEP, 0, ""))
        display.on_progress(StepFinished(STEP, 0, ""))

    between = terminal.getvalue().split("up to date")[1]
    drawn, cleared, rest = between.rpartition("\x1b[2K")
    assert cleared
    assert "connecting" in drawn
    assert "connecting" not in rest


class AsciiTerminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_ascii_terminal_gets_ascii_only(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", AsciiTerminal(buffer, encoding="ascii"))
    monkeypatch.setenv("TERM", "xterm")

    with host_output.ProgressDisplay(MAC, as_json=False).status_shown():
        pass
    sys.stdout.flush()

    assert b"connecting to m1@mac" in buffer.getvalue()


def test_no_color_disables_all_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")

    host_output.print_facts(MAC, BARE, as_json=False)

    assert "tart" in terminal.getvalue()
    assert "\x1b" not in terminal.getvalue()


def interrupt(display: host_output.ProgressDisplay) -> None:
    with display.status_shown():
        display.on_progress(StepStarted(STEP, 1))
        display.on_progress(CommandStarted(STEP, Run(argv=("true",), purpose="do nothing")))
        raise KeyboardInterrupt


def test_interrupted_run_prints_the_step_and_how_to_continue(capsys: Captured) -> None:
    display = host_output.ProgressDisplay(MAC, as_json=False)
    with pytest.raises(typer.Exit) as raised:
        interrupt(display)

    # Exit without a cause, so that the message is not printed a second time.
    assert (raised.value.exit_code, raised.value.__cause__) == (130, None)
    assert capsys.readouterr().err == (
        "bramley: m1@mac: stopped in the step hostname; run the same command again to continue\n"
    )


@pytest.mark.parametrize(
    ("is_removal", "changed", "printed"),
    [
        (False, 0, "m1@mac was already up to date; nothing was changed.\n"),
        (False, 2, "m1@mac is now up to date; 1 step changed something.\n"),
        (True, 0, "m1@mac has nothing to remove; nothing was changed.\n"),
        (True, 2, "m1@mac: 1 step removed something.\n"),
    ],
)
def test_report_of_apply_and_removal(
    is_removal: bool, changed: int, printed: str, capsys: Captured
) -> None:
    display = host_output.ProgressDisplay(MAC, as_json=False, is_removal=is_removal)
    display.print_report(Report(MAC, {"hostname": changed}))

    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("as_json", [False, True])
def test_skipped_step_is_printed_with_the_finished_ones(capsys: Captured, *, as_json: bool) -> None:
    display = host_output.ProgressDisplay(MAC, as_json=as_json)

    def run() -> None:
        with display.status_shown():
            display.on_progress(StepSkipped(STEP, "turn FileVault off"))
            display.on_progress(StepStarted(Sleep(), 1))
            display.on_progress(StepFinished(Sleep(), 1))
            raise UnsupportedHost("m1@mac: step hostname: turn FileVault off")

    with pytest.raises(UnsupportedHost):
        run()

    printed = capsys.readouterr().out
    if as_json:
        skipped = {"hostname": "turn FileVault off"}
        expected = {
            "host": MAC,
            "changed": {"sleep": 1},
            "pending": [],
            "advice": [],
            "reboot": "",
            "skipped": skipped,
        }
        assert json.loads(printed) == expected
    else:
        assert printed.splitlines()[0] == f"{'hostname':<30}skipped: turn FileVault off"


def test_password_prompt_without_a_terminal_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr("bramley.cli.host_connection.TERMINAL", "/dev/null/no-terminal")
    monkeypatch.setattr(sys, "stdin", io.StringIO("guess\n"))

    assert main.run(["host", "prepare", "m1@mac", "-i", "/dev/null/no-key"]) == 2
    assert "m1@mac: there is no terminal to prompt for the password" in capsys.readouterr().err


def test_reason_of_a_reboot_is_printed(capsys: Captured) -> None:
    display = host_output.ProgressDisplay(MAC, as_json=False)

    display.on_progress(CommandStarted(STEP, Reboot(purpose="reboot the Mac, because of a test")))

    assert "reboot the Mac, because of a test" in capsys.readouterr().out


@pytest.mark.parametrize("part", list(Part))
def test_name_of_every_step_is_separated_from_its_text(part: Part, capsys: Captured) -> None:
    removal_step = removal.of_part(part) or STEP
    step = sequence.RetiredPartRemoval(part, removal_step)

    host_output.print_plan(Plan(MAC, (PlannedStep(step),)), as_json=False)

    assert capsys.readouterr().out.startswith(f"{step.name}  ")
