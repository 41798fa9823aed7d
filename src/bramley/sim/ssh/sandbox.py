"""The bubble that a simulated Mac runs in: its own root, processes and name, made by bubblewrap.

The Mac's folder is `/`. Of the machine there are the libraries, read-only, and those of its programs that a Mac has, too; the
network is shared, so Macs on one machine differ in ports. As root the processes have the users of the Mac; for anybody else
they are the one user who started the server, and folders that belong to root are read-only for the rest.
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

# What macOS and Linux share; options that differ are a matter of those who write commands.
TOOLS = (
    "awk", "base64", "basename", "bash", "bc", "cat", "chgrp", "chmod", "chown", "cksum", "cmp", "comm", "cp", "curl", "cut", "date",
    "dd", "diff", "dirname", "du", "echo", "ed", "egrep", "env", "expr", "false", "fgrep", "file", "find", "fold", "grep",
    "gunzip", "gzip", "head", "id", "install", "join", "kill", "less", "ln", "ls", "mkdir", "mkfifo", "mktemp", "more", "mv",
    "nice", "nl", "nohup", "od", "openssl", "paste", "patch", "perl", "pgrep", "pkill", "printenv", "printf", "ps", "pwd", "readlink",
    "realpath", "rm", "rmdir", "sed", "seq", "sh", "shasum", "sleep", "sort", "split", "stty", "sync", "tail", "tar", "tee",
    "test", "top", "touch", "tr", "true", "tty", "uniq", "unlink", "uptime", "vi", "wc", "which", "whoami", "xargs", "yes",
    "zcat", "zsh", "[",
)  # fmt: skip
# Everything of ours that a bubble holds, and what hides the Mac's state from those within.
OURS = "/.mac"
PYTHON = f"{OURS}/bin/python"
RUN = f"{OURS}/run"
SHIM = f"{OURS}/bin/shim"
FIRST_PROCESS = f"{OURS}/lib/bramley/sim/ssh/first_process.py"
# Where a Mac has its programs; here one folder under all four names.
_OF_THE_MACHINE = (
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/share",
    "/lib",
    "/lib64",
)
PROGRAM_FOLDERS = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")
_MACHINE = f"{OURS}/machine"
_INTERPRETER = f"{OURS}/python"
# What root needs on a Mac and may not do to the machine: no mounts, no devices, no clock, no network settings.
_CAPABILITIES = (
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
    "CAP_NET_BIND_SERVICE", "CAP_SYS_PTRACE",
)  # fmt: skip
# Folders that a plain user of a Mac cannot write to; what is in /var changes owners.
OF_ROOT = ("/private/etc", "/Library", "/opt", "/usr/local", "/System", "/Applications")
_TRIED_WITHIN = 20.0
# What distributions turn off, each in its way.
_ALLOW = (
    "run it as root, or allow user namespaces: sudo sysctl -w kernel.unprivileged_userns_clone=1"
    " (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
)


def is_root() -> bool:
    """Return whether processes here can have the users of a Mac."""
    return os.geteuid() == 0


@functools.cache
def missing() -> str:
    """Return why no bubble can be made on this machine and what to do; empty if one can."""
    if sys.platform != "linux":
        return "a simulated Mac runs programs in a root of its own by bubblewrap, which Linux has; here it can only be used in process"
    program = shutil.which("bwrap")
    if program is None:
        return "bwrap missing; run: sudo apt-get install bubblewrap"
    try:
        tried = subprocess.run(  # noqa: S603 - the program that was just found
            [program, "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true"],
            capture_output=True,
            timeout=_TRIED_WITHIN,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"bwrap does not answer within {_TRIED_WITHIN:g} s"
    error = tried.stderr.decode(errors="replace").strip()
    return f"bwrap cannot make a root of its own: {error}; {_ALLOW}" if tried.returncode else ""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One Mac's bubble; `lent` is a folder with what this machine lends to it."""

    root: Path
    lent: Path
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
            # So that another user can stand for this root, in a namespace within this one.
            yield from ("--cap-add", "CAP_SETFCAP")

    def _mounts(self) -> Iterator[str]:
        yield from ("--bind", str(self.root), "/")
        for folder in _OF_THE_MACHINE:
            yield from ("--ro-bind-try", folder, folder)
        # Nobody within sees the state of the Mac, which holds passwords.
        yield from ("--perms", "0755", "--tmpfs", OURS)
        for folder in (_MACHINE, f"{OURS}/lib"):
            yield from ("--perms", "0755", "--dir", folder)
        for name in ("bin", "sbin"):
            yield from ("--ro-bind-try", f"/usr/{name}", f"{_MACHINE}/{name}")
        yield from ("--ro-bind", sys.base_prefix, _INTERPRETER)
        yield from ("--ro-bind", str(Path(bramley.__file__).parent), f"{OURS}/lib/bramley")
        yield from ("--ro-bind", str(self.lent / "bin"), f"{OURS}/bin")
        yield from ("--ro-bind", str(self.lent / "run"), RUN)
        for folder in PROGRAM_FOLDERS:
            yield from ("--ro-bind", str(self.lent / "programs"), folder)
        yield from ("--proc", "/proc", "--dev", "/dev")
        for knobs in ("sys", "sysrq-trigger", "irq", "bus"):
            # Those of the machine's kernel: even root of a Mac only reads them.
            yield from ("--ro-bind-try", f"/proc/{knobs}", f"/proc/{knobs}")


