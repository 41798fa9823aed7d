"""The error tree: one class per kind of failure, whose name is also the reason in conditions and metrics.

BramleyError
├── Unavailable              an external system is down; retried with backoff
│   ├── ApiUnavailable       the Kubernetes API did not answer, or answered 5xx
│   ├── GitHubUnavailable    GitHub did not answer, or answered 5xx
│   ├── ProviderUnavailable  the provider of Macs did not answer, or answered 5xx
│   ├── HostBusy             a host is in a transition and refuses the request; nothing was changed
│   ├── TimedOut             a deadline passed before the response
│   ├── LeaseLost            another process holds the lease
│   └── HostUnreachable      no connection to a Mac, or it broke; the result of the last command is unknown
├── CommandFailed            a command on a Mac failed; retried with backoff
├── NotConverged             a step ran, and the Mac is still not converged
├── RateLimited              the server requested a wait; retried after it
├── Conflict                 written on a stale version; retried at once from a fresh read
├── NotFound                 the object does not exist
├── AlreadyExists            the object exists already
├── Gone                     a resourceVersion or continue token is too old; list again
└── Refused                  a retry does not help; waits for a change
    ├── InvalidSpec          the object is invalid; has the field causes
    ├── BadRequest           the request itself is malformed
    ├── Unauthorized         the caller is not authenticated
    │   └── LoginRefused     a Mac rejects this user's keys or password
    ├── Forbidden            the caller is authenticated, but not allowed
    ├── UnsupportedHost      this Mac does not meet the requirements
    ├── HostKeyChanged       not the pinned host key; nothing was sent
    └── BadConfiguration     a setting, file or flag is invalid

Waiting is not in this tree: a reconciler that has to wait returns `CheckAgain`.
A test checks that this drawing equals the classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
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

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if isinstance(error, Exception):
            self.error = error
            return True
        return False


class BramleyError(Exception):
    """Base of all errors that Bramley raises on purpose; the class name is the reason shown to users."""

    @property
    def reason(self) -> str:
        """Return the reason for conditions, events and metrics."""
        return type(self).__name__


class Unavailable(BramleyError):
    """An external system is down; a later retry may help."""


class ApiUnavailable(Unavailable):
    """The Kubernetes API did not answer, or answered 5xx."""


class GitHubUnavailable(Unavailable):
    """GitHub did not answer, or answered 5xx."""


class ProviderUnavailable(Unavailable):
    """The provider of Macs did not answer, answered 5xx, or answered what cannot be decoded."""


class HostBusy(Unavailable):
    """A host is in a transition, such as a reboot, during which the provider refuses the request; nothing was changed."""


class TimedOut(Unavailable):
    """A deadline passed before the response; whether the request was processed is unknown."""


class LeaseLost(Unavailable):
    """Another process holds the lease; this process must stop acting."""


class HostUnreachable(Unavailable):
    """There is no connection to a Mac, or it broke; whether the last command ran is unknown."""


class CommandFailed(BramleyError):
    """A command on a Mac failed; the message names the host, the purpose and the redacted, bounded end of its output."""


class NotConverged(BramleyError):
    """All commands of a step succeeded and the Mac is still not converged: a bug, or another program changes it back."""


class RateLimited(BramleyError):
    """The server requested to wait for `after` before the next attempt."""

    def __init__(self, message: str, *, after: timedelta) -> None:
        super().__init__(message)
        self.after = after


class Conflict(BramleyError):
    """The write was based on a version that is no longer the current one."""


class NotFound(BramleyError):
    """The requested object does not exist."""


class AlreadyExists(BramleyError):
    """The object to create exists already."""


class Gone(BramleyError):
    """The requested resourceVersion is no longer available; list again."""


class Refused(BramleyError):
    """A retry does not help; only a change of the object, or of what it refers to, does."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One violation: the field, the reason and the message."""

    field: str
    reason: str
    message: str


class InvalidSpec(Refused):
    """The object is invalid; `causes` names every field."""

    def __init__(self, message: str, *, causes: tuple[Cause, ...] = ()) -> None:
        super().__init__(message)
        self.causes = causes


class BadRequest(Refused):
    """The request is malformed."""


class Unauthorized(Refused):
    """The caller is not authenticated."""


class LoginRefused(Unauthorized):
    """A Mac rejects the keys or the password of the user, for login or for sudo."""


class Forbidden(Refused):
    """The caller is authenticated and not allowed to do this; `causes` has the server's reasons, if any."""

    def __init__(self, message: str, *, causes: tuple[Cause, ...] = ()) -> None:
        super().__init__(message)
        self.causes = causes


class UnsupportedHost(Refused):
    """A Mac does not meet the requirements; the message says what to change."""


class HostKeyChanged(Refused):
    """A Mac has another host key than the pinned one: reinstalled, or not that Mac. Nothing was sent to it."""


class BadConfiguration(Refused):
    """A setting, a file or a flag is invalid; the message says what to do."""
