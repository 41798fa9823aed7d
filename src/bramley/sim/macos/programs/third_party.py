"""Programs that do not come with macOS: they exist where they were installed, in the version of their files.

A script that only executes another program stands for that program.
"""

from __future__ import annotations

import re

from bramley.sim.macos import fresh_install
from bramley.sim.macos.call import Call, Exit, NotModelled, Result
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import plutil

# The first lines of stand-ins for real programs, see `stand_ins`.
MARK = re.compile(rb"^# simulated (?P<name>\S+) (?P<version>\S+)$", re.MULTILINE)
_EXEC = re.compile(rb'^exec (/[^\s"]+) "\$@"$', re.MULTILINE)
_BUNDLE = re.compile(r"(.*\.app)/Contents/MacOS/[^/]+")
_HEAD = 4096
_MAX_EXECS = 4
NOT_FOUND, NOT_EXECUTABLE = 127, 126


def executed_file(mac: Mac, call: Call) -> str:
    """Return the file that runs when this program is called."""
    name = call.argv[0]
    path = name if "/" in name else _find_in_path(mac, name)
    if not path:
        raise Exit(Result(NOT_FOUND, err=f"sh: {name}: command not found\n"))
    for _ in range(_MAX_EXECS):
        if not mac.files.is_file(path):
            raise Exit(Result(NOT_FOUND, err=f"sh: {path}: No such file or directory\n"))
        if not mac.files.is_executable(path):
            raise Exit(Result(NOT_EXECUTABLE, err=f"sh: {path}: Permission denied\n"))
        target = _exec_target(mac, path)
        if not target:
            break
        path = target
    return path


def version(mac: Mac, path: str) -> str:
    """Return the version of a program from its bundle or its file; empty if it has none."""
    if bundle := _BUNDLE.fullmatch(path):
        about = plutil.read_dict(mac, f"{bundle[1]}/Contents/Info.plist") or {}
        if found := about.get("CFBundleShortVersionString"):
            return str(found)
    mark = MARK.search(_head(mac, path))
    return mark["version"].decode() if mark else ""


def _find_in_path(mac: Mac, name: str) -> str:
    paths = (f"{folder}/{name}" for folder in fresh_install.SEARCHED)
    return next((path for path in paths if mac.files.is_executable(path)), "")


def _exec_target(mac: Mac, path: str) -> str:
    head = _head(mac, path)
    # A stand-in is the program itself.
    found = None if MARK.search(head) else _EXEC.search(head)
    return found[1].decode() if found else ""


def _head(mac: Mac, path: str) -> bytes:
    return mac.files.read(path, limit=_HEAD) or b""


def tart(mac: Mac, call: Call) -> Result:
    """Print the version of the bundle; VMs are run by the simulated tart."""
    version = version_only(mac, call, "--version")
    return Result(out=f"{version}\n") if version else Result(137, err="Killed: 9\n")


def node_exporter(mac: Mac, call: Call) -> Result:
    """Print the version; metrics are served by its launchd job, see `curl`."""
    version = version_only(mac, call, "--version")
    return Result(
        out=f"node_exporter, version {version or '(unknown)'} (branch: HEAD, revision: simulated)\n"
    )


def version_only(mac: Mac, call: Call, *options: str) -> str:
    """Return the version of a program that is called with one of these options; no other call is modelled."""
    path = executed_file(mac, call)
    if len(call.argv) != 2 or call.argv[1] not in options:
        raise NotModelled
    return version(mac, path)
