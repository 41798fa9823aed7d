"""How tart fails, told apart by exit code and fragment of its message; never by the whole line, which changes with releases.

A missing VM is no failure: `get` returns None and `delete` is done. A missing program is `programs.ProgramMissing`, and a
call that was killed for its deadline is `errors.TimedOut`.
"""

from __future__ import annotations

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
