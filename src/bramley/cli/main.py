"""`bramley`: runs one command line and reports a failure in one line.

Exit codes: 0 success, 1 failed, 2 invalid usage or configuration, 70 a bug in Bramley, 130 interrupted by Ctrl-C. Commands are
imported by `command_line`, not by this module: Ctrl-C during the imports must not print a traceback.
"""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

WIDTH = 100
STOPPED_BY_CTRL_C = 130


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        print("bramley: stopped by Ctrl-C", file=sys.stderr)  # noqa: T201 - the output of the program
        return STOPPED_BY_CTRL_C


def _run(arguments: Sequence[str]) -> int:
    from bramley.cli import failures

    try:
        command_line()(args=list(arguments), prog_name="bramley")
    except SystemExit as exit_:
        if _is_by_ctrl_c(exit_):
            raise KeyboardInterrupt from None
        return exit_.code if isinstance(exit_.code, int) else failures.FAILED
    except Exception as error:  # noqa: BLE001 - reported as one line, not as a traceback
        return failures.report("bramley", error)
    return 0


def _is_by_ctrl_c(exit_: SystemExit) -> bool:
    """Return whether typer converted Ctrl-C, without a message, into this exit; commands that handle it print their own."""
    context = exit_.__context__
    return context is not None and isinstance(context.__cause__, KeyboardInterrupt)


def command_line() -> typer.Typer:
    """Import all commands and return the program that they form."""
    from bramley.cli import (
        agent_access,
        apiserver,
        crds,
        demo,
        dispatch,
        explain,
        flag_groups,
        host,
        jobs,
        machines,
        rollout,
        runners,
        sim,
        status,
        up,
    )

    program = _program()
    program.command("up", cls=flag_groups.GroupedCommand)(up.up)
    program.command("status")(status.status)
    program.command("explain")(explain.explain)
    program.command("runners")(runners.runners_controller)
    program.command("machines", cls=flag_groups.GroupedCommand)(machines.machines)
    program.command("crds")(crds.crds)
    groups = (dispatch, rollout, jobs, demo, apiserver, agent_access, host, sim)
    for group in groups:
        program.add_typer(group.app)
    return program


def _program() -> typer.Typer:
    """Return the program without commands."""
    import typer

    from bramley.cli import options

    program = typer.Typer(
        name="bramley",
        help=options.bramley.__doc__,
        epilog="Exit codes: 0 success, 1 failed, 2 invalid usage or configuration, 70 a bug in Bramley, 130 interrupted by Ctrl-C.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        # A fixed width, so that docs/reference/cli.md is what users see.
        context_settings={"help_option_names": ["-h", "--help"], "terminal_width": WIDTH},
    )
    program.callback()(options.bramley)
    return program


def main() -> None:
    """Run the command line of this process."""
    # Imports leave hardly any garbage, and collecting it takes a tenth of the start; a server enables it once it serves.
    gc.disable()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As on standard error: a character that the terminal cannot encode must not fail the command.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))
