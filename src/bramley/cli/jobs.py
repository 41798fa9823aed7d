"""`bramley jobs`: list, show, cancel, requeue and export jobs, and show the log of a failed one, over HTTP to the dispatch server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from bramley.base.errors import BadConfiguration, NotFound
from bramley.cli import job_output
from bramley.cli.job_options import (
    InsecureHttp,
    JobId,
    Server,
    job_id,
    printable,
    safe_json,
    target,
)
from bramley.cli.options import Context, Kubeconfig, Output, OutputFormat, duration
from bramley.cli.pool_options import Namespace
from bramley.dispatch.jobs import State

if TYPE_CHECKING:
    from bramley.app.jobs_client import JobsClient, Target

T = TypeVar("T")

_LIMIT = 50
_MAX_LIMIT = 500

app = typer.Typer(
    name="jobs",
    help="List, show, cancel, requeue and export GitHub jobs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class ExportFormat(StrEnum):
    """Format of an export."""

    CSV = "csv"
    JSON = "json"


States = Annotated[
    list[State] | None,
    typer.Option("--state", help="Only jobs in this state; may be repeated.", show_default="all"),
]
PoolName = Annotated[
    str, typer.Option("--pool", help="Only jobs of this pool.", metavar="NAME", show_default="all")
]
Account = Annotated[
    str,
    typer.Option(
        "--account",
        help="Only jobs of repositories of this owner.",
        metavar="LOGIN",
        show_default="all",
    ),
]
Limit = Annotated[
    int,
    typer.Option("--limit", min=1, max=_MAX_LIMIT, help="At most so many jobs.", metavar="COUNT"),
]
Before = Annotated[
    str | None,
    typer.Option(
        "--before",
        help="Only jobs with a lower id: the next page.",
        metavar="ID",
        show_default="all",
    ),
]
Since = Annotated[
    str,
    typer.Option(
        "--since",
        help="Jobs that changed since then: a duration such as 24h or 7d, or a time such as 2026-01-31T12:00:00Z.",
        metavar="DURATION|TIME",
    ),
]


@app.command("list")
def list_jobs(  # noqa: PLR0913 - each is one flag
    *,
    state: States = None,
    pool: PoolName = "",
    account: Account = "",
    limit: Limit = _LIMIT,
    before: Before = None,
    server: Server = None,
    insecure_http: InsecureHttp = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputFormat = Output.TEXT,
) -> None:
    """List jobs, the newest first.

    \b
    Examples:
      bramley jobs list
      bramley jobs list --state queued --state running --pool macos
      bramley jobs list --account acme --limit 200 -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    query = [("state", each.value) for each in state or ()]
    query += [(name, text) for name, text in (("pool", pool), ("account", account)) if text]
    query += [("before", str(job_id(before)))] if before else []
    query.append(("limit", str(limit)))
    where = target(server, insecure_http, namespace, kubeconfig, context)
    found = _call(where, lambda client: client.list_jobs(query))
    if output is Output.JSON:
        typer.echo(safe_json({"jobs": found}))
    else:
        job_output.print_jobs(found, now=datetime.now(UTC))


@app.command("show")
def show(
    job: JobId,
    *,
    server: Server = None,
    insecure_http: InsecureHttp = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Show a job: what it is, on which host it runs or ran, and when it reached each stage.

    \b
    Examples:
      bramley jobs show 31415926
      bramley jobs show 31415926 -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    number = job_id(job)
    where = target(server, insecure_http, namespace, kubeconfig, context)
    found = _call(where, lambda client: client.timeline(number))
    if output is Output.JSON:
        typer.echo(safe_json(found))
    else:
        typer.echo("\n".join(job_output.details(found)))


@app.command("cancel")
def cancel(
    job: JobId,
    *,
    server: Server = None,
    insecure_http: InsecureHttp = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Cancel a job in the queue, so that it gets no runner. Its run at GitHub is cancelled at GitHub.

    \b
    Examples:
      bramley jobs cancel 31415926
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    number = job_id(job)
    where = target(server, insecure_http, namespace, kubeconfig, context)
    found = _call(where, lambda client: client.cancel(number))
    typer.echo(f"job/{found.id}: {printable(found.state)}")


@app.command("requeue")
def requeue(
    job: JobId,
    *,
    server: Server = None,
    insecure_http: InsecureHttp = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Return a job that a Pod has to the queue, so that another Pod gets it.

    Dispatch does this itself for a Pod that is gone. Use it for one that hangs before it starts its runner.

    \b
    Examples:
      bramley jobs requeue 31415926
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    number = job_id(job)
    where = target(server, insecure_http, namespace, kubeconfig, context)
    found = _call(where, lambda client: client.requeue(number))
    typer.echo(f"job/{found.id}: {printable(found.state)}")


@app.command("logs")
def logs(
    job: JobId,
    *,
    server: Server = None,
    insecure_http: InsecureHttp = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Print the last lines of runner.log of a failed job's VM, which are kept for 30 days.

    \b
    Examples:
      bramley jobs logs 31415926
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    number = job_id(job)
    where = target(server, insecure_http, namespace, kubeconfig, context)

    async def fetch(client: JobsClient) -> str:
        try:
            return await client.log(number)
        except NotFound as error:
            # The job may be known, and its log not.
            raise BadConfiguration(str(error)) from None

    text = _call(where, fetch)
    typer.echo(printable(text, keep="\n\t").rstrip("\n"))


@app.command("export")
def export(
    *,
    form: Annotated[ExportFormat, typer.Option("--format", help="CSV, or JSON lines.")] = (
        ExportFormat.CSV
    ),
    since: Since = "30d",
    server: Server = None,
    insecure_http: InsecureHttp = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write the timelines of jobs to standard output, one line per job.

    \b
    Examples:
      bramley jobs export > jobs.csv
      bramley jobs export --since 7d --format json > jobs.jsonl
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    start = moment(since, now=datetime.now(UTC))
    where = target(server, insecure_http, namespace, kubeconfig, context)

    async def write() -> None:
        async with connected(where) as client:
            async for part in client.export(form.value, start):
                typer.echo(part, nl=False)

    asyncio.run(write())


def moment(text: str, *, now: datetime) -> datetime:
    """Return the time that `--since` means."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return now - duration(text, option="--since")
    if time.tzinfo is None:
        raise BadConfiguration(
            f"--since {text!r} has no time zone; write it like 2026-01-31T12:00:00Z"
        )
    return time


@asynccontextmanager
async def connected(where: Target) -> AsyncIterator[JobsClient]:
    """Connect to the dispatch server; an unknown job is an error with advice."""
    from bramley.app import jobs_client

    try:
        async with jobs_client.connected(where) as client:
            yield client
    except NotFound as error:
        raise BadConfiguration(f"{error}; bramley jobs list shows the known jobs") from None


def _call(where: Target, call: Callable[[JobsClient], Awaitable[T]]) -> T:
    async def run() -> T:
        async with connected(where) as client:
            return await call(client)

    return asyncio.run(run())
