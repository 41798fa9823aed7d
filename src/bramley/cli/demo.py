"""`bramley demo job`: queue a job at the simulated GitHub of `bramley up` and follow it to its end, one line per stage."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from bramley.api.names import dispatch, runners
from bramley.base.errors import NotFound, TimedOut, Unavailable
from bramley.cli import failures, job_options, terminal
from bramley.cli.job_options import InsecureHttp, Server, printable, safe_json
from bramley.cli.options import Context, Kubeconfig, Output, OutputFormat, duration
from bramley.cli.pool_options import Namespace

if TYPE_CHECKING:
    from bramley.app.jobs_client import SampleJob, Target
    from bramley.dispatch.job_views import TimelineView

REPOSITORY = "acme/app"
_NAME = "demo"
_INTERVAL_SECONDS = 0.2
# The server's own times, with milliseconds; those of GitHub have whole seconds.
_PRECISE = frozenset({"claimed", "jit", "online"})
_STYLES = {"queued": "yellow", "finished": "bold"}

app = typer.Typer(
    name="demo",
    help="Try a cluster with a simulated GitHub.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Labels = Annotated[
    list[str],
    typer.Option("--label", help="A label of runs-on; may be repeated.", metavar="LABEL"),
]
Repository = Annotated[
    str,
    typer.Option(
        "--repository", help="A repository of the simulated GitHub.", metavar="OWNER/NAME"
    ),
]
Seconds = Annotated[
    float,
    typer.Option("--seconds", min=0, max=3600, help="How long the job runs.", metavar="SECONDS"),
]
Timeout = Annotated[
    str,
    typer.Option("--timeout", help="Give up after so long, such as 30s or 2m.", metavar="DURATION"),
]


class Timelines(Protocol):
    """Returns timelines of jobs; NotFound if a job is not known, Unavailable if the server does not answer."""

    async def timeline(self, job_id: int) -> TimelineView:
        """Return everything that happened to a job."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """A stage that the job has reached, and the time since it was queued."""

    stage: str
    offset: timedelta
    text: str


@app.callback()
def demo() -> None:
    """Try a cluster with a simulated GitHub."""


@app.command("job")
def job(  # noqa: PLR0913 - each is one flag
    *,
    label: Labels = [runners.SAMPLE_DISPATCH_LABEL],  # noqa: B006 - typer copies it
    repository: Repository = REPOSITORY,
    seconds: Seconds = 3.0,
    timeout: Timeout = "2m",
    server: Server = None,
    insecure_http: InsecureHttp = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Queue a job at the simulated GitHub and follow it to its end, with one line per stage.

    \b
    Examples:
      bramley demo job
      bramley demo job --seconds 10 --label tuist-macos --label ARM64
      bramley demo job -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app.jobs_client import SampleJob

    where = job_options.target(server, insecure_http, namespace, kubeconfig, context)
    limit = duration(timeout, option="--timeout")
    sample = SampleJob(repository, tuple(label), seconds, _NAME)
    last = asyncio.run(_run(where, sample, limit, as_json=output is Output.JSON))
    if last.conclusion != "success":
        raise typer.Exit(failures.FAILED)


async def _run(
    where: Target, sample: SampleJob, limit: timedelta, *, as_json: bool
) -> TimelineView:
    from bramley.app import jobs_client

    github = await jobs_client.published(where, dispatch.GITHUB_URL_KEY)
    async with jobs_client.connected(where) as client:
        following = Following(client, limit, queued_at=datetime.now(UTC))
        number = await jobs_client.queue_sample_job(github, sample)
        async for line in following.lines(number):
            if not as_json:
                _print(line)
    last = following.last
    if last is None:
        raise TimedOut(f"job {number} was not seen")
    if as_json:
        typer.echo(safe_json(last))
    elif last.conclusion != "success":
        typer.echo(f"See its log with: bramley jobs logs {number}")
    return last


@dataclass(slots=True)
class Following:
    """Follows one job, which was queued now, until it ends."""

    timelines: Timelines
    limit: timedelta
    queued_at: datetime
    last: TimelineView | None = None
    _seen: set[tuple[str, datetime]] = field(default_factory=set)
    _started: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    _offset: timedelta = timedelta()

    async def lines(self, number: int) -> AsyncIterator[Line]:
        """Yield a line for each stage, when the job reaches it; raise TimedOut after the limit."""
        yield self._line("queued", None, f"queued as job {number}")
        while True:
            view = await self._find(number)
            if view is not None:
                self.last = view
                for line in self._news(view):
                    yield line
                if view.has_ended:
                    return
            if self._elapsed() >= self.limit:
                raise self._timed_out(number)
            await asyncio.sleep(_INTERVAL_SECONDS)

    async def _find(self, number: int) -> TimelineView | None:
        try:
            return await self.timelines.timeline(number)
        except (NotFound, Unavailable):
            # Its webhook has not arrived yet, or the server restarts.
            return None

    def _news(self, view: TimelineView) -> Iterator[Line]:
        for claim in view.claims:
            end = claim.finished_at
            if end is not None and not view.has_ended and self._is_new("given back", end):
                outcome = claim.outcome or "no reason"
                yield self._line("given back", end, f"given back by Pod {claim.pod}: {outcome}")
        is_started = any(stage == "started" for stage, _ in self._seen)
        for stage in view.stages:
            text = _text(stage.stage, view)
            # GitHub may report the start before the runner is seen online.
            is_late = is_started and stage.stage == "online"
            if text and not is_late and self._is_new(stage.stage, stage.at):
                yield self._line(stage.stage, stage.at, text)

    def _is_new(self, stage: str, at: datetime) -> bool:
        known = (stage, at) in self._seen
        self._seen.add((stage, at))
        return not known

    def _line(self, stage: str, at: datetime | None, text: str) -> Line:
        elapsed = self._elapsed()
        exact = at - self.queued_at if at is not None and stage in _PRECISE else elapsed
        # A server whose clock differs from ours counts by when we saw the stage; no line is before the one above it.
        offset = exact if timedelta() <= exact <= elapsed else elapsed
        self._offset = max(self._offset, offset)
        return Line(stage, self._offset, printable(text))

    def _elapsed(self) -> timedelta:
        return timedelta(seconds=asyncio.get_running_loop().time() - self._started)

    def _timed_out(self, number: int) -> TimedOut:
        seconds = self.limit.total_seconds()
        if self.last is None:
            return TimedOut(
                f"the dispatch server did not know job {number} within {seconds:g} s; check that it runs and gets webhooks"
            )
        return TimedOut(
            f"job {number} is {printable(self.last.state)} after {seconds:g} s; bramley explain job/{number} shows why"
        )


def _text(stage: str, view: TimelineView) -> str:
    """Return the line of a stage; empty if it has none."""
    mac = f" on {view.host}" if view.host else ""
    texts = {
        "claimed": f"claimed by Pod {view.pod}{mac}",
        "jit": "JIT config handed out",
        "online": f"runner {view.runner_name} online",
        "started": "started",
        "finished": f"finished: {view.conclusion or view.state}",
    }
    return texts.get(stage, "")


def _print(line: Line) -> None:
    offset = f"{line.offset.total_seconds():8.3f} s  "
    if not sys.stdout.isatty():
        typer.echo(f"{offset}{line.text}")
        sys.stdout.flush()
        return
    from rich.text import Text

    style = _STYLES.get(line.stage, "cyan")
    if line.stage == "finished":
        style = "bold green" if line.text.endswith(": success") else "bold red"
    text = Text.assemble((offset, "dim"), (line.text, style))
    terminal.console().print(text, soft_wrap=True)
