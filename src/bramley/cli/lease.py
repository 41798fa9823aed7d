"""`tart-kubelet lease [--vm NAME]… -- CMD`: run a command while garbage collection on this host is suspended.

CMD replaces this process, so signals, terminal and exit code are its own. It and its children inherit the file descriptor that
holds the lease, which therefore ends with the last of them.
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

The lease ends with the last process that the command started. The exit code is that of the command;
if it cannot be run, 1, 2, 126 or 127, as in a shell.
"""


def run(arguments: Sequence[str]) -> int:
    """Acquire a lease and execute the command; return only on failure."""
    options = _parser().parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        return _report("no command; add one after --", code=2)
    folders = Folders(state=Path(options.state_dir))
    if not folders.lock.exists():
        _report(_no_agent(folders.state), code=0)
    lease = leases.Lease(vms=tuple(options.vm), command=command[0], pid=os.getpid())
    try:
        handle = leases.acquire(folders.leases, lease)
    except OSError as error:
        reason = f"cannot acquire a lease in {folders.leases}: {error.strerror}"
        return _report(
            f"{reason}; run this as the agent's user, or set its folder with {_FLAG}", code=_FAILED
        )
    os.set_inheritable(handle, True)
    return _execute(command)


def _no_agent(state: Path) -> str:
    # A warning, since with a wrong folder the lease would have no effect on the collector.
    return f"no agent has used {state} yet; if yours uses another folder, set it with {_FLAG}"


def _execute(command: list[str]) -> int:
    try:
        os.execvp(command[0], command)  # noqa: S606 - the user's own command, without a shell
    except FileNotFoundError:
        return _report(f"{command[0]}: command not found", code=_NOT_FOUND)
    except OSError as error:
        return _report(f"{command[0]}: {error}", code=_NOT_EXECUTABLE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{agent.NAME} lease",
        description="Run a command while garbage collection of VMs and images on this host is suspended.",
        usage=f"{agent.NAME} lease [--vm NAME]... [--state-dir FOLDER] -- COMMAND",
        epilog=_EXAMPLES,
        # A fixed width, so that docs/reference/cli.md is what users see.
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=100),
    )
    parser.add_argument(
        "--vm",
        action="append",
        default=[],
        metavar="NAME",
        help="protect this VM and all images, repeatable (default: protect every VM and image)",
    )
    parser.add_argument(
        flags.STATE_DIR.name,
        default=os.environ.get(flags.STATE_DIR.env) or flags.STATE_DIR.default,
        metavar="FOLDER",
        help="state folder of the agent (default: %(default)s)",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _report(message: str, *, code: int) -> int:
    print(f"{agent.NAME} lease: {message}", file=sys.stderr)  # noqa: T201 - the output of the program
    return code
