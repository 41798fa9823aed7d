"""Exit codes and error messages: one line that states what is wrong and what to do, and a traceback with debug logging."""

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
LOG_LEVEL_VARIABLE = "BRAMLEY_LOG_LEVEL"

# Exit code and advice per error class. The first match counts, so a subclass comes before its base class.
_ADVICE: tuple[tuple[type[Exception], int, str], ...] = (
    (ApiUnavailable, FAILED, "; try again once the server runs, or with another kubeconfig"),
    (HostUnreachable, FAILED, "; check that the Mac is on and reachable, then try again"),
    (CommandFailed, FAILED, "; fix the cause, then run the same command again to continue"),
    # Its message already contains the advice.
    (Conflict, FAILED, ""),
    (LoginRefused, UNUSABLE, ""),
    (Forbidden, UNUSABLE, "; use the kubeconfig of a user with this permission"),
    (Unauthorized, UNUSABLE, "; use the kubeconfig of a user with this permission"),
    (Refused, UNUSABLE, ""),
    (NotConverged, FAILED, "; fix the cause, then run the same command again to continue"),
    (BramleyError, FAILED, "; try again"),
)


def report(program: str, error: Exception) -> int:
    """Print an error on standard error and return its exit code."""
    cause = _innermost(error)
    code, message = _classify(cause)
    print(f"{program}: {message}", file=sys.stderr)  # noqa: T201 - the output of the program
    if _is_debug():
        traceback.print_exception(error)
    return code


def _classify(error: Exception) -> tuple[int, str]:
    for kind, code, advice in _ADVICE:
        if isinstance(error, kind):
            return code, f"{error}{advice}"
    if isinstance(error, OSError):
        file_name = f" ({error.filename})" if error.filename else ""
        return FAILED, f"{error.strerror or error}{file_name}; fix this and try again"
    summary = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    return (
        BUG,
        f"this is a bug: {summary}; please report it with the output of the same command and {LOG_LEVEL_VARIABLE}=debug",
    )


def _is_debug() -> bool:
    """Return whether debug logging is on, by `--log-level` or its variable."""
    # The variable is read here for commands without that flag.
    by_variable = os.environ.get(LOG_LEVEL_VARIABLE, "").lower() == "debug"
    return by_variable or logging.getLogger().isEnabledFor(logging.DEBUG)


def _innermost(error: Exception) -> Exception:
    # A TaskGroup wraps the errors of its tasks; the first one is usually the cause.
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
