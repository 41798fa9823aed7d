"""`bramley sim`: run the simulated programs by hand. Simulated Macs call `bramley sim tart`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from bramley.cli import sim_github, sim_mac, sim_scaleway

HOME = Path("~/.bramley/tart")

app = typer.Typer(
    name="sim",
    help="Run simulated programs by hand.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def sim() -> None:
    """Run simulated programs by hand."""


@app.command(
    "tart",
    # All further arguments are those of the simulated program.
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    },
)
def tart(
    context: typer.Context,
    *,
    home: Annotated[
        Path,
        typer.Option(
            "--home",
            envvar="TART_HOME",
            help="Folder of simulated VMs and images; not that of a real tart.",
            metavar="FOLDER",
        ),
    ] = HOME,
) -> None:
    """Run a simulated tart, whose VMs are small processes.

    The file sim.json in its folder configures images, timings and faults.

    \b
    Examples:
      bramley sim tart --help
      bramley sim tart help
      bramley sim tart create --linux one
      bramley sim tart list --format json
    """  # noqa: D301 - click keeps the lines of a paragraph that starts so
    from bramley.sim.tart import process

    os.environ["TART_HOME"] = str(home.expanduser().absolute())
    raise typer.Exit(process.run(context.args or ["help"]))


app.command("mac")(sim_mac.mac)
app.command("github")(sim_github.github)
app.command("scaleway")(sim_scaleway.scaleway)