def mounted() -> list[str]:
    """Return the folders of a Mac that something of this machine is seen in."""
    lent = [folder for folder in _OF_THE_MACHINE if Path(folder).exists()]
    return [*lent, *PROGRAM_FOLDERS, "/proc", "/dev"]


def interpreter() -> str:
    """Return the text of the program that is this interpreter within a bubble."""
    real = os.path.realpath(sys.executable)
    inside = f"{_INTERPRETER}/{os.path.relpath(real, os.path.realpath(sys.base_prefix))}"
    libraries = Path(sys.base_prefix, "lib")
    is_shared = any(libraries.glob("libpython*.so*")) and sys.base_prefix != "/usr"
    # Its libraries are elsewhere within the bubble than where they were built for.
    set_path = f"LD_LIBRARY_PATH={_INTERPRETER}/lib " if is_shared else ""
    return f'#!/bin/sh\n{set_path}exec {inside} "$@"\n'


def machine_program(name: str) -> str | None:
    """Return where a bubble finds a program of this machine; None if the machine has none."""
    found = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
    if found is None:
        return None
    folder, _, real = os.path.realpath(found).rpartition("/")
    inside = {"/usr/bin": "bin", "/bin": "bin", "/usr/sbin": "sbin", "/sbin": "sbin"}.get(folder)
    return f"{_MACHINE}/{inside}/{real}" if inside else None


def lay_out(folder: Path, names: Iterable[str], owner_programs: Iterable[str]) -> None:
    """Make the folder anew, with shims of these names; `owner_programs` are shims only where the kernel keeps no owners."""
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("bin", "programs", "run"):
        (folder / part).mkdir(parents=True)
    # Whatever the server's umask is, users of the Mac come through.
    for made in (folder, *folder.iterdir()):
        made.chmod(0o755)
    _install(folder / "bin" / "python", interpreter())
    # Compiled once, and not by every call.
    py_compile.compile(shim.__file__, cfile=str(folder / "bin" / "shim"), doraise=True)
    for tool in TOOLS:
        if found := machine_program(tool):
            (folder / "programs" / tool).symlink_to(found)
    for name in names:
        path = folder / "programs" / name
        path.unlink(missing_ok=True)
        _install(path, f'#!/bin/sh\nexec {PYTHON} -ISE {SHIM} {name} "$@"\n')
    if not is_root():
        _keep_owners(folder / "programs", owner_programs)
    if not (folder / "programs" / "zsh").is_symlink():
        # Login shells are zsh on a Mac, and commands keep to what every shell knows.
        (folder / "programs" / "zsh").symlink_to(machine_program("sh") or "/bin/sh")


def _keep_owners(programs: Path, names: Iterable[str]) -> None:
    """Let the Mac's state tell owners; everything else about files the machine's own ls tells."""
    ask = f"exec {PYTHON} -ISE {SHIM}"
    for name in names:
        (programs / name).unlink(missing_ok=True)
        _install(programs / name, f'#!/bin/sh\n{ask} {name} "$@"\n')
    other = f'exec {machine_program("ls")} "$@"'
    _install(programs / "ls", f'#!/bin/sh\n[ "${{1-}}" = -ld ] && {ask} ls "$@"\n{other}\n')


def _install(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
