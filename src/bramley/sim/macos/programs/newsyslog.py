"""newsyslog: checks the configuration of log rotation and prints what it would do; it rotates nothing.

A line has the path of a log, optionally its owner, then mode, count, size, when and flags, optionally a pid file and a signal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bramley.sim.macos.call import Call, Result, needs_root, not_modelled
from bramley.sim.macos.mac import Mac

CONFIGURATION = "/etc/newsyslog.conf"
FOLDER = "/etc/newsyslog.d"
_OWNER = re.compile(r"[A-Za-z0-9_-]*:[A-Za-z0-9_-]*")
_WHEN = re.compile(
    r"\*|[0-9]+|(?:[0-9]+)?(?:@[0-9T]*|\$(?:(?:D|W[0-6]|M(?:[0-9]{1,2}|L))[0-9D]*)+)"
)
_FLAGS = set("BCDGJNRTUWXZbcdgjnrtuwxz-")
_FIELDS = 5


@dataclass(frozen=True, slots=True)
class Entry:
    """One log and when it is rotated."""

    path: str
    mode: str
    count: str
    size: str
    when: str
    flags: str = "-"


class Malformed(Exception):
    """A line at which newsyslog stops."""


def entries(text: str) -> Iterator[Entry]:
    """Yield the entries of a file; the first malformed line is an error."""
    for line in text.splitlines():
        bare = line.partition("#")[0].strip()
        if bare and not bare.startswith("<include>"):
            yield _entry(bare.split(), line)


def newsyslog(mac: Mac, call: Call) -> Result:
    """Check the configuration and print what would happen; only calls with -n by root are modelled."""
    files, unknown = _arguments(list(call.argv[1:]))
    if unknown or files is None:
        return not_modelled(call, unknown or "rotation of logs, which is a call without -n")
    if refused := needs_root(call, "newsyslog: must have root privs"):
        return refused
    out = ""
    for path in files or _all(mac):
        contents = mac.files.read(path)
        if contents is None:
            return Result(1, err=f"newsyslog: {path}: No such file or directory\n")
        try:
            out += "".join(_shown(entry) for entry in entries(contents.decode("utf-8", "replace")))
        except Malformed as error:
            return Result(1, out=out, err=f"newsyslog: {error}\n")
    return Result(out=out)


def _all(mac: Mac) -> list[str]:
    inside = mac.files.names(FOLDER)
    return [CONFIGURATION, *(f"{FOLDER}/{name}" for name in inside if name.endswith(".conf"))]


def _arguments(words: list[str]) -> tuple[list[str] | None, str]:
    """Return the given files, None for a call that would rotate logs, and the first unknown option."""
    files: list[str] = []
    is_trial = False
    while words:
        word = words.pop(0)
        letters = word[1:] if word.startswith("-") else ""
        if not letters or set(letters) - set("nvNrFf"):
            return None, word
        is_trial = is_trial or "n" in letters
        if letters.endswith("f"):
            files.append(words.pop(0) if words else "")
    return (files if is_trial else None), ""


def _entry(fields: list[str], line: str) -> Entry:
    path, rest = fields[0], fields[1:]
    if rest and _OWNER.fullmatch(rest[0]):
        rest = rest[1:]
    if len(rest) < _FIELDS - 1:
        raise Malformed(f"malformed line (missing fields):\n{line}")
    entry = Entry(path, *rest[:5])
    _check(entry, line)
    return entry


def _check(entry: Entry, line: str) -> None:
    for value, form, field in (
        (entry.mode, r"[0-7]{3,4}", "permissions"),
        (entry.count, r"[0-9]+", "count"),
        (entry.size, r"[0-9]+|\*", "size"),
        (entry.when, _WHEN, "at"),
    ):
        if not re.fullmatch(form, value):
            raise Malformed(f"error in config file; bad {field}:\n{line}")
    if set(entry.flags) - _FLAGS:
        raise Malformed(f"illegal flag in config file -- {entry.flags}")


def _shown(entry: Entry) -> str:
    return f"{entry.path} <{entry.count}{entry.flags.strip('-')}>: size (Kb): 0 [{entry.size}] --> skipping\n"
