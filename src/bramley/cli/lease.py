"""`tart-kubelet lease [--vm NAME]… -- CMD`: run a bake or a push while the collector keeps away.

The lease lasts as long as anything that CMD started still lives: they inherit the descriptor that holds it. We are gone by then:
CMD takes our place, so signals, terminal and exit code are its own.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bramley.agent.collecting import leases
from bramley.agent.settings import Folders
from bramley.api.names import agent, flags

_NOT_FOUND, _NOT_EXECUTABLE, _FAILED = 127, 126, 1


def run(arguments: Sequence[str]) -> int:
    """Take a lease and become the command; return only if that fails."""
    given = _parser().parse_args(arguments)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        return _tell("name a command after --", code=2)
    folder = Folders(state=Path(given.state_dir)).leases
    lease = leases.Lease(vms=tuple(given.vm), command=command[0], pid=os.getpid())
    try:
        handle = leases.take(folder, lease)
    except OSError as error:
        return _tell(f"no lease can be taken in {folder}: {error}", code=_FAILED)
    os.set_inheritable(handle, True)
    return _become(command)


def _become(command: list[str]) -> int:
    try:
        os.execvp(command[0], command)  # noqa: S606 - the user's own command, without a shell
    except FileNotFoundError:
        return _tell(f"{command[0]}: there is no such command", code=_NOT_FOUND)
    except OSError as error:
        return _tell(f"{command[0]}: {error}", code=_NOT_EXECUTABLE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{agent.NAME} lease",
        description="Run a command while nothing that it needs is garbage collected on this host.",
        # One width everywhere, so that docs/reference/cli.md is what people see.
        formatter_class=partial(argparse.HelpFormatter, width=100),
    )
    parser.add_argument(
        "--vm",
        action="append",
        default=[],
        metavar="NAME",
        help="a VM that must stay, and with it all images; without any, nothing at all is collected",
    )
    parser.add_argument(
        flags.STATE_DIR.name,
        default=os.environ.get(flags.STATE_DIR.env) or flags.STATE_DIR.default,
        metavar="FOLDER",
        help="the agent's folder (default: %(default)s)",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD")
    return parser


def _tell(message: str, *, code: int) -> int:
    print(f"{agent.NAME} lease: {message}", file=sys.stderr)  # noqa: T201 - people asked for it
    return code
