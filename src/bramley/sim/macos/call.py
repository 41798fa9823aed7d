"""One call of a program of a simulated Mac, its result, and what the calling user may read and write; root may do everything."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bramley.sim.macos import users

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac


@dataclass(frozen=True, slots=True)
class Call:
    """How a program was called, and by which user; `argv[0]` is its bare name."""

    argv: tuple[str, ...]
    user: str
    stdin: bytes = b""
    on_terminal: bool = False
    # Only the variables that a program of the model reads.
    environment: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    @property
    def is_root(self) -> bool:
        """Return whether it runs as root."""
        return self.user == "root"


@dataclass(frozen=True, slots=True)
class Result:
    """The exit code and output of a program."""

    code: int = 0
    out: str = ""
    err: str = ""


class Exit(Exception):
    """Ends a program with this result."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.err)
        self.result = result


class NotModelled(Exception):
    """Ends a program because of arguments that the model does not support."""


Program = Callable[["Mac", Call], Result]

# EX_USAGE: no program of the model uses it for anything else.
NOT_MODELLED = 64
_READ, _WRITE = 4, 2


def not_modelled(call: Call, what: str = "") -> Result:
    """Refuse a call that the real program may know: the model never ignores an option."""
    what = what or " ".join(call.argv[1:]) or "a call without arguments"
    return Result(NOT_MODELLED, err=f"{call.argv[0]}: the simulated Mac does not model: {what}\n")


def needs_root(call: Call, message: str) -> Result | None:
    """Refuse with the program's own message unless root calls."""
    return None if call.is_root else Result(1, err=f"{message}\n")


def read_file(mac: Mac, call: Call, path: str) -> bytes | None:
    """Return the content of a file, None if there is none; PermissionError if this user may not read it."""
    if mac.files.is_file(path) and not _is_permitted(mac, call, path, _READ):
        raise PermissionError(path)
    return mac.files.read(path)


def may_replace(mac: Mac, call: Call, path: str) -> bool:
    """Return whether this user may put a file into the folder of this path; a missing folder counts as its parent."""
    folder = posixpath.dirname(path) or "/"
    while folder != "/" and not mac.files.is_folder(folder):
        folder = posixpath.dirname(folder)
    return _is_permitted(mac, call, folder, _WRITE)


def _is_permitted(mac: Mac, call: Call, path: str, bit: int) -> bool:
    if call.is_root:
        return True
    owner, _, group = mac.files.owner(path).partition(":")
    mode = mac.files.mode(path)
    if owner == call.user:
        return bool(mode >> 6 & bit)
    if group in users.groups_of(mac.state, call.user):
        return bool(mode >> 3 & bit)
    return bool(mode & bit)
