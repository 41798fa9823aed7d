"""The programs of a simulated Mac besides tart, for real processes: `launchctl`, `sudo`, `killall`, `tailscale`.

They are called as `shim.py ROOT NAME ARGUMENT…` and touch nothing outside ROOT. Only the standard library is imported: each
call is a process of its own, without site-packages.
"""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

PROGRAMS = "bin"
# tart looks for it too: while it is there, nobody is logged in.
NO_SESSION = "tart/.sim/no-session"
# While it is there, a new loginwindow logs nobody in.
NO_LOGIN = "no-login"
KICKS = "kicks"
TAILNET_ADDRESS = "100.64.0.11"
_AS_ROOT = "BRAMLEY_SIM_AS_ROOT"
_MISSING = 1


def launchctl(root: Path, arguments: Sequence[str]) -> int:
    """Tell whether there is a session, or restart loginwindow."""
    from bramley.sim.mac import loginwindow

    is_alive = not (root / NO_SESSION).exists()
    said = loginwindow.launchctl(arguments, is_alive=is_alive, as_root=_AS_ROOT in os.environ)
    if said.kicks:
        _note_kick(root, ["launchctl", *arguments])
        _restart_session(root)
    sys.stdout.writelines(f"{line}\n" for line in said.out)
    sys.stderr.writelines(f"{line}\n" for line in said.err)
    return said.code


def sudo(root: Path, arguments: Sequence[str]) -> int:
    """Run another program of this Mac, and only such a one, as its root."""
    rest = [word for word in arguments if word != "-n"]
    program = root / PROGRAMS / Path(rest[0]).name if rest else root / "none"
    if program.exists():
        os.execve(program, [str(program), *rest[1:]], {**os.environ, _AS_ROOT: "1"})  # noqa: S606 - a program of ours
    sys.stderr.write(f"sudo: {' '.join(rest[:1])}: command not found\n")
    return _MISSING


def killall(root: Path, arguments: Sequence[str]) -> int:
    """Take the signal and do nothing: loginwindow ignores a hang-up."""
    _note_kick(root, ["killall", *arguments])
    return 0


def tailscale(_root: Path, _arguments: Sequence[str]) -> int:
    """Tell this Mac's address in the tailnet."""
    sys.stdout.write(f"{TAILNET_ADDRESS}\n")
    return 0


NAMES: dict[str, Callable[[Path, Sequence[str]], int]] = {
    "launchctl": launchctl,
    "sudo": sudo,
    "killall": killall,
    "tailscale": tailscale,
}


def _note_kick(root: Path, words: Sequence[str]) -> None:
    with (root / KICKS).open("a") as file:
        file.write(" ".join(words) + "\n")


def _restart_session(root: Path) -> None:
    """End the session, and begin a new one if that works by itself on this Mac."""
    no_session = root / NO_SESSION
    if (root / NO_LOGIN).exists():
        no_session.parent.mkdir(parents=True, exist_ok=True)
        no_session.touch()
    else:
        no_session.unlink(missing_ok=True)


def main() -> None:
    """Answer one call."""
    root, name, *arguments = sys.argv[1:]
    sys.exit(NAMES[name](Path(root), arguments))


if __name__ == "__main__":
    # Started by its path: the folder that holds the package is three above ours.
    sys.path.insert(0, str(Path(__file__).absolute().parents[3]))
    main()
