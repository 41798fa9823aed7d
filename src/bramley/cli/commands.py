"""`bramley`: its commands put together. Loading them takes a moment, so only what runs them loads this."""

from __future__ import annotations

from typing import Annotated

import typer

from bramley.cli import agent_access, apiserver, crds, host, sim, up

WIDTH = 100

app = typer.Typer(
    name="bramley",
    help="Run fleets of Apple-silicon Macs on Kubernetes.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or unusable configuration, 70 a bug of ours, 130 stopped by Ctrl-C.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    # One width everywhere, so that docs/reference/cli.md is what people see.
    context_settings={"help_option_names": ["-h", "--help"], "terminal_width": WIDTH},
)
app.command("up")(up.up)
app.command("crds")(crds.crds)
app.add_typer(apiserver.app)
app.add_typer(agent_access.app)
app.add_typer(host.app)
app.add_typer(sim.app)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        from importlib.metadata import version

        typer.echo(f"bramley {version('bramley')}")
        raise typer.Exit


@app.callback()
def bramley(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Run fleets of Apple-silicon Macs on Kubernetes."""
