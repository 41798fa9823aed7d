"""`bramley`: the commands put together, and failures told in one line.

Exit codes: 0 done, 1 failed, 2 wrong usage or unusable configuration, 70 a bug of ours.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from bramley.cli import agent_access, apiserver, crds, failing, host, sim, up

WIDTH = 100

app = typer.Typer(
    name="bramley",
    help="Run fleets of Apple-silicon Macs on Kubernetes.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or unusable configuration, 70 a bug of ours.",
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


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        app(args=list(arguments), prog_name="bramley")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else failing.FAILED
    except Exception as error:  # noqa: BLE001 - people get a sentence, not a traceback
        return failing.tell("bramley", error)
    return 0


def main() -> None:
    """Run the command line of this process."""
    # Loading leaves hardly any garbage, and looking for it takes a tenth of a start; a server looks for it once it serves.
    gc.disable()
    sys.exit(run(sys.argv[1:]))
