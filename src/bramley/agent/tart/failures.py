"""How tart fails, told apart by exit code and fragment of its message; never by the whole line, which changes with releases.

A missing VM is no failure: `get` returns None and `delete` is done. A missing program is `programs.ProgramMissing`, and a
call that was killed for its deadline is `errors.TimedOut`.
"""

from __future__ import annotations

from bramley.agent.programs import Finished
from bramley.base import errors


class TartFailed(errors.BramleyError):
    """A tart command ended with an error; `operation` is its verb, `code` its exit code, `stderr` the bounded tail."""

    def __init__(self, operation: str, *, code: int, stderr: str) -> None:
        super().__init__(f"tart {operation}: exit code {code} (stderr: {stderr})")
        self.operation = operation
        self.code = code
        self.stderr = stderr


class NoSpace(TartFailed):
    """The disk is full."""


class LimitReached(TartFailed):
    """The system refuses one more VM."""


class NoSession(TartFailed):
    """There is no GUI session, or its keychain is locked."""


class AlreadyRuns(TartFailed):
    """Somebody runs this VM."""


class IsRunning(TartFailed):
    """The VM runs, so it can be neither deleted nor pushed."""


class HalfMade(TartFailed):
    """The VM's folder lacks files; tart neither lists nor deletes it."""


class Throttled(TartFailed):
    """The registry answered 429 or 5xx, which tart does not retry."""


class Unusable(TartFailed):
    """What was asked can never work: the image is of a format or for a host that tart refuses, or a size is out of range."""


class Unintelligible(TartFailed):
    """tart ended well and said what nobody can read."""


_MISSING = "does not exist"
_NOT_RUNNING = "is not running"
_HALF_MADE = ("is missing some of its files", "missing files for a supported layout")

# Looked through in this order: what is said of the disk or of the session explains what is said besides.
_FRAGMENTS: tuple[tuple[type[TartFailed], tuple[str, ...]], ...] = (
    (
        NoSpace,
        (
            "No space left on device",
            "isn't enough space",
            "isn\N{RIGHT SINGLE QUOTATION MARK}t enough space",
            "database or disk is full",
        ),
    ),
    (
        LimitReached,
        (
            "number of VMs exceeds the system limit",
            "maximum supported number of active virtual machines",
            "VZErrorDomain Code=6 ",
        ),
    ),
    (
        NoSession,
        (
            "VZErrorDomain Code=-9",
            "VZErrorDomain Code=1 ",
            "HostKey",
            "status -25308",
            "User interaction is not allowed",
        ),
    ),
    (AlreadyRuns, ("is already running", "Failed to lock auxiliary storage")),
    (IsRunning, ('" is running',)),
    (HalfMade, _HALF_MADE),
    (Throttled, ("code: 429", "code: 500", "code: 502", "code: 503", "code: 504")),
    (
        Unusable,
        (
            "legacy disk media type",
            "host macOS version is outdated",
            "at minimum (requested",
            "should be larger",
            "directory sharing device configuration is invalid",
        ),
    ),
)
_USAGE = 64


def failure(operation: str, said: Finished) -> TartFailed:
    """Return the error that stands for how a command ended."""
    return _kind(said)(operation, code=said.code, stderr=said.stderr.strip())


def says_missing(said: Finished) -> bool:
    """Tell whether tart itself says that there is no such VM or image; a shell's "not found" is something else."""
    return said.code == 2 and _MISSING in said.stderr


def says_not_running(said: Finished) -> bool:
    """Tell whether tart says that the VM does not run."""
    return said.code == 2 and _NOT_RUNNING in said.stderr


def start_failure(code: int, said: str) -> TartFailed | None:
    """Return why a `tart run` failed to start, by its code and the last lines it printed; None if it did not fail."""
    if code == 0:
        return None
    return failure("run", Finished(code=code, stderr=said))


def _kind(said: Finished) -> type[TartFailed]:
    if said.code == _USAGE:
        return Unusable
    if said.code < 0:
        return TartFailed
    for kind, fragments in _FRAGMENTS:
        if any(fragment in said.stderr for fragment in fragments):
            return kind
    return TartFailed
