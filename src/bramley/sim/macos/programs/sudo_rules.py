"""Who may use sudo on a simulated Mac, as its sudoers files say.

Only grants of everything count: a grant of single commands is read, and passed over. The last line that fits decides, and a
line that cannot be read, or a file that others could have written, is told and left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from bramley.sim.macos import users

if TYPE_CHECKING:
    from bramley.sim.macos.files import Files
    from bramley.sim.macos.mac import Mac

MAIN = "/etc/sudoers"
_INCLUDE = re.compile(r"[@#]includedir\s+(\S+)\s*")
_GRANT = re.compile(r"(\S+)\s+ALL\s*=\s*(?:\([^)]*\)\s*)?(?:(NOPASSWD|PASSWD)\s*:\s*)?ALL\s*")


@dataclass(frozen=True, slots=True)
class Rules:
    """What the files say of one user, and what was wrong with them."""

    may: bool
    without_password: bool
    told: str


def of(mac: Mac, user: str) -> Rules:
    """Return the rules for a user."""
    state, files = mac.state, mac.files
    names = {user, "ALL", *(f"%{group}" for group in users.groups_of(state, user))}
    may = without = False
    told: list[str] = []
    for path in _paths(files):
        complaint = _complaint(files, state, path)
        if complaint:
            told.append(complaint)
            continue
        text = files.text(path)
        for tag in _tags(text, names):
            may, without = True, tag == "NOPASSWD"
        told += [f"{path}:{line}: syntax error" for line in _wrong_lines(text)]
    return Rules(may, without, "".join(f"{line}\n" for line in told))


def _paths(files: Files) -> Iterator[str]:
    yield MAIN
    for line in files.text(MAIN).splitlines():
        if found := _INCLUDE.fullmatch(line):
            for name in files.names(found[1]):
                # Editors and package managers leave such files, so sudo does not read them.
                if "." not in name and not name.endswith("~"):
                    yield f"{found[1]}/{name}"


def _complaint(files: Files, state: Mapping[str, Any], path: str) -> str:
    owner = files.owner(path).partition(":")[0]
    if owner != "root":
        uid = users.uid_of(state, owner)
        return f"sudo: {path} is owned by uid {owner if uid is None else uid}, should be 0"
    if files.mode(path) & 0o002:
        return f"sudo: {path} is world writable"
    return ""


def _tags(text: str, names: Collection[str]) -> Iterator[str]:
    return (tag for name, tag in _grants(text) if name in names)


# Both are asked with each call of sudo, mostly for the same texts.
@cache
def _grants(text: str) -> list[tuple[str, str]]:
    found = (_GRANT.fullmatch(line.strip()) for line in text.splitlines())
    return [(each[1], each[2] or "PASSWD") for each in found if each]


@cache
def _wrong_lines(text: str) -> list[int]:
    from bramley.sim.macos.programs import sudoers

    return [mistake.line for mistake in sudoers.mistakes(text)]
