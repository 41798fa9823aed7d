"""`bramley host`: one Mac by hand, over SSH."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bramley.base.errors import BadConfiguration
from bramley.cli import host_screen
from bramley.cli.agent_access import EXPIRES, Expires, Kubeconfig, Output, ServerUrl, Told, duration
from bramley.cli.host_options import Config, DryRun, KeepTart, Only, Rate, ReplaceTart, Skip, Yes
from bramley.cli.host_way import over_ssh, password
from bramley.cli.options import Context

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from bramley.app.hosts import Way, Wish
    from bramley.host.ensuring import Progress, Report

    Act = Callable[[Callable[[Progress], None]], Coroutine[Any, Any, Report]]

DIFFERS = 1

app = typer.Typer(
    name="host",
    help="Look at one Mac, make it a Node, and leave it again, over SSH.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("facts")
@over_ssh
def facts(
    way: Way,
    *,
    output: Told = Output.TEXT,
) -> None:
    """Show what a Mac is like; nothing is changed.

    \b
    Examples:
      bramley host facts m1@10.0.0.5
      bramley host facts m1@10.0.0.5 -i fleet_key -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import hosts

    found = asyncio.run(hosts.facts(way))
    host_screen.tell_facts(way.target, found, as_json=output is Output.JSON)


@app.command("plan")
@over_ssh
def plan(
    way: Way,
    *,
    config: Config,
    only: Only = None,
    skip: Skip = None,
    replace_tart: ReplaceTart = False,
    output: Told = Output.TEXT,
) -> None:
    """Show what is missing on a Mac, step by step, as a difference; nothing is changed.

    \b
    Examples:
      bramley host plan m1@10.0.0.5 -c mac-1.yaml
      bramley host plan m1@10.0.0.5 -c mac-1.yaml --only firewall -o json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    _show_plan(way, _wish(config, only, skip, replace_tart=replace_tart), output)


@app.command("verify")
@over_ssh
def verify(
    way: Way,
    *,
    config: Config,
    only: Only = None,
    skip: Skip = None,
    output: Told = Output.TEXT,
) -> None:
    """Tell whether a Mac is as wanted; exit code 1 if it is not, or not yet. Nothing is changed.

    \b
    Examples:
      bramley host verify m1@10.0.0.5 -c mac-1.yaml && echo fine
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    if not _show_plan(way, _wish(config, only, skip), output):
        raise typer.Exit(DIFFERS)


@app.command("apply")
@over_ssh
def apply(  # noqa: PLR0913 - one parameter a flag
    way: Way,
    *,
    config: Config,
    dry_run: DryRun = False,
    only: Only = None,
    skip: Skip = None,
    replace_tart: ReplaceTart = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    server: ServerUrl = None,
    expires: Expires = EXPIRES,
    megabytes_per_second: Rate = 0,
    output: Told = Output.TEXT,
) -> None:
    """Make a Mac what the file says, step by step; what is as wanted is left alone.

    The agent's identity is made in the cluster of --kubeconfig, unless the file names a kubeconfig. A run that was cut short is
    taken up by the next one.

    \b
    Examples:
      bramley host apply m1@10.0.0.5 -c mac-1.yaml --ask-password
      bramley host apply m1@10.0.0.5 -c mac-1.yaml --dry-run
      bramley host apply m1@10.0.0.5 -c mac-1.yaml --only agent --only agent-job
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import agent_access, hosts

    cluster = agent_access.Cluster(kubeconfig, context)
    more = {"replace_tart": replace_tart, "megabytes_per_second": megabytes_per_second}
    identity = {"cluster": cluster, "server": server, "expires": duration(expires)}
    wish = _wish(config, only, skip, **more, **identity)
    if dry_run:
        _show_plan(way, wish, output)
        return
    _show(lambda hear: hosts.apply(way, wish, hear), way, output)


@app.command("prepare")
@over_ssh
def prepare(
    way: Way,
    *,
    dry_run: DryRun = False,
    only: Only = None,
    skip: Skip = None,
    output: Told = Output.TEXT,
) -> None:
    """Do what needs the user's password, once: sudo without password, and automatic login.

    The password is asked for without echo and checked by the Mac before anything is written. If macOS rejects it for the login,
    this says so and fails.

    \b
    Examples:
      bramley host prepare m1@10.0.0.5
      bramley host prepare m1@10.0.0.5 --password-file ./password
      bramley host prepare m1@10.0.0.5 --only auto-login
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import host_choices, hosts

    known = way.password or password(None, ask=True, target=way.target)
    if known is None:
        raise BadConfiguration("no password was given")
    wanted = host_choices.Preparation(
        password=known, only=tuple(only or ()), skip=tuple(skip or ())
    )
    if dry_run:
        planned = asyncio.run(hosts.preparation(way, wanted))
        host_screen.tell_plan(planned, as_json=output is Output.JSON)
        return
    _show(lambda hear: hosts.prepare(way, wanted, hear), way, output)


@app.command("remove")
@over_ssh
def remove(
    way: Way,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    keep_tart: KeepTart = True,
    only: Only = None,
    skip: Skip = None,
    output: Told = Output.TEXT,
) -> None:
    """Take away from a Mac what Bramley brought, and leave everything else as it is.

    \b
    Examples:
      bramley host remove m1@10.0.0.5 --dry-run
      bramley host remove m1@10.0.0.5 --yes --no-keep-tart
      bramley host remove m1@10.0.0.5 --yes --skip sudo --skip auto-login
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.app import host_choices, hosts

    leaving = host_choices.Leaving(
        keep_tart=keep_tart, only=tuple(only or ()), skip=tuple(skip or ())
    )
    if dry_run:
        planned = asyncio.run(hosts.removal(way, leaving))
        host_screen.tell_plan(planned, as_json=output is Output.JSON)
        return
    if not yes:
        typer.confirm(f"Take Bramley's parts away from {way.target}?", abort=True, err=True)
    _show(lambda hear: hosts.remove(way, leaving, hear), way, output, leaves=True)


def _show(act: Act, way: Way, output: Output, *, leaves: bool = False) -> None:
    """Do something to a Mac, and show how it goes and what was done."""
    screen = host_screen.Screen(way.target, as_json=output is Output.JSON, leaves=leaves)
    with screen.showing():
        report = asyncio.run(act(screen.hear))
    screen.tell(report)


def _show_plan(way: Way, wish: Wish, output: Output) -> bool:
    """Show a plan, and tell whether the Mac is as wanted."""
    from bramley.app import hosts

    planned = asyncio.run(hosts.plan(way, wish))
    host_screen.tell_plan(planned, as_json=output is Output.JSON)
    return planned.is_as_wanted


def _wish(config: Path, only: list[str] | None, skip: list[str] | None, **more: object) -> Wish:
    from bramley.app.hosts import Wish

    return Wish(config=config, only=tuple(only or ()), skip=tuple(skip or ()), **more)  # type: ignore[arg-type]
