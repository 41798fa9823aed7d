"""What follows from how a reconcile ended: the one table of outcomes and errors.

Settled and refused keys wait for a change, waiting keys for their time, failures for their backoff, conflicts for nothing.
Everything that is not an error of ours is a bug, and so is an error that should have been handled where it was raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from bramley.base import errors
from bramley.runtime.outcome import CheckAgain, Outcome, Settled


class Then(Enum):
    """What happens to the key."""

    REST = "rest"
    AFTER = "after"
    AT_ONCE = "at once"
    BACK_OFF = "back off"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the reconcile counts, what happens to its key, and whether people should hear of it."""

    outcome: str
    reason: str
    then: Then
    after: timedelta = timedelta()
    is_bug: bool = False
    why: str = ""


SETTLED = Verdict("settled", "", Then.REST)

# In this order: the first class that fits decides, so the narrow ones stand before the wide ones.
_ERRORS: tuple[tuple[type[errors.BramleyError], str, Then], ...] = (
    (errors.Unavailable, "unavailable", Then.BACK_OFF),
    (errors.RateLimited, "rate_limited", Then.AFTER),
    (errors.Conflict, "conflict", Then.AT_ONCE),
    (errors.Refused, "refused", Then.REST),
    (errors.NotFound, "bug", Then.BACK_OFF),
    (errors.AlreadyExists, "bug", Then.BACK_OFF),
    (errors.Gone, "bug", Then.BACK_OFF),
    (errors.BramleyError, "failed", Then.BACK_OFF),
)

# Of several errors at once the one that promises least decides.
_WORST_FIRST = ("bug", "failed", "unavailable", "rate_limited", "conflict", "refused")


def judge(result: Outcome | Exception) -> Verdict:
    """Return what follows from a reconcile's outcome or error."""
    if isinstance(result, Settled):
        return SETTLED
    if isinstance(result, CheckAgain):
        return Verdict("check_again", "", Then.AFTER, after=result.after, why=result.why)
    if isinstance(result, ExceptionGroup):
        verdicts = [judge(error) for error in result.exceptions]
        return min(verdicts, key=lambda verdict: _WORST_FIRST.index(verdict.outcome))
    return _judge_error(result)


def _judge_error(error: Exception) -> Verdict:
    name, why = type(error).__name__, str(error)
    for kind, outcome, then in _ERRORS:
        if isinstance(error, kind):
            after = error.after if isinstance(error, errors.RateLimited) else timedelta()
            return Verdict(outcome, name, then, after, is_bug=outcome == "bug", why=why)
    return Verdict("bug", name, Then.BACK_OFF, is_bug=True, why=why)
