"""Failures for people: one line that says what is wrong and what to do, and an exit code; the traceback on request."""

from __future__ import annotations

import logging
import os
import sys
import traceback

from bramley.base.errors import (
    ApiUnavailable,
    BramleyError,
    CommandFailed,
    Conflict,
    Forbidden,
    HostUnreachable,
    LoginRefused,
    NotConverged,
    Refused,
    Unauthorized,
)

FAILED = 1
UNUSABLE = 2
BUG = 70
STOPPED = 130
LEVEL = "BRAMLEY_LOG_LEVEL"

# What people can do about each kind; the first that fits counts, so a kind stands above those that it is a kind of.
_ADVICE: tuple[tuple[type[Exception], int, str], ...] = (
    (ApiUnavailable, FAILED, "; try again once the server runs, or with another kubeconfig"),
    (HostUnreachable, FAILED, "; see that this Mac is on and can be reached, then try again"),
    (CommandFailed, FAILED, "; mend that, and the same command takes it up again"),
    # It says itself what the other one did, and what to do.
    (Conflict, FAILED, ""),
    (LoginRefused, UNUSABLE, ""),
    (Forbidden, UNUSABLE, "; use the kubeconfig of somebody who may do this"),
    (Unauthorized, UNUSABLE, "; use the kubeconfig of somebody who may do this"),
    (Refused, UNUSABLE, ""),
    (NotConverged, FAILED, "; mend that, and the same command takes it up again"),
    (BramleyError, FAILED, "; try again"),
)


def tell(program: str, error: Exception) -> int:
    """Print the failure on standard error and return the exit code for it."""
    cause = _innermost(error)
    code, told = _judged(cause)
    print(f"{program}: {told}", file=sys.stderr)  # noqa: T201 - this is where people look
    if _is_debugged():
        traceback.print_exception(error)
    return code


def _judged(error: Exception) -> tuple[int, str]:
    for kind, code, advice in _ADVICE:
        if isinstance(error, kind):
            return code, f"{error}{advice}"
    if isinstance(error, OSError):
        place = f" ({error.filename})" if error.filename else ""
        return FAILED, f"{error.strerror or error}{place}; mend that and try again"
    told = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    return (
        BUG,
        f"this is a bug: {told}; please report it with the output of the same command and {LEVEL}=debug",
    )


def _is_debugged() -> bool:
    """Tell whether somebody wants to know more; a command that logs nothing has no flag for it."""
    # One of the variables that flags have, looked at here for those commands that have not got this one.
    wanted = os.environ.get(LEVEL, "").lower() == "debug"
    return wanted or logging.getLogger().isEnabledFor(logging.DEBUG)


def _innermost(error: Exception) -> Exception:
    # A TaskGroup wraps what its tasks raise; the first of them is what people can act on.
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
