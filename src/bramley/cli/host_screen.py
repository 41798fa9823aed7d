"""What a person sees of `bramley host`: facts as a table, a plan as a difference, and each step as it is done.

On a terminal it is coloured and the step under way is shown; elsewhere each step is a plain line, and with JSON everything comes
in one document at the end.
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
from bramley.cli import failing, terminal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from bramley.host.ensuring import Ended, LeftOut, Plan, PlannedStep, Progress, Report
    from bramley.host.overview import Overview

_GOOD, _NEW, _BAD, _FAINT = "green", "yellow", "bold red", "dim"
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_NAME = 18
# What a Mac may well not have; of everything else None says that it could not be found out.
_ABSENT = {"tart": "none", "agent_pid": "not running", "applied": "nothing"}


def tell_facts(target: str, found: Overview, *, as_json: bool) -> None:
    """Print what a Mac is like."""
    facts = asdict(found)
    if as_json:
        _tell_json({"host": target, **{_camel(name): value for name, value in facts.items()}})
        return
    facts["applied"] = ", ".join(facts["applied"]) or None
    for name, value in facts.items():
        said = _ABSENT.get(name, "not known") if value is None else _said(value)
        _tell((f"{name.replace('_', ' '):<22}  ", _FAINT), (said, ""))


def tell_plan(plan: Plan, *, as_json: bool) -> None:
    """Print what would be done."""
    if as_json:
        _tell_json(
            {
                "host": plan.host,
                "asWanted": plan.is_as_wanted,
                "steps": [_step_as_data(one) for one in plan.steps],
            }
        )
        return
    for one in plan.steps:
        _tell_step(one)
    left = sum(bool(one.commands or one.refusal) for one in plan.steps)
    if plan.is_as_wanted:
        far = _as_far(plan.advice)
        _tell((f"{plan.host} is as wanted{far}; there is nothing to do.", _GOOD))
    elif plan.is_empty:
        _tell((f"{_not_yet(plan.host, plan.pending)}; there is nothing to do now.", _NEW))
    else:
        verb = "has" if left == 1 else "have"
        told = f"{plan.host}: {left} of {_steps(len(plan.steps))} {verb} something to do."
        _tell((told, _NEW))


class Screen:
    """Shows how one Mac is made as wanted, or left."""

    def __init__(self, target: str, *, as_json: bool, leaves: bool = False) -> None:
        self._target = target
        self._as_json = as_json
        self._leaves = leaves
        self._console: Console | None = None
        self._status: Status | None = None
        self._step = ""
        self._begun = time.monotonic()
        self._ended: list[Ended] = []
        self._left_out: list[LeftOut] = []

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Show the step under way for as long as this is entered, and tell whoever stops it how to go on."""
        try:
            with self._shown():
                yield
        except UnsupportedHost:
            if self._left_out and self._as_json:
                # What was done is told all the same; the error comes behind it.
                self._tell_document(self._so_far())
            raise
        except KeyboardInterrupt:
            place = f"in the step {self._step}" if self._step else "before the first step"
            typer.echo(
                f"bramley: {self._target}: stopped {place}; the same command takes it up again",
                err=True,
            )
            raise typer.Exit(failing.STOPPED) from None

    @contextmanager
    def _shown(self) -> Iterator[None]:
        if self._as_json or not sys.stdout.isatty():
            yield
            return
        # Lines go through the console of the status, which clears its own line for them.
        self._console = terminal.console()
        first, sign = f"connecting to {self._target}", terminal.turning(self._console)
        with self._console.status(first, spinner=sign) as self._status:
            yield

    def hear(self, progress: Progress) -> None:
        """Show one piece of news."""
        from bramley.host.ensuring import Began, Doing, LeftOut

        match progress:
            case Began():
                self._begun = time.monotonic()
                self._step = progress.step.name
                self._say(f"{progress.step.name}: {progress.step.title}")
            case Doing():
                self._say(f"{progress.step.name}: {progress.command.purpose}")
            case LeftOut():
                self._left_out.append(progress)
                if not self._as_json:
                    self._tell_left_out(progress)
            case _:
                self._ended.append(progress)
                if not self._as_json:
                    self._tell_end(progress)

    def tell(self, report: Report) -> None:
        """Print what was done in all."""
        if self._as_json:
            self._tell_document(report)
            return
        far = _as_far(report.advice)
        count = sum(bool(changes) for changes in report.changed.values())
        if report.pending:
            done = f"{_steps(count)} changed something" if count else "nothing was changed"
            _tell((f"{_not_yet(report.host, report.pending)}; {done}.", _NEW))
        elif not count:
            was = "has nothing to be taken away" if self._leaves else f"was as wanted already{far}"
            _tell((f"{report.host} {was}; nothing was changed.", _GOOD))
        elif self._leaves:
            _tell((f"{report.host} was left; {_steps(count)} took something away.", _GOOD))
        else:
            done = f"{_steps(count)} changed something"
            _tell((f"{report.host} is as wanted now{far}; {done}.", _GOOD))

    def _so_far(self) -> Report:
        from bramley.host.ensuring import Report

        changed = {one.step.name: one.changed for one in self._ended}
        pending = dict.fromkeys(one.pending for one in self._ended if one.pending)
        advice = dict.fromkeys(one.advice for one in self._ended if one.advice)
        return Report(self._target, changed, tuple(pending), tuple(advice))

    def _tell_document(self, report: Report) -> None:
        left_out = {one.step.name: one.refusal for one in self._left_out}
        _tell_json({**asdict(report), "leftOut": left_out})

    def _say(self, text: str) -> None:
        if self._status is not None:
            self._status.update(text)

    def _tell_end(self, ended: Ended) -> None:
        name, changed = ended.step.name, ended.changed
        taken = time.monotonic() - self._begun
        said = f"{changed} done in {taken:.1f} s" if changed else "as wanted"
        name_style = _NEW if changed else _GOOD
        _tell((f"{name:<{_NAME}}", name_style), (said, ""), console=self._console)
        for words in filter(None, (ended.pending, ended.advice)):
            _tell((" " * _NAME + words, _NEW), console=self._console)

    def _tell_left_out(self, progress: LeftOut) -> None:
        told = f"left out: {progress.refusal}"
        _tell((f"{progress.step.name:<{_NAME}}", _BAD), (told, ""), console=self._console)


