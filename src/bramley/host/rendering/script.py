"""What a rendered command is: one command line for a Mac's shell, and what is said to it once it runs."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path

from bramley.api.names import host as names
from bramley.base.secret import Secret, SecretBytes
from bramley.host.rendering import quoting

# How parts call the file that a folder is sealed with.
SEAL = f"seal={names.SEAL}\n"
_SHELL = Path(__file__).parent / "shell"
# The remote side gives up a little later than we do, so that it is we who tell why.
_GRACE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A command for a Mac's shell.

    `token` is printed once the command has begun, that is when sudo let it; `asks` is what sudo prints to ask for a password.
    `given` is what the command then takes from the line.
    """

    line: str
    token: str
    given: SecretBytes
    asks: str = ""


def compose(*texts: str) -> str:
    """Return one script of these texts, with the programs of a Mac on its path and their answers in English."""
    path = quoting.quote(names.SEARCH_PATH)
    return f"set -u\nPATH=$PATH:{path} LC_ALL=C\nexport PATH LC_ALL\n{''.join(texts)}"


@cache
def part(name: str) -> str:
    """Return a part of scripts without its comments, which nobody needs to send."""
    lines = (_SHELL / f"{name}.sh").read_text().splitlines()
    kept = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return "\n".join(kept) + "\n"


def as_user(text: str, *arguments: str) -> str:
    """Return the command line that runs a script as the user who logs in."""
    return "exec " + quoting.line("/bin/sh", "-c", text, "sh", *arguments)


def as_root(text: str, *arguments: str, asks: str = "") -> str:
    """Return the command line that runs a script as root; with `asks`, sudo may print that and then read a password."""
    sudo = ("sudo", "-S", "-p", asks) if asks else ("sudo", "-n")
    return "exec " + quoting.line(*sudo, "--", "/bin/sh", "-c", text, "sh", *arguments)


def encode(*pieces: bytes) -> SecretBytes:
    """Return the pieces as a script takes them from the line."""
    return SecretBytes(b",".join(base64.b64encode(piece) for piece in pieces))


def content_of(content: bytes | Secret) -> bytes:
    """Return the bytes that are to arrive."""
    if isinstance(content, SecretBytes):
        return content.reveal_bytes()
    return content.reveal().encode() if isinstance(content, Secret) else content


def seconds(within: timedelta) -> str:
    """Return after how many seconds the remote side gives up by itself."""
    return str(max(1, round((within + _GRACE).total_seconds())))
