"""What the commands about jobs print: a table of jobs, and everything about one.

Names, labels and branches come from workflows of others, so every text is made printable, and none is read as markup.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import typer

from bramley.cli import terminal
from bramley.cli.job_options import printable
from bramley.cli.status import plain_lines, short_image

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bramley.dispatch.job_explanation import Explanation
    from bramley.dispatch.job_views import ClaimView, JobView, TimelineView

COLUMNS = ("ID", "STATE", "REPOSITORY", "NAME", "BRANCH", "POOL", "HOST", "WAITED", "RAN", "AGE")
_STYLES = {
    "success": "green",
    "running": "cyan",
    "claimed": "cyan",
    "queued": "yellow",
    "waiting": "yellow",
    "cancelled": "dim",
    "skipped": "dim",
}
_FAILED_STYLE = "red"
# A column of a table; the whole texts are in `bramley jobs show`.
_MAX_CELL = 40
# On a terminal, texts are cut to what fits, down to this width; then these columns are omitted, the first one first.
_CUT, _MIN_CUT = frozenset({"REPOSITORY", "NAME", "BRANCH"}), 10
_OMITTED = ("BRANCH", "POOL", "HOST", "REPOSITORY")
_GAP = 2
_STAGES = {"jit": "JIT handed out", "online": "runner online", "stamped": "Pod labelled"}


def print_jobs(jobs: Sequence[JobView], *, now: datetime) -> None:
    """Print a table of jobs; on a terminal with colours."""
    if not jobs:
        typer.echo("No jobs. Options such as --state select among those of the last 30 days.")
        return
    rows = [row(each, now=now) for each in jobs]
    if sys.stdout.isatty():
        console = terminal.console()
        console.print(_drawn(rows, console.width))
    else:
        typer.echo("\n".join(plain_lines([("Jobs", COLUMNS, rows)])))
    if any(not each.pool and not each.has_ended for each in jobs):
        typer.echo("No pool matches jobs without one; see why with: bramley explain job/ID")


def row(job: JobView, *, now: datetime) -> tuple[str, ...]:
    """Return the cells of one job."""
    end = job.completed_at or now
    cells = (
        str(job.id),
        state(job),
        job.repository,
        job.name,
        job.branch,
        job.pool or "none",
        job.host,
        _between(job.queued_at, job.started_at or end),
        _between(job.started_at, end),
        _between(job.queued_at, now),
    )
    return tuple(_cut(printable(cell)) or "-" for cell in cells)


def state(job: JobView) -> str:
    """Return the state of a job, or how it ended."""
    return job.conclusion or job.state if job.has_ended else job.state


def details(job: TimelineView) -> Iterator[str]:
    """Yield the lines about one job: what it is, where it ran, and its stages."""
    for name, text in _facts(job):
        if text:
            yield f"{name:<10}  {printable(text)}"
    if job.stages:
        yield "Stages:"
        start = job.stages[0].at
        for each in job.stages:
            yield f"  {stage_name(each.stage):<14}  {each.at:%Y-%m-%d %H:%M:%S}  {_offset(each.at - start)}"
    if job.claims:
        yield "Claims:"
        yield from (f"  {printable(_claim(each))}" for each in job.claims)


def stage_name(stage: str) -> str:
    """Return a stage in words."""
    return _STAGES.get(stage, printable(stage))


def explanation(found: Explanation) -> Iterator[str]:
    """Yield the lines of an explanation."""
    yield f"job/{found.job_id}: {printable(found.state)} ({printable(found.reason)})"
    yield f"  {printable(found.message)}"
    if found.details:
        yield "Details:"
        width = max(len(name) for name in found.details)
        for name, value in found.details.items():
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            yield f"  {printable(name):<{width}}  {printable(text)}"


def _facts(job: TimelineView) -> Iterator[tuple[str, str]]:
    commit = f", commit {job.sha[:12]}" if job.sha else ""
    branch = f", branch {job.branch}" if job.branch else ""
    yield "Job", f"{job.id} {job.name}"
    ended = f" ({job.conclusion})" if job.conclusion and job.conclusion != job.state else ""
    yield "State", f"{job.state}{ended}"
    yield "Repository", f"{job.repository}{branch}{commit}"
    yield "Workflow", f"{job.workflow or 'unnamed'}, run {job.run_id}, attempt {job.run_attempt}"
    yield "Labels", ", ".join(job.labels)
    yield "Pool", job.pool or "none"
    yield "Problem", job.problem
    yield "Runner", job.runner_name
    yield "Pod", f"{job.pod}{f' on {job.host}' if job.host else ''}" if job.pod else ""
    yield "Image", short_image(job.image)


def _claim(claim: ClaimView) -> str:
    where = f"{claim.pod}{f' on {claim.host}' if claim.host else ''}"
    if claim.finished_at is None:
        return f"{where} since {claim.claimed_at:%H:%M:%S}"
    return f"{where} from {claim.claimed_at:%H:%M:%S} to {claim.finished_at:%H:%M:%S}: {claim.outcome or 'ended'}"


def _between(start: datetime | None, end: datetime) -> str:
    from bramley.base.explanation import age

    return age(start, end)


def _offset(duration: timedelta) -> str:
    # GitHub's times have whole seconds, so a later stage may seem to be earlier.
    return f"+{max(duration.total_seconds(), 0):.2f} s"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"


def _drawn(rows: Sequence[tuple[str, ...]], width: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", pad_edge=False)
    columns = _fitting(rows, width)
    for column in columns:
        # The id is what other commands need, so it is never cut.
        least = len(rows[0][0]) if column == "ID" else None
        table.add_column(column, no_wrap=column not in _CUT, overflow="ellipsis", min_width=least)
    for cells in rows:
        styles = {"STATE": _STYLES.get(cells[1], _FAILED_STYLE)}
        shown = (each for each in zip(COLUMNS, cells, strict=True) if each[0] in columns)
        texts = [
            Text(cell, styles.get(column, ""), no_wrap=True, overflow="ellipsis")
            for column, cell in shown
        ]
        table.add_row(*texts)
    return table


def _fitting(rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    """Return the columns that a terminal of this width can show."""
    from rich.cells import cell_len

    least = {
        column: min(max(map(cell_len, cells)), _MIN_CUT if column in _CUT else width)
        for column, cells in zip(COLUMNS, zip(COLUMNS, *rows, strict=True), strict=True)
    }
    for column in _OMITTED:
        if sum(least.values()) + _GAP * (len(least) - 1) <= width:
            break
        del least[column]
    return list(least)
