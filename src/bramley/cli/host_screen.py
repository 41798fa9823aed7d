"""What a person sees of `bramley host`: facts as a table, a plan as a difference, and each step as it is done.

On a terminal it is coloured and the step under way is shown; elsewhere each step is a plain line, and with JSON everything comes
in one document at the end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.status import Status

    from bramley.host.ensuring import Plan, PlannedStep, Progress, Report
    from bramley.host.overview import Overview

_GOOD, _NEW, _BAD, _FAINT = "green", "yellow", "bold red", "dim"
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_NAME = 18


def tell_facts(target: str, found: Overview, *, as_json: bool) -> None:
    """Print what a Mac is like."""
    facts = asdict(found)
    if as_json:
        _tell_json({"host": target, **facts})
        return
    facts["applied"] = ", ".join(facts["applied"]) or None
    for name, value in facts.items():
        _tell((f"{name.replace('_', ' '):<22}  ", _FAINT), (_said(value), ""))


def tell_plan(plan: Plan, *, as_json: bool) -> None:
    """Print what would be done."""
    if as_json:
        _tell_json(
            {
                "host": plan.host,
                "asWanted": plan.is_empty,
                "steps": [_step_as_data(one) for one in plan.steps],
            }
        )
        return
    for one in plan.steps:
        _tell_step(one)
    left = sum(bool(one.commands or one.refusal) for one in plan.steps)
    if plan.is_empty:
        _tell((f"{plan.host} is as wanted; there is nothing to do.", _GOOD))
    else:
        _tell((f"{plan.host}: {left} of {len(plan.steps)} steps have something to do.", _NEW))


class Screen:
    """Shows how one Mac is made as wanted."""

    def __init__(self, target: str, *, as_json: bool) -> None:
        self._target = target
        self._as_json = as_json
        self._status: Status | None = None
        self._begun = time.monotonic()

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Show the step under way for as long as this is entered."""
        if self._as_json or not sys.stdout.isatty():
            yield
            return
        from rich.console import Console

        with Console(highlight=False).status(f"connecting to {self._target}") as self._status:
            yield

    def hear(self, progress: Progress) -> None:
        """Show one piece of news."""
        from bramley.host.ensuring import Began, Doing

        match progress:
            case Began():
                self._begun = time.monotonic()
                self._say(f"{progress.step.name}: {progress.step.title}")
            case Doing():
                self._say(f"{progress.step.name}: {progress.command.purpose}")
            case _:
                if not self._as_json:
                    self._tell_end(progress.step.name, progress.changed, progress.pending)

    def tell(self, report: Report) -> None:
        """Print what was done in all."""
        if self._as_json:
            done = {"host": report.host, "changed": report.changed, "pending": report.pending}
            _tell_json(done)
            return
        if report.is_changed:
            count = sum(bool(changes) for changes in report.changed.values())
            _tell((f"{report.host} is as wanted now; {count} steps changed something.", _GOOD))
        else:
            _tell((f"{report.host} was as wanted already; nothing was changed.", _GOOD))

    def _say(self, text: str) -> None:
        if self._status is not None:
            self._status.update(text)

    def _tell_end(self, name: str, changed: int, pending: str) -> None:
        taken = time.monotonic() - self._begun
        said = f"{changed} done in {taken:.1f} s" if changed else "as wanted"
        _tell((f"{name:<{_NAME}}", _NEW if changed else _GOOD), (said, ""))
        if pending:
            _tell((" " * _NAME + pending, _NEW))


def _tell_step(one: PlannedStep) -> None:
    from bramley.host import showing

    if one.refusal:
        _tell((f"{one.step.name:<{_NAME}}", _BAD), (f"cannot be done: {one.refusal}", ""))
        return
    count = len(one.commands)
    said = f"{count} to do" if count else "as wanted"
    _tell((f"{one.step.name:<{_NAME}}", _NEW if count else _GOOD), (said, ""))
    if one.pending:
        _tell((" " * _NAME + one.pending, _NEW))
    for command in one.commands:
        _tell((f"  {command.purpose}", ""), (f"  ({showing.title(command)})", _FAINT))
        for line in showing.difference(command):
            _tell((f"      {line}", _COLOURS.get(line[:1], _FAINT)))


def _step_as_data(one: PlannedStep) -> dict[str, Any]:
    from bramley.host import showing

    return {
        "name": one.step.name,
        "title": one.step.title,
        "refusal": one.refusal,
        "pending": one.pending,
        "commands": [
            {
                "purpose": command.purpose,
                "what": showing.title(command),
                "difference": list(showing.difference(command)),
            }
            for command in one.commands
        ],
    }


def _said(value: object) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _tell(*parts: tuple[str, str]) -> None:
    if not sys.stdout.isatty():
        typer.echo("".join(text for text, _ in parts))
        sys.stdout.flush()
        return
    from rich.console import Console
    from rich.text import Text

    Console(highlight=False).print(Text.assemble(*parts), soft_wrap=True)


def _tell_json(told: dict[str, Any]) -> None:
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(told)).decode())
