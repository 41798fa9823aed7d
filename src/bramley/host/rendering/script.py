"""A rendered command: one command line for a Mac's shell and its input; quoting, and the fragments that scripts are composed of.

Names are validated long before (`host.grammar`); here only values are refused that no quoting could make safe.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path

from bramley.api.names import host as names
from bramley.base.errors import BadConfiguration
from bramley.base.secret import Secret, SecretBytes

# How the fragments refer to the file that seals a folder.
SEAL = f"seal={names.SEAL}\n"
_SHELL = Path(__file__).parent / "shell"
# The remote timeout is a little longer than ours, so that our error message is the one that is reported.
_GRACE = timedelta(seconds=5)
# Every shell, zsh included, takes these characters literally.
_PLAIN = re.compile(r"[A-Za-z0-9_./:,-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A command for a Mac's shell.

    `token` is printed once the command has started, that is after sudo has allowed it; `sudo_prompt` is the prompt of sudo for a
    password. `input` is what the command reads from standard input.
    """

    line: str
    token: str
    input: SecretBytes
    sudo_prompt: str = ""


def compose(*texts: str) -> str:
    """Return one script of these texts, with the program folders of a Mac in PATH and output in English."""
    path = quote(names.SEARCH_PATH)
    return f"set -u\nPATH=$PATH:{path} LC_ALL=C\nexport PATH LC_ALL\n{''.join(texts)}"


@cache
def fragment(name: str) -> str:
    """Return a shell fragment without its comments, which need not be sent."""
    lines = (_SHELL / f"{name}.sh").read_text().splitlines()
    code_lines = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return "\n".join(code_lines) + "\n"


def as_user(text: str, *arguments: str) -> str:
    """Return the command line that runs a script as the login user."""
    return "exec " + command_line("/bin/sh", "-c", text, "sh", *arguments)


def as_root(text: str, *arguments: str, sudo_prompt: str = "") -> str:
    """Return the command line that runs a script as root; with `sudo_prompt`, sudo may print that and then read a password."""
    sudo = ("sudo", "-S", "-p", sudo_prompt) if sudo_prompt else ("sudo", "-n")
    return "exec " + command_line(*sudo, "--", "/bin/sh", "-c", text, "sh", *arguments)


def encode(content: bytes) -> SecretBytes:
    """Return the content as a script reads it from standard input."""
    return SecretBytes(base64.b64encode(content))


def content_of(content: bytes | Secret) -> bytes:
    """Return the bytes of a content that may be secret."""
    if isinstance(content, SecretBytes):
        return content.reveal_bytes()
    return content.reveal().encode() if isinstance(content, Secret) else content


def remote_seconds(timeout: timedelta) -> str:
    """Return the timeout of the remote side in seconds."""
    return str(max(1, round((timeout + _GRACE).total_seconds())))


def quote(word: str) -> str:
    """Return a word that every shell reads as exactly this text."""
    if "\0" in word:
        raise BadConfiguration("a word of a command contains a NUL byte, which no program accepts")
    if _PLAIN.fullmatch(word):
        return word
    return "'" + word.replace("'", "'\\''") + "'"


def command_line(*words: str) -> str:
    """Return a command line of these words."""
    return " ".join(quote(word) for word in words)


def checked_program(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return a program with its arguments; refuse an invalid program name."""
    if not argv or not argv[0] or argv[0].startswith("-"):
        raise BadConfiguration(f"{argv[:1]} is not the name of a program")
    return argv


def checked_path(text: str) -> str:
    """Return an absolute path; refuse one that could be read as an option or that has empty, . or .. parts."""
    parts = text.split("/")
    if not text.startswith("/") or not all(parts[1:]) or {".", ".."} & set(parts):
        raise BadConfiguration(
            f"{text!r} is not a valid path on a Mac: it must begin with / and have a name after each /, "
            "without . and .."
        )
    return text


def checked_removable_path(text: str) -> str:
    """Return a path that may be removed with its contents; refuse top-level folders."""
    if checked_path(text).count("/") < 2:
        raise BadConfiguration(f"{text} is a folder of the system and must not be removed")
    return text
