"""A simulated Mac for real processes: a folder with programs that answer like a Mac's, and the folders of its agent.

An agent whose PATH is `programs` finds these and a few harmless tools of the real machine, and none that could reach its
sessions, its loginwindow or its root.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bramley
from bramley.agent import platform
from bramley.agent.platform import system
from bramley.agent.settings import Folders
from bramley.sim.mac import shim
from bramley.sim.mac.settings_file import Script
from bramley.sim.tart import process as tart_process

# What the agent's supervisor and its certificate need, and a person who looks around.
TOOLS = ("sh", "cat", "date", "head", "mkdir", "mv", "openssl", "rm", "sleep", "tail", "wc", "ps")
INTERPRETERS = ("python", "sh", "dash", "bash", "zsh")


def folders(root: Path) -> Folders:
    """Return where the agent and the tart of a simulated Mac keep things."""
    return Folders(
        state=root / "state",
        user_data=root / "userdata",
        vm_logs=root / "vm-logs",
        tart_home=root / "tart",
    )


@dataclass(frozen=True, slots=True)
class MacFolder:
    """One simulated Mac on this machine; it is called as its folder."""

    root: Path

    @property
    def name(self) -> str:
        """Return the name of the Mac."""
        return self.root.name

    @property
    def folders(self) -> Folders:
        """Return where its agent and its tart keep things."""
        return folders(self.root)

    @property
    def programs(self) -> Path:
        """Return the folder that is all of its PATH."""
        return self.root / "bin"

    @property
    def kubeconfig(self) -> Path:
        """Return where its agent's way into the cluster is kept."""
        return self.root / "kubeconfig"

    @property
    def authority(self) -> Path:
        """Return the certificate of those whom its agent lets in."""
        return self.root / "ca.crt"

    @property
    def log(self) -> Path:
        """Return where its agent writes."""
        return self.root / "agent.log"

    def lay_out(self, content: Mapping[str, Any]) -> Script:
        """Make the folder, or bring its programs and its script up to date; what is on its disk stays."""
        for folder in (self.programs, self.folders.tart_home, self.folders.vm_logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tart_process.install_program(
            str(self.programs / "tart"), str(self.folders.tart_home), sys.executable
        )
        for name in shim.NAMES:
            _install(self.programs / name, self._shim(name))
        for tool in TOOLS:
            _link(self.programs / tool)
        return Script(self.folders.tart_home / "sim.json", dict(content))

    def environment(self) -> dict[str, str]:
        """Return the whole environment of its agent: its own programs, its own home, and where our package is."""
        package = Path(bramley.__file__).parents[1]
        return {
            "PATH": str(self.programs),
            "HOME": str(self.root),
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(package),
        }

    def agents(self) -> list[int]:
        """Return the processes that are its agent."""
        state = str(self.folders.state)
        return [pid for pid, argv in self._running() if "--state-dir" in argv and state in argv]

    def vms(self) -> list[int]:
        """Return the processes that hold its VMs; not their supervisors, nor other calls of tart."""
        places = (f"{self.programs}/", f"{self.folders.tart_home}/")
        return [
            pid
            for pid, argv in self._running()
            if _script(argv).startswith(places) and _holds_vm(argv)
        ]

    def processes(self) -> list[int]:
        """Return all processes of this Mac."""
        return [pid for pid, _ in self._running()]

    def _running(self) -> list[tuple[int, tuple[str, ...]]]:
        """Return what runs with a file of this Mac among its arguments; a person's pager or editor is not meant."""
        inside = f"{self.root}/"
        return [
            (each.pid, each.argv)
            for each in platform.current().processes()
            if _is_ours(each.argv) and any(word.startswith(inside) for word in each.argv)
        ]

    def _shim(self, name: str) -> str:
        words = (sys.executable, "-I", "-S", shim.__file__, str(self.root), name)
        return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def _is_ours(argv: tuple[str, ...]) -> bool:
    return argv[0].rpartition("/")[2].lstrip("-").startswith(INTERPRETERS)


def _script(argv: tuple[str, ...]) -> str:
    """Return what an interpreter was told to run."""
    return next((word for word in argv[1:] if not word.startswith("-")), "")


def _holds_vm(argv: tuple[str, ...]) -> bool:
    return system.holds_vm(system.without_interpreter(argv))


def _install(path: Path, content: str) -> None:
    """Write a program whole: another process may be about to start it."""
    written = path.with_name(f".{path.name}.new")
    written.write_text(content)
    written.chmod(0o700)
    written.replace(path)


def _link(path: Path) -> None:
    tool = shutil.which(path.name)
    if tool is not None and not path.exists():
        path.unlink(missing_ok=True)
        path.symlink_to(tool)
