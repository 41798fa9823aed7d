"""The sandbox of a simulated Mac: its own root, processes and host name, made by bubblewrap.

The Mac's folder is `/`. The machine's libraries are mounted read-only, and those of its programs that a Mac has, too; the network is
shared, so Macs on one machine differ in ports. If the server runs as root, processes have the users of the Mac; otherwise all are the
server's user, and root's folders are read-only for the others.
"""

from __future__ import annotations

import functools
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import bramley
from bramley.sim.ssh import shim

# Programs that macOS and Linux share; their options may differ.
TOOLS = (
    "awk", "base64", "basename", "bash", "bc", "cat", "chgrp", "chmod", "chown", "cksum", "cmp", "comm", "cp", "curl", "cut", "date",
    "dd", "diff", "dirname", "du", "echo", "ed", "egrep", "env", "expr", "false", "fgrep", "file", "find", "fold", "grep",
    "gunzip", "gzip", "head", "id", "install", "join", "kill", "less", "ln", "ls", "mkdir", "mkfifo", "mktemp", "more", "mv",
    "nice", "nl", "nohup", "od", "openssl", "paste", "patch", "perl", "pgrep", "pkill", "printenv", "printf", "ps", "pwd", "readlink",
    "realpath", "rm", "rmdir", "sed", "seq", "sh", "shasum", "sleep", "sort", "split", "stty", "sync", "tail", "tar", "tee",
    "test", "top", "touch", "tr", "true", "tty", "uniq", "unlink", "uptime", "vi", "wc", "which", "whoami", "xargs", "yes",
    "zcat", "zsh", "[",
)  # fmt: skip
# Our own files in the sandbox; the mount also hides the Mac's state.
OURS = "/.mac"
PYTHON = f"{OURS}/bin/python"
RUN = f"{OURS}/run"
SHIM = f"{OURS}/bin/shim"
_SCRIPTS = f"{OURS}/lib/bramley/sim/ssh"
FIRST_PROCESS = f"{_SCRIPTS}/first_process.py"
# Programs of a Mac that are neither of the machine nor of the model.
_OWN_PROGRAMS = {"runsvc.sh": f"{_SCRIPTS}/runner_service.py"}
_LIBRARIES = (
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/share",
    "/lib",
    "/lib64",
)
# The folders of programs on a Mac; here one folder under all four names.
PROGRAM_FOLDERS = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")
SEARCH_PATH = ":".join(PROGRAM_FOLDERS)
_MACHINE = f"{OURS}/machine"
_INTERPRETER = f"{OURS}/python"
# Root of a Mac must not change the machine: no mounts, no devices, no clock, no network settings.
_CAPABILITIES = (
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
    "CAP_NET_BIND_SERVICE", "CAP_SYS_PTRACE",
)  # fmt: skip
# Folders that only root of a Mac may write to, except files with other owners.
ROOT_FOLDERS = ("/private/etc", "/Library", "/opt", "/usr/local", "/System", "/Applications")
_TRIAL_SECONDS = 20.0
# The settings by which distributions forbid user namespaces.
_HINT = (
    "run it as root, or allow user namespaces: sudo sysctl -w kernel.unprivileged_userns_clone=1"
    " (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
)


def is_root() -> bool:
    """Return whether processes can have the users of a Mac."""
    return os.geteuid() == 0


