"""A plan for people: each command as a line, each written file as the difference to what the Mac has.

What a secret is, is not shown; neither is what is not text.
"""

from __future__ import annotations

import difflib
import functools
import shlex
from collections.abc import Iterator

from bramley.base.secret import HIDDEN, Secret
from bramley.host.commands import (
    Command,
    Folder,
    Link,
    Reboot,
    Remove,
    Rename,
    Run,
    Seal,
    Stream,
    Wait,
    Write,
)

_CONTEXT = 2
_MOST_LINES = 60


@functools.singledispatch
def title(command: Command) -> str:
    """Return one line that says what a command does to which thing."""
    raise TypeError(f"{type(command).__name__} is no command")


@title.register
def _(command: Run) -> str:
    return f"run {shlex.join(command.argv)}{' as root' if command.as_root else ''}"


@title.register
def _(command: Write) -> str:
    return f"write {command.path} ({command.mode:04o}, {command.owner})"


@title.register
def _(command: Stream) -> str:
    what = command.artifact
    return f"bring {what.name} {what.version} ({what.size / 1e6:.1f} MB) to {command.path}"


@title.register
def _(command: Folder) -> str:
    return f"folder {command.path} ({command.mode:04o}, {command.owner})"


@title.register
def _(command: Link) -> str:
    return f"link {command.path} to {command.target}"


@title.register
def _(command: Rename) -> str:
    return f"rename {command.path} to {command.to}"


@title.register
def _(command: Remove) -> str:
    return f"remove {command.path}"


@title.register
def _(command: Seal) -> str:
    return f"seal {command.path}"


@title.register
def _(command: Wait) -> str:
    return f"wait until {shlex.join(command.look.argv)} says so"


@title.register
def _(command: Reboot) -> str:  # noqa: ARG001 - there is but one way to reboot
    return "reboot"


def difference(command: Command) -> Iterator[str]:
    """Yield the lines of a unified difference, for a file that is written and may be shown."""
    if not isinstance(command, Write):
        return
    if isinstance(command.content, Secret):
        yield f"+{HIDDEN}"
        return
    before, after = _lines(command.before or b""), _lines(command.content)
    if before is None or after is None:
        yield f"+({len(command.content)} bytes that are no text)"
        return
    found = list(difflib.unified_diff(before, after, lineterm="", n=_CONTEXT))[2:]
    yield from found[:_MOST_LINES]
    if len(found) > _MOST_LINES:
        yield f"… and {len(found) - _MOST_LINES} lines more"


def _lines(content: bytes) -> list[str] | None:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.splitlines()
