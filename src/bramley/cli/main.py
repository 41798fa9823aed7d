"""`bramley`: one command line, run, and failures told in one line.

Exit codes: 0 done, 1 failed, 2 wrong usage or unusable configuration, 70 a bug of ours, 130 stopped by Ctrl-C. Nothing is loaded
before `run`: whoever presses Ctrl-C in the first moment would be shown where in the loading that was.
"""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        print("bramley: stopped by Ctrl-C", file=sys.stderr)  # noqa: T201 - this is where people look
        return 130


def _run(arguments: Sequence[str]) -> int:
    from bramley.cli import commands, failing

    try:
        commands.app(args=list(arguments), prog_name="bramley")
    except SystemExit as done:
        if _is_by_ctrl_c(done):
            raise KeyboardInterrupt from None
        return done.code if isinstance(done.code, int) else failing.FAILED
    except Exception as error:  # noqa: BLE001 - people get a sentence, not a traceback
        return failing.tell("bramley", error)
    return 0


def _is_by_ctrl_c(done: SystemExit) -> bool:
    """Tell whether typer heard Ctrl-C, of which it says nothing; a command that heard it itself has told more."""
    ended = done.__context__
    return ended is not None and isinstance(ended.__cause__, KeyboardInterrupt)


def main() -> None:
    """Run the command line of this process."""
    # Loading leaves hardly any garbage, and looking for it takes a tenth of a start; a server looks for it once it serves.
    gc.disable()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As standard error does by itself: a letter that a terminal has not got is no reason to fail.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))
