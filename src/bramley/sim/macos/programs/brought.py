"""Programs that do not come with macOS: they are where somebody has put them, and of the version that their files say.

A script that only hands over to another program is followed to that one, as the shell would.
"""

from __future__ import annotations

import re
from typing import Any

from bramley.sim.macos import making
from bramley.sim.macos.call import Call, Said
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.programs import property_lists

# In the files that stand in for real programs, see `stand_ins`.
MARK = re.compile(rb"^# simulated (?P<name>\S+) (?P<version>\S+)$", re.MULTILINE)
_HANDED_OVER = re.compile(rb'^exec (/[^\s"]+) "\$@"$', re.MULTILINE)
_BUNDLE = re.compile(r"(.*\.app)/Contents/MacOS/[^/]+")
_HEAD = 4096
_MOST_HANDS = 4
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class Missing(Exception):
    """A program that cannot be started, with what the shell says."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(said)
        self.answer = Said(code, err=f"sh: {said}\n")


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
        said = _about(mac, f"{bundle[1]}/Contents/Info.plist")
        if found := said.get("CFBundleShortVersionString"):
            return str(found)
    mark = MARK.search(_head(mac, path))
    return mark["version"].decode() if mark else ""


def _about(mac: Mac, path: str) -> dict[str, Any]:
    try:
        said = property_lists.read(mac.files.read(path) or b"")
    except property_lists.NoPropertyList:
        return {}
    return said if isinstance(said, dict) else {}


def _searched(mac: Mac, name: str) -> str:
    places = (f"{folder}/{name}" for folder in making.SEARCHED)
    return next((place for place in places if mac.files.is_executable(place)), "")


def _handed_over(mac: Mac, path: str) -> str:
    head = _head(mac, path)
    # One that stands in for a program is that program.
    found = None if MARK.search(head) else _HANDED_OVER.search(head)
    return found[1].decode() if found else ""


def _head(mac: Mac, path: str) -> bytes:
    return mac.files.read(path, most=_HEAD) or b""
