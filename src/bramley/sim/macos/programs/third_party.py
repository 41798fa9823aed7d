"""Programs that do not come with macOS: they are where somebody has put them, and of the version that their files say.

A script that only hands over to another program is followed to that one, as the shell would.
"""

from __future__ import annotations

import re

from bramley.sim.macos import fresh_install
from bramley.sim.macos.call import Call, Result, not_modelled
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import plutil

# In the files that stand in for real programs, see `stand_ins`.
MARK = re.compile(rb"^# simulated (?P<name>\S+) (?P<version>\S+)$", re.MULTILINE)
_HANDED_OVER = re.compile(rb'^exec (/[^\s"]+) "\$@"$', re.MULTILINE)
_BUNDLE = re.compile(r"(.*\.app)/Contents/MacOS/[^/]+")
_HEAD = 4096
_MOST_HANDS = 4
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class Missing(Exception):
    """A program that cannot be started, with what the shell says."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.answer = Result(code, err=f"sh: {message}\n")


def started(mac: Mac, call: Call) -> str:
    """Return the file that really runs when this program is called."""
    name = call.argv[0]
    path = name if "/" in name else _searched(mac, name)
    if not path:
        raise Missing(NOT_FOUND, f"{name}: command not found")
    for _ in range(_MOST_HANDS):
        if not mac.files.is_file(path):
            raise Missing(NOT_FOUND, f"{path}: No such file or directory")
        if not mac.files.is_executable(path):
            raise Missing(NOT_EXECUTABLE, f"{path}: Permission denied")
        next_one = _handed_over(mac, path)
        if not next_one:
            break
        path = next_one
    return path


def version(mac: Mac, path: str) -> str:
    """Return the version of a program's file: its bundle's, or what the file itself says; empty if neither does."""
    if bundle := _BUNDLE.fullmatch(path):
        about = plutil.read_dict(mac, f"{bundle[1]}/Contents/Info.plist") or {}
        if found := about.get("CFBundleShortVersionString"):
            return str(found)
    mark = MARK.search(_head(mac, path))
    return mark["version"].decode() if mark else ""


def _searched(mac: Mac, name: str) -> str:
    places = (f"{folder}/{name}" for folder in fresh_install.SEARCHED)
    return next((place for place in places if mac.files.is_executable(place)), "")


def _handed_over(mac: Mac, path: str) -> str:
    head = _head(mac, path)
    # One that stands in for a program is that program.
    found = None if MARK.search(head) else _HANDED_OVER.search(head)
    return found[1].decode() if found else ""


def _head(mac: Mac, path: str) -> bytes:
    return mac.files.read(path, most=_HEAD) or b""


def tart(mac: Mac, call: Call) -> Result:
    """Return the version of the bundle that is started; running VMs is the simulated tart's part."""
    found = version_only(mac, call, "--version")
    if isinstance(found, Result):
        return found
    return Result(out=f"{found}\n") if found else Result(137, err="Killed: 9\n")


def node_exporter(mac: Mac, call: Call) -> Result:
    """Return the version; serving metrics is a job of launchd, which curl answers for."""
    found = version_only(mac, call, "--version")
    if isinstance(found, Result):
        return found
    return Result(
        out=f"node_exporter, version {found or '(unknown)'} (branch: HEAD, revision: simulated)\n"
    )


def version_only(mac: Mac, call: Call, *options: str) -> str | Result:
    """Return the version of a program that is called with one of these options; any other call fails."""
    try:
        path = started(mac, call)
    except Missing as missing:
        return missing.answer
    if len(call.argv) != 2 or call.argv[1] not in options:
        return not_modelled(call)
    return version(mac, path)
