"""A parser of the environment file, as a guest implements it."""

from __future__ import annotations

import re

_ESCAPED = re.compile(r"(\\+)([nr])")
_BREAKS = {"n": "\n", "r": "\r"}


def parse_env_file(text: str) -> dict[str, str]:
    """Parse the file as a guest does: blank lines and comments are ignored."""
    # Not splitlines: a value may contain the other line separators that Python knows.
    lines = (line for line in text.split("\n") if line and not line.startswith("#"))
    pairs = (line.partition("=") for line in lines)
    return {name: unescape(value) for name, _, value in pairs}


def unescape(value: str) -> str:
    """Return the value that `escape` wrote on one line."""
    return _ESCAPED.sub(_halved, value)


def _halved(found: re.Match[str]) -> str:
    backslashes, letter = found.groups()
    kept = "\\" * (len(backslashes) // 2)
    return f"{kept}{_BREAKS[letter] if len(backslashes) % 2 else letter}"
