"""The output of `bramley host`: facts as a table, a plan with diffs, and the progress of each step.

On a terminal it is coloured and shows the current step; elsewhere each step is a plain line. With JSON everything is printed as one
document at the end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from bramley.base.errors import UnsupportedHost
from bramley.cli import failures, terminal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from bramley.host.progress import (
        CommandStarted,
        Plan,
        PlannedStep,
        Progress,
        Report,
        StepFinished,
        StepSkipped,
    )
    from bramley.host.report import Overview

_GOOD, _NEW, _BAD, _FAINT = "green", "yellow", "bold red", "dim"
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
# The width of the longest name, that of the removal of a retired part, and two spaces.
_NAME = 30
# What a Mac may lack; None of any other fact means that it is unknown.
_ABSENT = {"tart": "none", "agent_pid": "not running", "applied": "nothing"}


def print_facts(target: str, overview: Overview, *, as_json: bool) -> None:
    """Print an overview of a Mac."""
    facts = asdict(overview)
    if as_json:
        _print_json({"host": target, **{_camel(name): value for name, value in facts.items()}})
        return
    facts["applied"] = ", ".join(facts["applied"]) or None
    for name, value in facts.items():
        text = _ABSENT.get(name, "unknown") if value is None else _display(value)
        _print((f"{name.replace('_', ' '):<22}  ", _FAINT), (text, ""))


def print_plan(plan: Plan, *, as_json: bool) -> None:
    """Print the commands of a plan."""
    if as_json:
        _print_json(
            {
                "host": plan.host,
                "converged": plan.is_converged,
                "steps": [_step_as_data(planned) for planned in plan.steps],
            }
        )
        return
    for planned in plan.steps:
        _print_step(planned)
    if plan.is_converged:
        _print((f"{plan.host} is up to date{_except(plan.advice)}; there is nothing to do.", _GOOD))
    elif plan.is_empty:
        _print((f"{_not_converged(plan.host, plan.pending)}; there is nothing to do now.", _NEW))
    else:
        count = sum(bool(planned.commands or planned.refusal) for planned in plan.steps)
        verb = "has" if count == 1 else "have"
        total = _steps(len(plan.steps))
        _print((f"{plan.host}: {count} of {total} {verb} something to do.", _NEW))


class ProgressDisplay:
    """Shows the progress of a run on one Mac."""

    def __init__(self, target: str, *, as_json: bool, is_removal: bool = False) -> None:
        self._target = target
        self._as_json = as_json
        self._is_removal = is_removal
        self._console: Console | None = None
        self._status: Status | None = None
        self._step = ""
        self._started = time.monotonic()
        self._finished: list[StepFinished] = []
        self._skipped: list[StepSkipped] = []

    @contextmanager
    def status_shown(self) -> Iterator[None]:
        """Show the current step while this context is active; after an interrupt, print how to continue."""
        try:
            with self._status_line():
                yield
        except UnsupportedHost:
            if self._skipped and self._as_json:
                # The completed steps are printed even so; the error follows.
                self._print_document(self._partial_report())
            raise
        except KeyboardInterrupt:
            place = f"in the step {self._step}" if self._step else "before the first step"
            typer.echo(
                f"bramley: {self._target}: stopped {place}; run the same command again to continue",
                err=True,
            )
            raise typer.Exit(failures.STOPPED) from None

    @contextmanager
    def _status_line(self) -> Iterator[None]:
        if self._as_json or not sys.stdout.isatty():
            yield
            return
        # Lines must go through the console of the status, which redraws its own line.
        self._console = terminal.console()
        first, spinner = f"connecting to {self._target}", terminal.spinner(self._console)
        with self._console.status(first, spinner=spinner) as self._status:
            yield

    def on_progress(self, progress: Progress) -> None:
        """Show one progress event."""
        from bramley.host.commands import Reboot
        from bramley.host.progress import CommandStarted, StepSkipped, StepStarted

        match progress:
            case StepStarted():
                self._started = time.monotonic()
                self._step = progress.step.name
                self._set_status(f"{progress.step.name}: {progress.step.title}")
            case CommandStarted():
                self._set_status(f"{progress.step.name}: {progress.command.purpose}")
                # The reason is printed, not only shown: a reboot is the one command that a person at the Mac notices.
                if isinstance(progress.command, Reboot) and not self._as_json:
                    self._print_reboot(progress)
            case StepSkipped():
                self._skipped.append(progress)
                if not self._as_json:
                    self._print_skipped(progress)
            case _:
                self._finished.append(progress)
                if not self._as_json:
                    self._print_finished(progress)

    def print_report(self, report: Report) -> None:
        """Print the result of the run."""
        if self._as_json:
            self._print_document(report)
            return
        suffix = _except(report.advice)
        count = sum(bool(changes) for changes in report.changed.values())
        if report.pending:
            summary = f"{_steps(count)} changed something" if count else "nothing was changed"
            _print((f"{_not_converged(report.host, report.pending)}; {summary}.", _NEW))
        elif not count:
            state = (
                "has nothing to remove" if self._is_removal else f"was already up to date{suffix}"
            )
            _print((f"{report.host} {state}; nothing was changed.", _GOOD))
        elif self._is_removal:
            _print((f"{report.host}: {_steps(count)} removed something.", _GOOD))
        else:
            summary = f"{_steps(count)} changed something"
            _print((f"{report.host} is now up to date{suffix}; {summary}.", _GOOD))

    def _partial_report(self) -> Report:
        from bramley.host.progress import Report

        changed = {result.step.name: result.changed for result in self._finished}
        pending = dict.fromkeys(result.pending for result in self._finished if result.pending)
        advice = dict.fromkeys(result.advice for result in self._finished if result.advice)
        return Report(self._target, changed, tuple(pending), tuple(advice))

    def _print_document(self, report: Report) -> None:
        skipped = {result.step.name: result.refusal for result in self._skipped}
        _print_json({**asdict(report), "skipped": skipped})

    def _set_status(self, text: str) -> None:
        if self._status is not None:
            self._status.update(text)

    def _print_finished(self, finished: StepFinished) -> None:
        name, changed = finished.step.name, finished.changed
        elapsed = time.monotonic() - self._started
        text = f"{changed} done in {elapsed:.1f} s" if changed else "up to date"
        style = _NEW if changed else _GOOD
        _print((f"{name:<{_NAME}}", style), (text, ""), console=self._console)
        for notice in filter(None, (finished.pending, finished.advice)):
            _print((" " * _NAME + notice, _NEW), console=self._console)

    def _print_reboot(self, progress: CommandStarted) -> None:
        text = progress.command.purpose
        _print((f"{progress.step.name:<{_NAME}}", _NEW), (text, ""), console=self._console)

    def _print_skipped(self, progress: StepSkipped) -> None:
        text = f"skipped: {progress.refusal}"
        _print((f"{progress.step.name:<{_NAME}}", _BAD), (text, ""), console=self._console)


def _print_step(planned: PlannedStep) -> None:
    from bramley.host import report

    if planned.refusal:
        _print((f"{planned.step.name:<{_NAME}}", _BAD), (f"cannot be done: {planned.refusal}", ""))
        return
    count = len(planned.commands)
    text = f"{count} to do" if count else "up to date"
    _print((f"{planned.step.name:<{_NAME}}", _NEW if count else _GOOD), (text, ""))
    for notice in filter(None, (planned.pending, planned.advice)):
        _print((" " * _NAME + notice, _NEW))
    for command in planned.commands:
        title = report.describe(command)
        _print(
            (f"  {command.purpose}", ""),
            (f"  ({title})" if title != command.purpose else "", _FAINT),
        )
        for line in report.diff(command):
            _print((f"      {line}", _COLOURS.get(line[:1], _FAINT)))


def _step_as_data(planned: PlannedStep) -> dict[str, Any]:
    from bramley.host import report

    return {
        "name": planned.step.name,
        "title": planned.step.title,
        "refusal": planned.refusal,
        "pending": planned.pending,
        "advice": planned.advice,
        "commands": [
            {
                "purpose": command.purpose,
                "what": report.describe(command),
                "difference": list(report.diff(command)),
            }
            for command in planned.commands
        ],
    }


def _not_converged(host: str, pending: Sequence[str]) -> str:
    """Return that the Mac is not up to date, with the reasons; their sentences are printed with the steps."""
    return f"{host} is not up to date yet: {_reasons(pending)}"


def _except(advice: Sequence[str]) -> str:
    """Return what remains to be done by people."""
    return f" except for {_reasons(advice)}" if advice else ""


def _reasons(notices: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(notice.partition(":")[0] for notice in notices))


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _display(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _print(*parts: tuple[str, str], console: Console | None = None) -> None:
    if not sys.stdout.isatty():
        typer.echo("".join(text for text, _ in parts))
        sys.stdout.flush()
        return
    from rich.text import Text

    (console or terminal.console()).print(Text.assemble(*parts), soft_wrap=True)


def _print_json(document: dict[str, Any]) -> None:
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(document)).decode())
