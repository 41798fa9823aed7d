"""The file of variables that a guest reads at its start: `KEY=value` lines, in the form that older guests know, made reversible.

A newline is written as backslash and n, a carriage return as backslash and r. Backslashes just before such a place, or
before a letter n or r, are doubled, so that the two cannot be confused; all others stay as they are, because older guests
know nothing of doubled ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_AMBIGUOUS = re.compile(r"(\\*)([\n\r])|(\\+)(?=[nr])")
_ESCAPED = re.compile(r"(\\+)([nr])")
_LETTERS = {"\n": "n", "\r": "r"}
_BREAKS = {"n": "\n", "r": "\r"}


def render(values: Mapping[str, str]) -> str:
    """Return the file, sorted, so that the same variables always give the same file."""
    return "".join(f"{name}={escape(values[name])}\n" for name in sorted(values))


def parse(text: str) -> dict[str, str]:
    """Read such a file, as a guest does: blank lines and comments say nothing."""
    # Other marks that Python takes for the end of a line may stand in a value.
    lines = (line for line in text.split("\n") if line and not line.startswith("#"))
    pairs = (line.partition("=") for line in lines)
    return {name: unescape(value) for name, _, value in pairs}


def escape(value: str) -> str:
    """Return a value on one line."""
    return _AMBIGUOUS.sub(_doubled, value)


def unescape(value: str) -> str:
    """Return the value that `escape` put on one line."""
    return _ESCAPED.sub(_halved, value)


def _doubled(found: re.Match[str]) -> str:
    before, end, only = found.groups()
    return only * 2 if only else f"{before * 2}\\{_LETTERS[end]}"


def _halved(found: re.Match[str]) -> str:
    backslashes, letter = found.groups()
    kept = "\\" * (len(backslashes) // 2)
    return f"{kept}{_BREAKS[letter] if len(backslashes) % 2 else letter}"
