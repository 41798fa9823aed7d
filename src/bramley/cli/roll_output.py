"""The output of `bramley rollout status`: one table, or the progress until the roll ends.

On a terminal the progress is a table with a bar that is redrawn; elsewhere each change is a plain line.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from bramley.cli import terminal

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bramley.runners.explanation.rolls import RollProgress

_STYLES = {"Idle": "green", "Rejected": "bold red", "Paused": "yellow"}
_BAR_WIDTH = 40


def show(progress: RollProgress, *, now: datetime) -> None:
    """Print the state of a roll as a table."""
    for name, text in rows(progress, now=now):
        typer.echo(f"{name:<10}  {text}")


async def follow(states: AsyncIterator[RollProgress]) -> RollProgress | None:
    """Show the progress until there is no more, and return the last state."""
    return await (_follow_live(states) if sys.stdout.isatty() else _follow_plainly(states))


def rows(progress: RollProgress, *, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield the lines of the table: a name and a text."""
    from bramley.base.explanation import age

    since = age(progress.started_at, now)
    yield "Pool", f"{progress.namespace}/{progress.pool}"
    yield "Phase", f"{phase(progress)}{f' for {since}' if since else ''}"
    yield "Target", progress.target
    if progress.last_good and progress.last_good != progress.target:
        yield "Last good", progress.last_good
    if progress.rejected:
        yield "Rejected", f"{progress.rejected} ({progress.reason})"
        yield "Why", progress.message
    elif not progress.is_done and progress.message:
        yield "Why", progress.message
    yield "Hosts", f"{progress.staged_hosts} of {progress.hosts} have the image"
    yield "Progress", _counts(progress)
    yield (
        "Runners",
        f"{progress.desired} desired, {progress.ready} ready, {progress.busy} busy, {progress.stale} stale",
    )


def phase(progress: RollProgress) -> str:
    """Return the phase, or that the controller has not acted on the last change."""
    return progress.phase or "New" if progress.is_observed else "Waiting for the controller"


def _counts(progress: RollProgress) -> str:
    return (
        f"{progress.updated} of {progress.replicas} updated, {progress.in_flight} of at most "
        f"{progress.cap} in flight"
    )


async def _follow_plainly(states: AsyncIterator[RollProgress]) -> RollProgress | None:
    last, printed = None, ""
    async for last in states:
        line = (
            f"{phase(last)}: {_counts(last)}, {last.ready} ready, "
            f"{last.staged_hosts} of {last.hosts} hosts have the image"
        )
        if line != printed:
            typer.echo(f"{datetime.now(UTC):%H:%M:%S}  {line}")
            sys.stdout.flush()
        printed = line
    if last is not None:
        typer.echo(result(last))
    return last


def result(progress: RollProgress) -> str:
    """Return how a roll has ended."""
    if progress.is_rejected:
        return f"{progress.reason}: {progress.message}"
    return f"Rolled out: every runner has image {progress.target}"


async def _follow_live(states: AsyncIterator[RollProgress]) -> RollProgress | None:
    from rich.live import Live

    console, last = terminal.console(), None
    with Live(console=console, auto_refresh=False) as live:
        async for last in states:
            live.update(_drawn(last), refresh=True)
    if last is not None:
        console.print(result(last), style="bold red" if last.is_rejected else "bold green")
    return last


def _drawn(progress: RollProgress) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for name, text in rows(progress, now=datetime.now(UTC)):
        style = _STYLES.get(progress.phase, "cyan") if name == "Phase" else ""
        table.add_row(Text(name, "dim"), Text(text, style))
    bar = ProgressBar(total=max(1, progress.replicas), completed=progress.updated, width=_BAR_WIDTH)
    table.add_row(Text(""), bar)
    return table
