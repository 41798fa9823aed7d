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

from bramley.agent.gc import leases
from bramley.agent.settings import Folders
from bramley.api.names import agent, flags

_FLAG = flags.STATE_DIR.name
_NOT_FOUND, _NOT_EXECUTABLE, _FAILED = 127, 126, 1


_EXAMPLES = f"""\
Examples:
  {agent.NAME} lease -- tart push my-vm ghcr.io/example/my-vm:latest
  {agent.NAME} lease --vm my-vm -- packer build my-vm.pkr.hcl

The lease ends with the last process that the command started. The exit code is the command's own;
without a command that can be run it is 1, 2, 126 or 127, as a shell's.
"""


def run(arguments: Sequence[str]) -> int:
    """Take a lease and become the command; return only if that fails."""
    given = _parser().parse_args(arguments)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        return _tell("name a command after --", code=2)
    folders = Folders(state=Path(given.state_dir))
    if not folders.lock.exists():
        _tell(_no_agent(folders.state), code=0)
    lease = leases.Lease(vms=tuple(given.vm), command=command[0], pid=os.getpid())
    try:
        handle = leases.take(folders.leases, lease)
    except OSError as error:
        why = f"no lease can be taken in {folders.leases}: {error.strerror}"
        return _tell(
            f"{why}; run this as the agent's user, or give its folder with {_FLAG}", code=_FAILED
        )
    os.set_inheritable(handle, True)
    return _become(command)


def _no_agent(state: Path) -> str:
    # Nobody would notice a wrong folder until the collector has deleted what was to stay.
    return f"no agent has run with {state} yet; if yours has another folder, give it with {_FLAG}"


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
        usage=f"{agent.NAME} lease [--vm NAME]... [--state-dir FOLDER] -- COMMAND",
        epilog=_EXAMPLES,
        # One width everywhere, so that docs/reference/cli.md is what people see.
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=100),
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
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _tell(message: str, *, code: int) -> int:
    print(f"{agent.NAME} lease: {message}", file=sys.stderr)  # noqa: T201 - people asked for it
    return code
