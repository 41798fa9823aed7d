"""The programs of a simulated Mac other than tart, for real processes: `launchctl`, `sudo`, `killall`, `tailscale`.

They are called as `shim.py ROOT NAME ARGUMENT…` and touch nothing outside ROOT. Only the standard library is imported, and
little of it: each call is a process without site-packages, and `pathlib` would double its cost.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

PROGRAMS = "bin"
# While this file exists, no user is logged in; the simulated tart reads it, too.
NO_SESSION = "tart/.sim/no-session"
# While this file exists, a new loginwindow does not log in automatically.
NO_LOGIN = "no-login"
# Has a line for each command that addressed loginwindow.
LOGINWINDOW_COMMANDS = "loginwindow-commands"
TAILNET_ADDRESS = "100.64.0.11"
_AS_ROOT = "BRAMLEY_SIM_AS_ROOT"
_MISSING = 1
LOGINWINDOW = "system/com.apple.loginwindow"
_NO_DOMAIN = 112
_USAGE = 64


class LaunchctlResult(NamedTuple):
    """The result of launchctl."""

    code: int
    out: tuple[str, ...] = ()
    err: tuple[str, ...] = ()
    restarts_loginwindow: bool = False


def run_launchctl(arguments: Sequence[str], *, is_alive: bool, as_root: bool) -> LaunchctlResult:
    """Run `print gui/<uid>` and `kickstart -k system/com.apple.loginwindow`; both need root, as on macOS."""
    match list(arguments):
        case ["print", _] if not as_root:
            return LaunchctlResult(1, err=("Could not print domain: 1: Operation not permitted",))
        case ["print", domain] if is_alive:
            return LaunchctlResult(0, (f"{domain} = {{", "\ttype = login", "\tsession = Aqua", "}"))
        case ["print", domain]:
            message = f"Could not find domain for user gui: {domain.partition('/')[2]}"
            return LaunchctlResult(_NO_DOMAIN, err=("Bad request.", message))
        case ["kickstart", "-k", target] if target == LOGINWINDOW and as_root:
            return LaunchctlResult(0, restarts_loginwindow=True)
        case ["kickstart", *_]:
            return LaunchctlResult(
                1, err=("Could not kickstart service: 1: Operation not permitted",)
            )
    return LaunchctlResult(_USAGE, err=("Unrecognized subcommand or arguments",))


def launchctl(root: str, arguments: Sequence[str]) -> int:
    """Print whether there is a session, or restart loginwindow."""
    is_alive = not os.path.exists(os.path.join(root, NO_SESSION))
    result = run_launchctl(arguments, is_alive=is_alive, as_root=_AS_ROOT in os.environ)
    if result.restarts_loginwindow:
        _record(root, ["launchctl", *arguments])
        _restart_session(root)
    sys.stdout.writelines(f"{line}\n" for line in result.out)
    sys.stderr.writelines(f"{line}\n" for line in result.err)
    return result.code


def sudo(root: str, arguments: Sequence[str]) -> int:
    """Run another program of this Mac, and no other program, as its root."""
    rest = [word for word in arguments if word != "-n"]
    name = os.path.basename(rest[0]) if rest else "none"
    os.environ[_AS_ROOT] = "1"
    if name in NAMES:
        # One of those in this file: a second process would only take time.
        return NAMES[name](root, rest[1:])
    program = os.path.join(root, PROGRAMS, name)
    if os.path.exists(program):
        os.execv(program, [program, *rest[1:]])  # noqa: S606 - a program of ours
    sys.stderr.write(f"sudo: {' '.join(rest[:1])}: command not found\n")
    return _MISSING


def killall(root: str, arguments: Sequence[str]) -> int:
    """Ignore the signal: loginwindow survives SIGHUP."""
    _record(root, ["killall", *arguments])
    return 0


def tailscale(_root: str, _arguments: Sequence[str]) -> int:
    """Print this Mac's address in the tailnet."""
    sys.stdout.write(f"{TAILNET_ADDRESS}\n")
    return 0


NAMES: dict[str, Callable[[str, Sequence[str]], int]] = {
    "launchctl": launchctl,
    "sudo": sudo,
    "killall": killall,
    "tailscale": tailscale,
}


def _record(root: str, argv: Sequence[str]) -> None:
    with open(os.path.join(root, LOGINWINDOW_COMMANDS), "a", encoding="utf-8") as file:
        file.write(" ".join(argv) + "\n")


def _restart_session(root: str) -> None:
    """End the session, and start a new one if automatic login is set up."""
    no_session = os.path.join(root, NO_SESSION)
    if os.path.exists(os.path.join(root, NO_LOGIN)):
        os.makedirs(os.path.dirname(no_session), exist_ok=True)
        with open(no_session, "w", encoding="utf-8"):
            pass
    elif os.path.exists(no_session):
        os.unlink(no_session)


def main() -> None:
    """Run one program."""
    root, name, *arguments = sys.argv[1:]
    sys.exit(NAMES[name](root, arguments))


if __name__ == "__main__":
    main()
