"""What this machine lends to a simulated Mac: an interpreter, the programs that both have, and shims for those of the model.

All of it is written anew at each start, in a folder that the Mac sees read-only. A program that a Mac does not have is not
there, so a command that would fail on a Mac fails here, too.
"""

from __future__ import annotations

import py_compile
import shutil
from collections.abc import Iterable
from pathlib import Path

from bramley.sim.ssh import bubble, owners, shim

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


def lay_out(folder: Path, names: Iterable[str]) -> None:
    """Make the folder anew, with shims of these names."""
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("bin", "programs", "run"):
        (folder / part).mkdir(parents=True)
    # Whatever the server's umask is, users of the Mac come through.
    for made in (folder, *folder.iterdir()):
        made.chmod(0o755)
    _install(folder / "bin" / "python", bubble.interpreter())
    # Compiled once, and not by every call.
    py_compile.compile(shim.__file__, cfile=str(folder / "bin" / "shim"), doraise=True)
    for tool in TOOLS:
        if found := bubble.machine_program(tool):
            (folder / "programs" / tool).symlink_to(found)
    for name in names:
        path = folder / "programs" / name
        path.unlink(missing_ok=True)
        _install(path, f'#!/bin/sh\nexec {bubble.PYTHON} -ISE {bubble.SHIM} {name} "$@"\n')
    if not bubble.is_root():
        _keep_owners(folder / "programs")
    if not (folder / "programs" / "zsh").is_symlink():
        # Login shells are zsh on a Mac, and commands keep to what every shell knows.
        (folder / "programs" / "zsh").symlink_to(bubble.machine_program("sh") or "/bin/sh")


def _keep_owners(programs: Path) -> None:
    """Let the Mac's state tell owners; everything else about files the machine's own ls tells."""
    ask = f"exec {bubble.PYTHON} -ISE {bubble.SHIM}"
    for name in owners.PROGRAMS:
        (programs / name).unlink(missing_ok=True)
        _install(programs / name, f'#!/bin/sh\n{ask} {name} "$@"\n')
    other = f'exec {bubble.machine_program("ls")} "$@"'
    _install(programs / "ls", f'#!/bin/sh\n[ "${{1-}}" = -ld ] && {ask} ls "$@"\n{other}\n')


def _install(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
