"""The commands and probes of host steps, as data.

A step yields commands and contains no shell. `host.rendering` translates them to POSIX sh for a real connection; the simulated Mac
executes the same values in process. Values are compared and printed, so secrets keep their own type; `purpose` is printed in progress
and errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from bramley.base.secret import Secret
from bramley.host.artifacts import Artifact

DEFAULT_TIMEOUT = timedelta(seconds=60)
ROOT = "root:wheel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Run one program to its end; any exit code outside `accepted_codes` is a failure.

    `as_root` uses sudo, with `sudo_password` sent first on stdin, or without a password. With a `prompt`, the program runs on a
    terminal without echo and receives `stdin` as one line (the newline is added) once it has printed that prompt. With a
    `stdin_variable`, the program gets `stdin`, without final newlines, in this environment variable instead; on the Mac only the
    program's user and root can read it. `refusal` is the error message if a failure is permanent, so that a retry would not help. With
    `ignore_failure` the run continues after a failure, because the step decides from its facts; the output is added to the step's
    error, if there is one.
    """

    argv: tuple[str, ...]
    purpose: str
    as_root: bool = False
    sudo_password: Secret | None = None
    stdin: bytes | Secret = b""
    prompt: str = ""
    stdin_variable: str = ""
    accepted_codes: tuple[int, ...] = (0,)
    refusal: str = ""
    ignore_failure: bool = False
    timeout: timedelta = DEFAULT_TIMEOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Write a file atomically: temporary name, owner and mode, `check`, sync, then rename.

    `check` is a program that must accept the temporary file; the word `{}` stands for its path. `before` is the current content,
    for the shown diff; it is not sent.
    """

    path: str
    content: bytes | Secret
    purpose: str
    mode: int = 0o644
    owner: str = ROOT
    check: tuple[str, ...] = ()
    # Not in the repr: the current content of a secret file is a secret too.
    before: bytes | None = field(default=None, repr=False)
    sudo_password: Secret | None = None
    timeout: timedelta = DEFAULT_TIMEOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Upload an artifact: in blocks to a temporary name, verify its size and SHA-256 on the Mac, then rename.

    `timeout` limits how long the transfer may stall; the whole transfer may take as long as the shared bandwidth requires.
    """

    artifact: Artifact
    path: str
    purpose: str
    mode: int = 0o644
    owner: str = ROOT
    timeout: timedelta = timedelta(minutes=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Create a folder with its parents, or set its mode and owner."""

    path: str
    purpose: str
    mode: int = 0o755
    owner: str = ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Create a symbolic link, or replace an existing one atomically."""

    path: str
    target: str
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """Rename a file or folder on the same volume; an existing file of the new name is replaced atomically."""

    path: str
    to: str
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Remove a file, or a folder with its contents; succeeds if nothing exists at the path."""

    path: str
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """Write the digest of a folder's contents into the folder, so that a later Stat with a digest detects changes."""

    path: str
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Repeat a probe until it returns this exit code and, if given, its output contains `text`.

    A timeout is a failure, unless `ignore_failure` is set because the step decides from its facts.
    """

    probe: RunProbe
    purpose: str
    text: str = ""
    code: int = 0
    interval: timedelta = timedelta(seconds=1)
    timeout: timedelta = timedelta(seconds=30)
    ignore_failure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reboot:
    """Reboot the Mac and wait until it is reachable with a new boot session."""

    purpose: str
    timeout: timedelta = timedelta(minutes=10)


# The commands that can share a round trip with others: they need no answer while they run.
Batchable = Run | Write | Folder | Link | Rename | Remove | Seal | Wait
Command = Batchable | Stream | Reboot


@dataclass(frozen=True, slots=True)
class RunProbe:
    """Run a read-only program; the result is its exit code and the beginning of its output."""

    argv: tuple[str, ...]
    as_root: bool = field(default=False, kw_only=True)
    max_bytes: int = field(default=64 * 1024, kw_only=True)
    timeout: timedelta = field(default=timedelta(seconds=20), kw_only=True)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Read the first `max_bytes` bytes of a file; the result is None if the file does not exist.

    `prefix` is for a file that contains a secret: if the file does not begin with these bytes, the result is empty and no content
    leaves the Mac.
    """

    path: str
    as_root: bool = field(default=False, kw_only=True)
    max_bytes: int = field(default=256 * 1024, kw_only=True)
    prefix: bytes = field(default=b"", kw_only=True)


@dataclass(frozen=True, slots=True)
class Stat:
    """Return what exists at a path: its kind, mode, owner and size, a link's target, and with `digest` a SHA-256.

    The digest of a file covers its content; that of a folder covers names, sizes, modes and links in it, and files modified since
    the folder was sealed.
    """

    path: str
    digest: bool = field(default=False, kw_only=True)


Probe = RunProbe | ReadFile | Stat
