"""`bramley status`: the machines, hosts, pools and rolls of a cluster on one screen."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from bramley.cli import terminal
from bramley.cli.options import Context, Kubeconfig, Output, OutputFormat, to_json
from bramley.cli.pool_options import Watch
from bramley.cli.roll_output import phase

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bramley.app.agent_access import Cluster
    from bramley.app.pool_queries import Fleets, Queries
    from bramley.machines.explanation_facts import AnyMac
    from bramley.runners.explanation.rolls import RollProgress

_INTERVAL_SECONDS = 2.0
_DIGEST_CHARACTERS = 12
_HOST_KEYS = ("name", "fleet", "state", "vms", "images")
_HOST_COLUMNS = ("HOST", *(key.upper() for key in _HOST_KEYS[1:]))
_POOL_COLUMNS = ("POOL", "FLEET", "DESIRED", "READY", "BUSY", "STALE", "PHASE", "IMAGE")
_MACHINE_KEYS = ("name", "fleet", "phase", "step", "host", "why")
_MACHINE_COLUMNS = ("MACHINE", *(key.upper() for key in _MACHINE_KEYS[1:]))
_ROLL_COLUMNS = ("ROLL", "PHASE", "SINCE", "UPDATED", "IN FLIGHT", "STAGED", "WHY")
# A title, the names of the columns, and the rows.
Section = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def status(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    watch: Watch = False,
    output: OutputFormat = Output.TEXT,
) -> None:
    """Show the machines, hosts, pools and rolls of a cluster on one screen.

    \b
    Examples:
      bramley status
      bramley status --watch
      bramley status -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app.agent_access import Cluster

    asyncio.run(_show(Cluster(kubeconfig, context), watch=watch, as_json=output is Output.JSON))


async def _show(cluster: Cluster, *, watch: bool, as_json: bool) -> None:
    from bramley.app import pool_queries

    is_live = watch and not as_json and sys.stdout.isatty()
    async with pool_queries.connected(cluster, None) as queries:
        if is_live:
            from rich.live import Live

            with Live(console=terminal.console(), auto_refresh=False, screen=True) as live:
                while True:
                    shown = _drawn(sections(await _fleets(queries), now=datetime.now(UTC)))
                    live.update(shown, refresh=True)
                    await asyncio.sleep(_INTERVAL_SECONDS)
        while True:
            _print(await _fleets(queries), as_json=as_json)
            if not watch:
                return
            await asyncio.sleep(_INTERVAL_SECONDS)


async def _fleets(queries: Queries) -> Fleets:
    from bramley.app import mac_queries

    return replace(await queries.fleets(), macs=await mac_queries.macs(queries.kube))


def _print(fleets: Fleets, *, as_json: bool) -> None:
    if as_json:
        typer.echo(to_json(as_data(fleets)))
        return
    found = list(sections(fleets, now=datetime.now(UTC)))
    if sys.stdout.isatty():
        terminal.console().print(_drawn(found))
    else:
        typer.echo("\n".join(plain_lines(found)))
    sys.stdout.flush()


def as_data(fleets: Fleets) -> dict[str, Any]:
    """Return machines, hosts, pools and rolls for JSON."""
    machines = [dict(zip(_MACHINE_KEYS, row, strict=True)) for row in _machines(fleets)]
    return {
        **({"machines": machines} if fleets.macs is not None else {}),
        "hosts": [dict(zip(_HOST_KEYS, row, strict=True)) for row in _hosts(fleets)],
        "pools": fleets.progress(),
    }


def sections(fleets: Fleets, *, now: datetime) -> Iterator[Section]:
    """Yield the tables of the screen."""
    progress = fleets.progress()
    if fleets.macs:
        yield "Machines", _MACHINE_COLUMNS, _machines(fleets)
    yield "Hosts", _HOST_COLUMNS, _hosts(fleets)
    yield "Pools", _POOL_COLUMNS, [_pool(each) for each in progress]
    rolling = [each for each in progress if not each.is_done]
    yield "Rolls", _ROLL_COLUMNS, [_roll(each, now) for each in rolling]


def _machines(fleets: Fleets) -> list[tuple[str, ...]]:
    ordered = sorted(fleets.macs or (), key=lambda each: (each.namespace or "", each.name))
    return [_machine(each) for each in ordered]


def _machine(mac: AnyMac) -> tuple[str, ...]:
    from bramley.api import conditions
    from bramley.api.mac_host import MacHost
    from bramley.api.names import conditions as types

    host = mac.spec.address if isinstance(mac, MacHost) else mac.status.server_id
    ready = conditions.find(mac.status.conditions, types.READY)
    return (
        f"{mac.namespace}/{mac.name}",
        mac.spec.fleet_name,
        "Deleting" if mac.deleting else mac.status.phase or "New",
        mac.status.step,
        host,
        "" if ready is None or ready.status == "True" else ready.reason or "",
    )


def _hosts(fleets: Fleets) -> list[tuple[str, ...]]:
    from bramley.api.names import labels
    from bramley.runners.explanation import hosts
    from bramley.runners.hosts import host_of

    found: list[tuple[str, ...]] = []
    for node in sorted(fleets.nodes, key=lambda each: each.name):
        host = host_of(node)
        state = "Ready" if host.is_usable else hosts.state(host)
        vms = sum(pod.spec.node_name == node.name and not _has_ended(pod) for pod in fleets.pods)
        fleet = node.metadata.labels.get(labels.FLEET, "")
        found.append((host.name, fleet, state, f"{vms}/{host.pods}", str(len(node.status.images))))
    return found


def _has_ended(pod: Any) -> bool:
    return pod.status.phase in {"Succeeded", "Failed"}


def _pool(progress: RollProgress) -> tuple[str, ...]:
    return (
        f"{progress.namespace}/{progress.pool}",
        progress.fleet,
        *(str(each) for each in (progress.desired, progress.ready, progress.busy, progress.stale)),
        phase(progress),
        short_image(progress.target),
    )


def _roll(progress: RollProgress, now: datetime) -> tuple[str, ...]:
    from bramley.base.explanation import age

    return (
        f"{progress.namespace}/{progress.pool}",
        phase(progress),
        age(progress.started_at, now),
        f"{progress.updated}/{progress.replicas}",
        f"{progress.in_flight}/{progress.cap}",
        f"{progress.staged_hosts}/{progress.hosts}",
        progress.message,
    )


def short_image(image: str) -> str:
    """Return an image with a shortened digest."""
    name, at, digest = image.partition("@sha256:")
    return f"{name}{at}{digest[:_DIGEST_CHARACTERS]}"


def plain_lines(found: Sequence[Section]) -> Iterator[str]:
    """Yield the tables as plain text; one without rows says so."""
    for number, (title, columns, rows) in enumerate(found):
        if number:
            yield ""
        if not rows:
            yield f"{title}: none"
            continue
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        for row in (columns, *rows):
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            yield "   ".join(cells).rstrip()


def _drawn(found: Sequence[Section] | Iterator[Section]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = []
    for title, columns, rows in found:
        table = Table(title=title, title_justify="left", box=None, header_style="dim")
        for column in columns:
            table.add_column(column, no_wrap=column != "WHY")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        parts += [table if rows else Text(f"{title}: none", "dim"), Text("")]
    return Group(*parts)