@functools.cache
def unavailable_reason() -> str:
    """Return why this machine cannot create sandboxes, and what to do; empty if it can."""
    if sys.platform != "linux":
        return "a simulated Mac behind SSH needs bubblewrap, which only Linux has; use the in-process one"
    program = shutil.which("bwrap")
    if program is None:
        return "bwrap is not installed; run: sudo apt-get install bubblewrap"
    try:
        tried = subprocess.run(  # noqa: S603 - the program found above
            [program, "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true"],
            capture_output=True,
            timeout=_TRIAL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"bwrap does not respond within {_TRIAL_SECONDS:g} s"
    error = tried.stderr.decode(errors="replace").strip()
    return f"bwrap cannot create a sandbox: {error}; {_HINT}" if tried.returncode else ""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One Mac's sandbox; `support` is the folder with its shims, their sockets and the interpreter."""

    root: Path
    support: Path
    name: str = "mac"

    def command(self, *arguments: str) -> list[str]:
        """Return the command line that starts the first process."""
        words = ["bwrap", *self._namespaces(), *self._mounts(), "--"]
        return [*words, PYTHON, "-ISE", FIRST_PROCESS, *arguments]

    def _namespaces(self) -> Iterator[str]:
        yield from (
            "--unshare-pid",
            "--as-pid-1",
            "--die-with-parent",
            "--unshare-ipc",
            "--clearenv",
        )
        yield from ("--unshare-uts", "--hostname", self.name)
        if is_root():
            yield from ("--cap-drop", "ALL")
            for capability in _CAPABILITIES:
                yield from ("--cap-add", capability)
        else:
            yield from ("--unshare-user", "--uid", "0", "--gid", "0")
            # Needed to map other users in a nested namespace.
            yield from ("--cap-add", "CAP_SETFCAP")

    def _mounts(self) -> Iterator[str]:
        yield from ("--bind", str(self.root), "/")
        for folder in _LIBRARIES:
            yield from ("--ro-bind-try", folder, folder)
        # Hides the state of the Mac, which has passwords.
        yield from ("--perms", "0755", "--tmpfs", OURS)
        for folder in (_MACHINE, f"{OURS}/lib"):
            yield from ("--perms", "0755", "--dir", folder)
        for name in ("bin", "sbin"):
            yield from ("--ro-bind-try", f"/usr/{name}", f"{_MACHINE}/{name}")
        yield from ("--ro-bind", sys.base_prefix, _INTERPRETER)
        package = Path(bramley.__file__).parent
        yield from ("--ro-bind", str(package), f"{OURS}/lib/bramley")
        # In a repository, where guests find the poller of the runner image.
        yield from ("--ro-bind-try", str(package.parent.parent / "images"), f"{OURS}/images")
        yield from ("--ro-bind", str(self.support / "bin"), f"{OURS}/bin")
        yield from ("--ro-bind", str(self.support / "run"), RUN)
        for folder in PROGRAM_FOLDERS:
            yield from ("--ro-bind", str(self.support / "programs"), folder)
        yield from ("--proc", "/proc", "--dev", "/dev")
        for name in ("sys", "sysrq-trigger", "irq", "bus"):
            # They change the machine's kernel: even root of a Mac may only read them.
            yield from ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")


def mounted() -> list[str]:
    """Return the folders of a Mac on which something of this machine is mounted."""
    libraries = [folder for folder in _LIBRARIES if Path(folder).exists()]
    return [*libraries, *PROGRAM_FOLDERS, "/proc", "/dev"]


def interpreter() -> str:
    """Return the script that runs this interpreter in a sandbox."""
    real = os.path.realpath(sys.executable)
    inside = f"{_INTERPRETER}/{os.path.relpath(real, os.path.realpath(sys.base_prefix))}"
    libraries = Path(sys.base_prefix, "lib")
    is_shared = any(libraries.glob("libpython*.so*")) and sys.base_prefix != "/usr"
    # In the sandbox its libraries are not where it expects them.
    set_path = f"LD_LIBRARY_PATH={_INTERPRETER}/lib " if is_shared else ""
    return f'#!/bin/sh\n{set_path}exec {inside} "$@"\n'


def machine_program(name: str) -> str | None:
    """Return the path in a sandbox of a program of this machine; None if the machine does not have it."""
    path = shutil.which(name, path=SEARCH_PATH)
    if path is None:
        return None
    folder, _, real = os.path.realpath(path).rpartition("/")
    inside = {"/usr/bin": "bin", "/bin": "bin", "/usr/sbin": "sbin", "/sbin": "sbin"}.get(folder)
    return f"{_MACHINE}/{inside}/{real}" if inside else None


def lay_out(folder: Path, names: Iterable[str], owner_programs: Iterable[str]) -> None:
    """Create the support folder with shims of these names; `owner_programs` are shims only where the kernel keeps no owners."""
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("bin", "programs", "run"):
        (folder / part).mkdir(parents=True)
    # Users of the Mac must have access, whatever the server's umask is.
    for made in (folder, *folder.iterdir()):
        made.chmod(0o755)
    _install(folder / "bin" / "python", interpreter())
    # Compiled here, so that not every call compiles it.
    py_compile.compile(shim.__file__, cfile=str(folder / "bin" / "shim"), doraise=True)
    for tool in TOOLS:
        if found := machine_program(tool):
            (folder / "programs" / tool).symlink_to(found)
    scripts = {name: f"{SHIM} {name}" for name in names} | _OWN_PROGRAMS
    for name, script in scripts.items():
        path = folder / "programs" / name
        path.unlink(missing_ok=True)
        _install(path, f'#!/bin/sh\nexec {PYTHON} -ISE {script} "$@"\n')
    if not is_root():
        _install_owner_programs(folder / "programs", owner_programs)
    if not (folder / "programs" / "zsh").is_symlink():
        # Login shells are zsh on a Mac; commands use only POSIX features.
        (folder / "programs" / "zsh").symlink_to(machine_program("sh") or "/bin/sh")


def _install_owner_programs(programs: Path, names: Iterable[str]) -> None:
    """Install shims that use the owners of the Mac's state; for other options, ls is the machine's own."""
    shim_call = f"exec {PYTHON} -ISE {SHIM}"
    for name in names:
        (programs / name).unlink(missing_ok=True)
        _install(programs / name, f'#!/bin/sh\n{shim_call} {name} "$@"\n')
    other = f'exec {machine_program("ls")} "$@"'
    _install(programs / "ls", f'#!/bin/sh\n[ "${{1-}}" = -ld ] && {shim_call} ls "$@"\n{other}\n')


def _install(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
