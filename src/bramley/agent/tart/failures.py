"""The errors of tart, classified by exit code and by fragments of its messages; whole lines change between releases.

A missing VM is not an error: `get` returns None and `delete` succeeds. A missing program is `programs.ProgramMissing`, and a call
that was killed at its deadline is `errors.TimedOut`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bramley.agent.programs import ProgramResult
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


class NotEnoughSpace(NoSpace):
    """An operation was not started, or was stopped, because it would fill the disk; `needed` and `free` are bytes."""

    def __init__(self, operation: str, *, needed: int, free: int, is_reclaimed: bool) -> None:
        super().__init__(operation, code=0, stderr="")
        self.needed = needed
        self.free = free
        remedy = (
            "everything that the agent may delete is deleted; remove other files or VMs"
            if is_reclaimed
            else "garbage collection is disabled on this host; delete images or VMs that are not needed"
        )
        figures = f"at least {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
        self.args = (f"not enough disk space: tart {operation} needs {figures}; {remedy}",)


class LimitReached(TartFailed):
    """The system refuses to run one more VM."""


class NoSession(TartFailed):
    """There is no GUI session, or its keychain is locked."""


class AlreadyRunning(TartFailed):
    """Another process already runs this VM."""


class IsRunning(TartFailed):
    """The VM runs, so it cannot be deleted or pushed."""


class IncompleteVm(TartFailed):
    """The VM's folder is incomplete; tart neither lists nor deletes it."""


class Disturbed(TartFailed):
    """Another process changed or deleted a VM while tart read all of them; a repeated command succeeds."""


class Throttled(TartFailed):
    """The registry answered 429 or 5xx, which tart does not retry."""


class Unusable(TartFailed):
    """A retry cannot succeed: tart does not support the image's format or the host's version, or a size is out of range."""


class UnreadableOutput(TartFailed):
    """tart succeeded, and its output cannot be parsed."""


_MISSING = "does not exist"
_NOT_RUNNING = "is not running"
_INCOMPLETE = ("is missing some of its files", "missing files for a supported layout")

# Matched in this order: a full disk or a missing session is the cause of the other messages in the same output.
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
    (AlreadyRunning, ("is already running", "Failed to lock auxiliary storage")),
    (IsRunning, ('" is running',)),
    (IncompleteVm, _INCOMPLETE),
    (
        Disturbed,
        (
            "config.json\N{RIGHT DOUBLE QUOTATION MARK} doesn\N{RIGHT SINGLE QUOTATION MARK}t exist",
            "config.json\N{RIGHT DOUBLE QUOTATION MARK} couldn\N{RIGHT SINGLE QUOTATION MARK}t be opened",
            "isn\N{RIGHT SINGLE QUOTATION MARK}t in the correct format",
        ),
    ),
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


def failure(operation: str, finished: ProgramResult) -> TartFailed:
    """Return the error for a command that failed."""
    return _kind(finished)(operation, code=finished.code, stderr=finished.stderr.strip())


def is_missing(finished: ProgramResult) -> bool:
    """Return whether tart reported that the VM or image does not exist; a shell's "not found" has another exit code."""
    return finished.code == 2 and _MISSING in finished.stderr


def is_not_running(finished: ProgramResult) -> bool:
    """Return whether tart reported that the VM does not run."""
    return finished.code == 2 and _NOT_RUNNING in finished.stderr


def start_failure(code: int, output: str) -> TartFailed | None:
    """Return why a `tart run` failed to start, by its exit code and last output; None if it did not fail."""
    if code == 0:
        return None
    return failure("run", ProgramResult(code=code, stderr=output))


class RunEnd(StrEnum):
    """How a `tart run` ended, by what it printed: its exit code is 0 in all of these cases."""

    HALTED = "halted"  # the guest shut down
    CRASHED = "crashed"
    DISCONNECTED = "disconnected"  # the network of the VM was lost
    STOPPED = "stopped"  # by SIGINT, which `tart stop` sends
    SUSPENDED = "suspended"  # by SIGUSR1, which `tart suspend` sends


@dataclass(frozen=True, slots=True)
class EndLine:
    """The line of tart's output that shows how a run ended, shortened."""

    end: RunEnd
    text: str


# A crash has the same line, followed by its error.
_HALT = "guest has stopped the virtual machine"
# All fragments must be in one line.
_ENDS: tuple[tuple[RunEnd, tuple[str, ...]], ...] = (
    (RunEnd.HALTED, (_HALT,)),
    (RunEnd.DISCONNECTED, ("network attachment", "has been disconnected")),
    (RunEnd.STOPPED, ("Stopping VM",)),
    (RunEnd.SUSPENDED, ("pausing VM to take a snapshot",)),
)
_MAX_LINE_LENGTH = 500


def end_of_run(output: str) -> EndLine | None:
    """Return how a run ended by its last output; None if that does not show it.

    The first line counts, because the others follow from it. A clean end counts only without any other: a VM that was being
    stopped while its guest halted has not ended by itself.
    """
    found = [each for line in output.splitlines() if (each := _end_line(line)) is not None]
    others = (each for each in found if each.end is not RunEnd.HALTED)
    return next(others, found[0] if found else None)


def _end_line(line: str) -> EndLine | None:
    for end, fragments in _ENDS:
        if all(fragment in line for fragment in fragments):
            # Whatever the words are: on a full disk the line may be cut off.
            is_crash = end is RunEnd.HALTED and any(map(str.isalpha, line.partition(_HALT)[2]))
            return EndLine(RunEnd.CRASHED if is_crash else end, _quotable(line))
    return None


def _quotable(line: str) -> str:
    """Return a line for people and terminals: short, and without control characters."""
    text = line.strip()[:_MAX_LINE_LENGTH]
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def _kind(finished: ProgramResult) -> type[TartFailed]:
    if finished.code == _USAGE:
        return Unusable
    if finished.code < 0:
        return TartFailed
    for kind, fragments in _FRAGMENTS:
        if any(fragment in finished.stderr for fragment in fragments):
            return kind
    return TartFailed
