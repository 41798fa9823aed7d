"""The error tree: one word per way of failing, shared by code, conditions and metrics.

BramleyError
├── Unavailable              the outside is down; retried with backoff
│   ├── ApiUnavailable       the Kubernetes API did not answer, or answered 5xx
│   ├── TimedOut             a deadline passed before the answer came
│   ├── LeaseLost            another process holds the lease; act no more
│   └── HostUnreachable      no connection to a Mac, or it broke; what ran last may have happened
├── CommandFailed            a command on a Mac failed; retried with backoff
├── NotConverged             a step ran, and the Mac is still not as wanted: a bug or a fight
├── RateLimited              told to wait; retried when the wait is over
├── Conflict                 written on a stale version; retried at once from a fresh read
├── NotFound                 the thing is not there
├── AlreadyExists            the thing is there already
├── Gone                     a resourceVersion or continue token is too old; list again
└── Refused                  will not get better by itself; waits for a change
    ├── InvalidSpec          the object breaks a rule; carries the field causes
    ├── BadRequest           the request itself is malformed
    ├── Unauthorized         nobody, or nobody known
    │   └── LoginRefused     a Mac does not take this user's keys or password
    ├── Forbidden            known, but not allowed
    ├── UnsupportedHost      this Mac cannot be what is wanted of it, as it is
    ├── HostKeyChanged       another host key than the pinned one; nothing was sent
    └── BadConfiguration     a setting, file or flag is unusable as it is

Waiting is not in this tree: a reconciler that has to wait returns `CheckAgain`.
A test keeps the drawing equal to the classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Self


class Captured:
    """Captures an exception raised in the block, so that a bug in code of others ends only that call.

    Cancellation and the exit of the process are not captured.
    """

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if isinstance(error, Exception):
            self.error = error
            return True
        return False


class BramleyError(Exception):
    """Everything that Bramley raises on purpose; the class name is the reason shown to people."""

    @property
    def reason(self) -> str:
        """One CamelCase word for conditions, events and metrics."""
        return type(self).__name__


class Unavailable(BramleyError):
    """The outside is down; trying again later may help."""


class ApiUnavailable(Unavailable):
    """The Kubernetes API did not answer, or answered that it cannot serve now."""


class TimedOut(Unavailable):
    """A deadline passed before the answer came; whether the act happened is unknown."""


class LeaseLost(Unavailable):
    """Another process holds the lease now, so nothing more may be done under it."""


class HostUnreachable(Unavailable):
    """There is no connection to a Mac, or it broke; whether the last command happened is unknown."""


class CommandFailed(BramleyError):
    """A command on a Mac failed; the message names the host, the purpose and a redacted, bounded end of what it said."""


class NotConverged(BramleyError):
    """All commands of a step went well and the Mac is still not as wanted: a bug, or somebody else changes it back."""


class RateLimited(BramleyError):
    """The outside asked us to wait for `after` before the next try."""

    def __init__(self, message: str, *, after: timedelta) -> None:
        super().__init__(message)
        self.after = after


class Conflict(BramleyError):
    """The write was based on a version that is no longer the current one."""


class NotFound(BramleyError):
    """The thing asked for does not exist."""


class AlreadyExists(BramleyError):
    """The thing to be created exists already."""


class Gone(BramleyError):
    """The version asked for is no longer kept; list again from now."""


class Refused(BramleyError):
    """Trying again changes nothing; only a change of the object, or of what it refers to, does."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One broken rule: which field, which kind of breach, and the sentence for people."""

    field: str
    reason: str
    message: str


class InvalidSpec(Refused):
    """The object breaks a rule of its kind; `causes` names every field."""

    def __init__(self, message: str, *, causes: tuple[Cause, ...] = ()) -> None:
        super().__init__(message)
        self.causes = causes


class BadRequest(Refused):
    """The request is malformed and was not looked at further."""


class Unauthorized(Refused):
    """The caller did not prove who it is."""


class LoginRefused(Unauthorized):
    """A Mac does not take the keys or the password of the user who logs in, or who uses sudo there."""


class Forbidden(Refused):
    """The caller is known and may not do this; `causes` says why, where the server does."""

    def __init__(self, message: str, *, causes: tuple[Cause, ...] = ()) -> None:
        super().__init__(message)
        self.causes = causes


class UnsupportedHost(Refused):
    """A Mac cannot become what is wanted of it, as it is; the message says what to change."""


class HostKeyChanged(Refused):
    """A Mac shows another host key than the one that was pinned: reinstalled, or not that Mac. Nothing was sent to it."""


class BadConfiguration(Refused):
    """A setting, a file or a flag cannot be used as it is; the message says what to do."""
