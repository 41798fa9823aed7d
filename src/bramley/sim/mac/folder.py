"""A simulated Mac for real processes: a folder with programs that behave like a Mac's, and the folders of its agent.

An agent whose PATH is `programs` finds these and a few harmless tools of the real machine, and none that could affect its sessions,
loginwindow or root.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import bramley
from bramley.agent import platform
from bramley.agent.platform import linux, system
from bramley.agent.settings import Folders
from bramley.sim.mac import shim
from bramley.sim.mac.settings_file import SettingsFile
from bramley.sim.tart import process as tart_process

# Needed by the agent's supervisor and its certificate, by the pollers of its guests, and by people who inspect the Mac.
TOOLS = (
    "sh", "awk", "base64", "cat", "curl", "date", "head", "mkdir", "mktemp", "mv", "od", "openssl", "rm", "sed", "sleep", "tail", "tr", "wc", "ps",
)  # fmt: skip
# The system of every simulated Mac, as its Node shows it.
OS_IMAGE = "macOS 26.3 (25D125)"
INTERPRETERS = ("python", "sh", "dash", "bash", "zsh")


def folders(root: Path) -> Folders:
    """Return the folders of the agent and the tart of a simulated Mac."""
    return Folders(
        state=root / "state",
        user_data=root / "userdata",
        vm_logs=root / "vm-logs",
        tart_home=root / "tart",
        dhcp_leases=root / "tart/.sim/dhcpd_leases",
    )


class MacFolder:
    """One simulated Mac on this machine; its name is that of its folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.name = root.name
        self.folders = folders(root)
        # The only folder in its PATH.
        self.programs = root / "bin"
        self.kubeconfig = root / "kubeconfig"
        # The certificate authority of the clients that its agent accepts.
        self.authority = root / "ca.crt"
        self.log = root / "agent.log"

    def lay_out(self, content: Mapping[str, Any]) -> SettingsFile:
        """Create the folder, or update its programs and settings; the Mac's files stay."""
        for folder in (self.programs, self.folders.tart_home, self.folders.vm_logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tart_process.install_program(
            str(self.programs / "tart"), str(self.folders.tart_home), sys.executable
        )
        for name in shim.NAMES:
            _install(self.programs / name, self._shim(name))
        for tool in TOOLS:
            _link(self.programs / tool)
        os_image = self.folders.tart_home / linux.SIMULATED_OS
        os_image.parent.mkdir(mode=0o700, exist_ok=True)
        os_image.write_text(OS_IMAGE)
        return SettingsFile(self.folders.tart_home / "sim.json", dict(content))

    def environment(self) -> dict[str, str]:
        """Return the whole environment of its agent: its own programs and home, and where the package is."""
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
        prefixes = (f"{self.programs}/", f"{self.folders.tart_home}/")
        return [
            pid
            for pid, argv in self._running()
            if _script(argv).startswith(prefixes) and _runs_vm(argv)
        ]

    def processes(self) -> list[int]:
        """Return all processes of this Mac."""
        return [pid for pid, _ in self._running()]

    def _running(self) -> list[tuple[int, tuple[str, ...]]]:
        """Return the processes of interpreters that have a file of this Mac among their arguments; pagers and editors do not count."""
        prefix = f"{self.root}/"
        return [
            (each.pid, each.argv)
            for each in platform.current().processes()
            if _is_interpreter(each.argv) and any(word.startswith(prefix) for word in each.argv)
        ]

    def _shim(self, name: str) -> str:
        argv = (sys.executable, "-I", "-S", shim.__file__, str(self.root), name)
        return f'#!/bin/sh\nexec {shlex.join(argv)} "$@"\n'


def _is_interpreter(argv: tuple[str, ...]) -> bool:
    return argv[0].rpartition("/")[2].lstrip("-").startswith(INTERPRETERS)


def _script(argv: tuple[str, ...]) -> str:
    """Return the script that an interpreter runs."""
    return next((word for word in argv[1:] if not word.startswith("-")), "")


def _runs_vm(argv: tuple[str, ...]) -> bool:
    return system.runs_vm(system.without_interpreter(argv))


def _install(path: Path, content: str) -> None:
    """Write a program by a rename: another process may be about to start it."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(content)
    temporary.chmod(0o700)
    temporary.replace(path)


def _link(path: Path) -> None:
    tool = shutil.which(path.name)
    if tool is not None and not path.exists():
        path.unlink(missing_ok=True)
        path.symlink_to(tool)
