"""`bramley sim`: the simulated peers as programs for people. `bramley sim tart` is the program that simulated Macs call."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from bramley.cli import sim_mac

HOME = Path("~/.bramley/tart")

app = typer.Typer(
    name="sim",
    help="Try the simulated programs by hand.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def sim() -> None:
    """Try the simulated programs by hand."""


@app.command(
    "tart",
    # Everything after the first word is the simulated program's own.
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
            help="Folder of its VMs and images; never that of a real tart.",
            metavar="FOLDER",
        ),
    ] = HOME,
) -> None:
    """Answer as tart does, with VMs that are small processes.

    What images there are, how long things take and what goes wrong is said in sim.json in the folder.

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
