"""`bramley explain`: what a pool, Pod, job or Mac waits for, since when, on which host, and what happens next."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from bramley.base.errors import BadConfiguration
from bramley.cli import job_options
from bramley.cli.job_options import JOB_KINDS, InsecureHttp, Server
from bramley.cli.options import Context, Kubeconfig, Output, OutputFormat, to_json
from bramley.cli.pool_options import (
    MAC_HOST_KINDS,
    MACHINE_KINDS,
    POD_KINDS,
    POOL_KINDS,
    Namespace,
)

if TYPE_CHECKING:
    from bramley.app.agent_access import Cluster
    from bramley.app.jobs_client import Target
    from bramley.base.explanation import Explanation, HostNote, PodNote
    from bramley.dispatch.job_explanation import Explanation as JobExplanation

_CLUSTER_KINDS = POOL_KINDS | POD_KINDS | MACHINE_KINDS | MAC_HOST_KINDS
Subject = Annotated[
    str,
    typer.Argument(
        help="What to explain: job/ID, pool/NAME, pod/NAME, machine/NAME or machost/NAME.",
        metavar="KIND/NAME",
    ),
]


def explain(
    subject: Subject,
    *,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    server: Server = None,
    insecure_http: InsecureHttp = False,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Explain what a pool, Pod, job or Mac waits for, since when, on which host, and what happens next.

    \b
    Examples:
      bramley explain pool/macos
      bramley explain job/31415926
      bramley explain pod/macos-runner-04a9d639 -n tuist-runners
      bramley explain machine/fleet-a-x7k2p -n default
      bramley explain pool/macos -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app.agent_access import Cluster

    kind, _, name = subject.partition("/")
    if name and kind in JOB_KINDS:
        where = job_options.target(server, insecure_http, namespace, kubeconfig, context)
        _explain_job(job_options.job_id(name), where, as_json=output is Output.JSON)
        return
    if not name or kind not in _CLUSTER_KINDS:
        raise BadConfiguration(
            f"{subject!r} cannot be explained; write it as job/ID, pool/NAME, pod/NAME, machine/NAME or machost/NAME"
        )
    now = datetime.now(UTC)
    explanation = asyncio.run(_fetch(kind, name, Cluster(kubeconfig, context), namespace, now=now))
    if output is Output.JSON:
        typer.echo(to_json(explanation))
    else:
        typer.echo("\n".join(lines(explanation, now=now)))


def _explain_job(number: int, where: Target, *, as_json: bool) -> None:
    from bramley.cli import job_output, jobs

    async def fetch() -> JobExplanation:
        async with jobs.connected(where) as client:
            return await client.explanation(number)

    found = asyncio.run(fetch())
    if as_json:
        typer.echo(job_options.safe_json(found))
    else:
        typer.echo("\n".join(job_output.explanation(found)))


async def _fetch(
    kind: str, name: str, cluster: Cluster, namespace: str | None, *, now: datetime
) -> Explanation:
    from bramley.app import mac_queries, pool_queries

    async with pool_queries.connected(cluster, namespace) as queries:
        if kind in MACHINE_KINDS:
            return await mac_queries.explain_machine(queries, name, now=now)
        if kind in MAC_HOST_KINDS:
            return await mac_queries.explain_mac_host(queries, name, now=now)
        if kind in POOL_KINDS:
            return await queries.explain_pool(name, now=now)
        return await queries.explain_pod(name, now=now)


def lines(explanation: Explanation, *, now: datetime) -> Iterator[str]:
    """Yield the lines of an explanation."""
    from bramley.base.explanation import age

    since = age(explanation.since, now)
    yield f"{explanation.subject}: {explanation.state}{f' for {since}' if since else ''}"
    yield f"  {explanation.summary}"
    yield from _section("Waits for", explanation.waits_for)
    yield from _section("Next", (explanation.next,) if explanation.next else ())
    problems = (
        f"{each.type}={each.status} for {age(each.since, now)}: {each.message or each.reason}"
        for each in explanation.problems
    )
    yield from _section("Problems", tuple(problems))
    yield from _section("Notes", explanation.notes)
    yield from _section("Pods", tuple(_pod(each, now) for each in explanation.pods))
    yield from _section("Hosts", tuple(_host(each) for each in explanation.hosts))
    events = (
        f"{age(each.last_at, now):>8}  {each.reason}: {each.message}" for each in explanation.events
    )
    yield from _section("Events", tuple(events))


def _section(title: str, texts: tuple[str, ...]) -> Iterator[str]:
    if texts:
        yield f"{title}:"
        yield from (f"  {text}" for text in texts)


def _pod(note: PodNote, now: datetime) -> str:
    from bramley.base.explanation import age

    where = f" on {note.node}" if note.node else ""
    since = age(note.since, now)
    return f"{note.name}{where} {note.state}{f' ({since})' if since else ''}"


def _host(note: HostNote) -> str:
    image = f"; {note.image}" if note.image else ""
    slots = f"; {note.free} of {note.slots} slots free" if note.slots else ""
    return f"{note.name} {note.state}{image}{slots}"
