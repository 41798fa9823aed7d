"""How words become shell: the one place that quotes, and the last one that refuses.

Grammars have refused bad names long before; what comes here is refused only if no quoting could make it right.
"""

from __future__ import annotations

import re

from bramley.base.errors import BadConfiguration

# What no shell, zsh included, reads as anything but itself.
_PLAIN = re.compile(r"[A-Za-z0-9_./:,-]+")


def quote(word: str) -> str:
    """Return a word that every shell reads as just this text."""
    if "\0" in word:
        raise BadConfiguration("a word of a command has a NUL byte, which no program can be given")
    if _PLAIN.fullmatch(word):
        return word
    return "'" + word.replace("'", "'\\''") + "'"


def line(*words: str) -> str:
    """Return a command line of these words."""
    return " ".join(quote(word) for word in words)


def program(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return a program with its arguments, if its name can be one."""
    if not argv or not argv[0] or argv[0].startswith("-"):
        raise BadConfiguration(f"{argv[:1]} is no name of a program")
    return argv


def path(text: str) -> str:
    """Return a path that leads from the root to a name, so that it cannot be read as an option, nor as a folder's own name."""
    parts = text.split("/")
    if not text.startswith("/") or not all(parts[1:]) or {".", ".."} & set(parts):
        raise BadConfiguration(
            f"{text!r} is no path for a Mac: it must begin with / and have a name behind each one, "
            "without . and .."
        )
    return text


def removable(text: str) -> str:
    """Return a path that may be removed with all that it holds: never one of the root's own folders."""
    if path(text).count("/") < 2:
        raise BadConfiguration(f"{text} is a folder of the system and is never removed")
    return text