def _tell_step(one: PlannedStep) -> None:
    from bramley.host import showing

    if one.refusal:
        _tell((f"{one.step.name:<{_NAME}}", _BAD), (f"cannot be done: {one.refusal}", ""))
        return
    count = len(one.commands)
    said = f"{count} to do" if count else "as wanted"
    _tell((f"{one.step.name:<{_NAME}}", _NEW if count else _GOOD), (said, ""))
    for words in filter(None, (one.pending, one.advice)):
        _tell((" " * _NAME + words, _NEW))
    for command in one.commands:
        title = showing.title(command)
        _tell(
            (f"  {command.purpose}", ""),
            (f"  ({title})" if title != command.purpose else "", _FAINT),
        )
        for line in showing.difference(command):
            _tell((f"      {line}", _COLOURS.get(line[:1], _FAINT)))


def _step_as_data(one: PlannedStep) -> dict[str, Any]:
    from bramley.host import showing

    return {
        "name": one.step.name,
        "title": one.step.title,
        "refusal": one.refusal,
        "pending": one.pending,
        "advice": one.advice,
        "commands": [
            {
                "purpose": command.purpose,
                "what": showing.title(command),
                "difference": list(showing.difference(command)),
            }
            for command in one.commands
        ],
    }


def _not_yet(host: str, pending: Sequence[str]) -> str:
    """Say that something is waited for: the reasons alone, since their sentences stand with the steps."""
    return f"{host} is not as wanted yet: {_reasons(pending)}"


def _as_far(advice: Sequence[str]) -> str:
    """Say that something is left to people."""
    return f", as far as it can be: {_reasons(advice)}" if advice else ""


def _reasons(told: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(one.partition(":")[0] for one in told))


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _tell(*parts: tuple[str, str], console: Console | None = None) -> None:
    if not sys.stdout.isatty():
        typer.echo("".join(text for text, _ in parts))
        sys.stdout.flush()
        return
    from rich.text import Text

    (console or terminal.console()).print(Text.assemble(*parts), soft_wrap=True)


def _tell_json(told: dict[str, Any]) -> None:
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(told)).decode())
