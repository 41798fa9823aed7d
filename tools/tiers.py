"""What each tier of tests needs in addition to Python, whether it is installed, and the command that installs it.

A tier is a folder of `tests/`, or set for a single test by `@pytest.mark.tier(…)`. `tools.prepare` installs what it
may; the tests call `missing_for` and skip, or fail when `CI=true`.
"""

from __future__ import annotations

import functools
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

NAMES = ("unit", "meta", "scenarios", "contract", "process", "cluster", "mutants")


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the operating system that a tier calls, and the Debian package that holds it."""

    name: str
    package: str
    folders: tuple[str, ...] = ()  # patterns of folders that are not on the PATH

    @property
    def path(self) -> Path | None:
        """Return the program on the PATH, else the one in the last of the folders, or None."""
        if on_path := shutil.which(self.name):
            return Path(on_path)
        found = [path for each in self.folders for path in Path("/").glob(f"{each}/{self.name}")]
        return max(found, default=None)

    @property
    def found(self) -> bool:
        """Return whether the program is installed."""
        return self.path is not None


# Makes the certificate of an agent that is given none; macOS and nearly every Debian have it.
OPENSSL = Program("openssl", "openssl")
# The poller in the guests of simulated Macs calls it, and nothing else that a system may lack.
CURL = Program("curl", "curl")
# A simulated Mac's own root, the server that everybody runs, and the reader of rendered shell; a Mac's own are tried on a Mac.
_SIMULATED_MAC = (
    Program("bwrap", "bubblewrap"),
    Program("sshd", "openssh-server"),
    Program("shellcheck", "shellcheck"),
)
# The queue of dispatch for several replicas.
POSTGRES = Program(
    "postgres", "postgresql", ("usr/lib/postgresql/*/bin", "opt/homebrew/opt/postgresql@*/bin")
)
_WITH_AGENTS = frozenset({"contract", "process", "cluster"})


def programs_of(tier: str) -> tuple[Program, ...]:
    """Return the system programs that the tier needs on this kind of machine."""
    needed = [OPENSSL, CURL] if tier in _WITH_AGENTS else []
    if tier in {"contract", "process"}:
        needed.append(POSTGRES)
    if tier == "process" and sys.platform == "linux":
        # Shows in which order a server writes, syncs and answers; macOS has nothing alike.
        needed.append(Program("strace", "strace"))
        needed += _SIMULATED_MAC
    return tuple(needed)


def selected(text: str) -> tuple[str, ...]:
    """Return the tiers that a comma-separated list names, all of them for an empty one."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        raise ValueError(f"TIERS names {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return names or NAMES


@functools.cache
def missing_for(tier: str) -> str:
    """Return what the tier lacks on this machine and how to get it; empty when it can run."""
    lacking = [program for program in programs_of(tier) if not program.found]
    if lacking:
        packages = " ".join(program.package for program in lacking)
        names = ", ".join(program.name for program in lacking)
        return f"{names} missing; run: sudo apt-get install {packages}"
    return _control_plane_missing() if tier == "cluster" else ""


def _control_plane_missing() -> str:
    from tools import kube

    return kube.missing()
