"""What a reconcile returns when nothing failed, and how each outcome or error requeues the key.

Waiting is a value and failing is an exception. Settled and refused keys wait for a change, `CheckAgain` for its time, failures
for their backoff, and conflicts are retried at once. Any error that is not a BramleyError is a bug, and so is one that should
have been handled where it was raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from bramley.base import errors


@dataclass(frozen=True, slots=True)
class Settled:
    """The object is converged; the next change enqueues its key again."""


@dataclass(frozen=True, slots=True)
class CheckAgain:
    """Not converged yet: requeue `after` this time, because of `why`."""

    after: timedelta
    why: str


Outcome = Settled | CheckAgain


class Requeue(Enum):
    """When the key is queued again."""

    ON_CHANGE = "on change"
    AFTER = "after"
    AT_ONCE = "at once"
    WITH_BACKOFF = "with backoff"


@dataclass(frozen=True, slots=True)
class Result:
    """How a reconcile ended, as metrics and logs show it, and when its key is queued again."""

    outcome: str
    reason: str
    requeue: Requeue
    after: timedelta = timedelta()
    is_bug: bool = False
    why: str = ""


SETTLED = Result("settled", "", Requeue.ON_CHANGE)

# The first class that matches decides, so subclasses must come before their base classes.
_ERRORS: tuple[tuple[type[errors.BramleyError], str, Requeue], ...] = (
    (errors.Unavailable, "unavailable", Requeue.WITH_BACKOFF),
    (errors.RateLimited, "rate_limited", Requeue.AFTER),
    (errors.Conflict, "conflict", Requeue.AT_ONCE),
    (errors.Refused, "refused", Requeue.ON_CHANGE),
    (errors.NotFound, "bug", Requeue.WITH_BACKOFF),
    (errors.AlreadyExists, "bug", Requeue.WITH_BACKOFF),
    (errors.Gone, "bug", Requeue.WITH_BACKOFF),
    (errors.BramleyError, "failed", Requeue.WITH_BACKOFF),
)

# The error of an exception group that comes first here decides.
_WORST_FIRST = ("bug", "failed", "unavailable", "rate_limited", "conflict", "refused")


def result_of(outcome: Outcome | Exception) -> Result:
    """Return the result of a reconcile that ended with this outcome or error."""
    if isinstance(outcome, Settled):
        return SETTLED
    if isinstance(outcome, CheckAgain):
        return Result("check_again", "", Requeue.AFTER, after=outcome.after, why=outcome.why)
    # A task group of the reconciler may fail in several ways at once.
    if isinstance(outcome, ExceptionGroup):
        results = [result_of(error) for error in outcome.exceptions]
        return min(results, key=lambda result: _WORST_FIRST.index(result.outcome))
    return _result_of_error(outcome)


def _result_of_error(error: Exception) -> Result:
    name, why = type(error).__name__, str(error)
    for kind, outcome, requeue in _ERRORS:
        if isinstance(error, kind):
            after = error.after if isinstance(error, errors.RateLimited) else timedelta()
            return Result(outcome, name, requeue, after, is_bug=outcome == "bug", why=why)
    return Result("bug", name, Requeue.WITH_BACKOFF, is_bug=True, why=why)
