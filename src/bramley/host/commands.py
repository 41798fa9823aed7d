"""The vocabulary of host steps: what may be done on a Mac, and what may be asked of it, as data.

A step yields commands and never speaks shell. One place renders them to POSIX sh for a real connection; the simulated Mac answers
the same words in process. Values are compared and shown, so secrets stay in their own type; `purpose` is for people, in progress
and in errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from bramley.base.secret import Secret
from bramley.host.artifacts import Artifact

SOON = timedelta(seconds=60)
ROOT = "root:wheel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Run one program to its end; any other exit code than those of `accepts` is a failure.

    `as_root` goes through sudo: with `sudo_password`, which is sent on stdin before everything else, or without any. With a
    `prompt` the program runs on a terminal without echo and, once it has printed that prompt, gets `stdin` as a line: its end is
    added. `refusal` is for a program whose failure means that trying again does not help: it is what people are told then. With
    `else_go_on` a failure stops nothing, since the step tells from its facts whether it mattered; what the program said is told then.
    """

    argv: tuple[str, ...]
    purpose: str
    as_root: bool = False
    sudo_password: Secret | None = None
    stdin: bytes | Secret = b""
    prompt: str = ""
    accepts: tuple[int, ...] = (0,)
    refusal: str = ""
    else_go_on: bool = False
    within: timedelta = SOON


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Put these bytes into a file at once: a temporary name, owner and mode, `check`, a sync, then the rename.

    `check` is a program that must accept the temporary file, whose path stands for the word `{}`. `before` is what the Mac has
    now, for the shown difference; it is not sent.
    """

    path: str
    content: bytes | Secret
    purpose: str
    mode: int = 0o644
    owner: str = ROOT
    check: tuple[str, ...] = ()
    # Not in the repr: what a Mac has in the place of a secret is one too.
    before: bytes | None = field(default=None, repr=False)
    sudo_password: Secret | None = None
    within: timedelta = SOON


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Bring an artifact to a path: in blocks to a temporary name, its size and SHA-256 verified on the Mac, then the rename.

    `within` is for how long no block may be taken: all of it takes as long as those who share the line let it.
    """

    artifact: Artifact
    path: str
    purpose: str
    mode: int = 0o644
    owner: str = ROOT
    within: timedelta = timedelta(minutes=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Make a folder with its parents, or give it this mode and owner."""

    path: str
    purpose: str
    mode: int = 0o755
    owner: str = ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Let a symbolic link point to a target; one that exists is replaced at once."""

    path: str
    target: str
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """Give a file or folder another name on the same volume; what has that name, if it is a file, is replaced at once."""

    path: str
    to: str
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Remove a file, or a folder with all that it holds; nothing there is fine."""

    path: str
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """Note in a folder what it holds, as its digest, so that a later Find of its digest tells whether it still does."""

    path: str
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Ask again and again until the answer says yes: this exit code and, if given, `text` in the output.

    In time it did not: a failure that says so, or nothing if `else_go_on`, since the step then tells it from its facts.
    """

    look: Look
    purpose: str
    text: str = ""
    code: int = 0
    every: timedelta = timedelta(seconds=1)
    within: timedelta = timedelta(seconds=30)
    else_go_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reboot:
    """Restart the Mac and wait until it has come back as another boot."""

    purpose: str
    within: timedelta = timedelta(minutes=10)


Command = Run | Write | Stream | Folder | Link | Rename | Remove | Seal | Wait | Reboot


@dataclass(frozen=True, slots=True)
class Look:
    """Ask a program that changes nothing; the answer is its exit code and the beginning of its output."""

    argv: tuple[str, ...]
    as_root: bool = field(default=False, kw_only=True)
    most: int = field(default=64 * 1024, kw_only=True)
    within: timedelta = field(default=timedelta(seconds=20), kw_only=True)


@dataclass(frozen=True, slots=True)
class LookAt:
    """Read a file; the answer says whether it is there, and its first `most` bytes.

    `only` is for a file that holds a secret: one that does not begin with these bytes is answered as empty, and nothing of it
    leaves the Mac.
    """

    path: str
    as_root: bool = field(default=False, kw_only=True)
    most: int = field(default=256 * 1024, kw_only=True)
    only: bytes = field(default=b"", kw_only=True)


@dataclass(frozen=True, slots=True)
class Find:
    """Ask what is at a path: a file, a folder or a link, its mode, owner and size, a link's target, and a SHA-256 if wanted.

    That of a file is of its content; that of a folder of the names, sizes, modes and links in it, and of what was written to since
    it was sealed.
    """

    path: str
    digest: bool = field(default=False, kw_only=True)


Probe = Look | LookAt | Find
