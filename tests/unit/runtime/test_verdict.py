from __future__ import annotations

from datetime import timedelta

import pytest

from bramley.base import errors
from bramley.runtime.outcome import CheckAgain, Settled
from bramley.runtime.verdict import Then, judge

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("error", "outcome", "then"),
    [
        (errors.Unavailable("x"), "unavailable", Then.BACK_OFF),
        (errors.ApiUnavailable("x"), "unavailable", Then.BACK_OFF),
        (errors.TimedOut("x"), "unavailable", Then.BACK_OFF),
        (errors.LeaseLost("x"), "unavailable", Then.BACK_OFF),
        (errors.RateLimited("x", after=MINUTE), "rate_limited", Then.AFTER),
        (errors.Conflict("x"), "conflict", Then.AT_ONCE),
        (errors.NotFound("x"), "bug", Then.BACK_OFF),
        (errors.AlreadyExists("x"), "bug", Then.BACK_OFF),
        (errors.Gone("x"), "bug", Then.BACK_OFF),
        (errors.Refused("x"), "refused", Then.REST),
        (errors.InvalidSpec("x"), "refused", Then.REST),
        (errors.Forbidden("x"), "refused", Then.REST),
        (errors.HostUnreachable("x"), "unavailable", Then.BACK_OFF),
        (errors.CommandFailed("x"), "failed", Then.BACK_OFF),
        (errors.NotConverged("x"), "failed", Then.BACK_OFF),
        (errors.UnsupportedHost("x"), "refused", Then.REST),
        (errors.HostKeyChanged("x"), "refused", Then.REST),
        (errors.BramleyError("x"), "failed", Then.BACK_OFF),
        (KeyError("x"), "bug", Then.BACK_OFF),
    ],
)
def test_every_error_has_its_consequence(error: Exception, outcome: str, then: Then) -> None:
    verdict = judge(error)

    assert (verdict.outcome, verdict.then) == (outcome, then)
    assert verdict.reason == type(error).__name__
    assert verdict.is_bug == (outcome == "bug")


def test_every_error_class_is_judged() -> None:
    """A new branch of the error tree must be given a consequence on purpose."""
    known = {
        errors.Unavailable,
        errors.CommandFailed,
        errors.NotConverged,
        errors.RateLimited,
        errors.Conflict,
        errors.NotFound,
        errors.AlreadyExists,
        errors.Gone,
        errors.Refused,
    }

    assert known == set(errors.BramleyError.__subclasses__()) & _declared_in_the_tree()


def _declared_in_the_tree() -> set[type]:
    return {value for value in vars(errors).values() if isinstance(value, type)}


def test_waiting_is_no_failure() -> None:
    assert judge(Settled()).then is Then.REST
    verdict = judge(CheckAgain(MINUTE, "booting"))
    assert (verdict.then, verdict.after, verdict.why) == (Then.AFTER, MINUTE, "booting")


def test_told_to_wait_waits_that_long() -> None:
    assert judge(errors.RateLimited("x", after=MINUTE)).after == MINUTE


@pytest.mark.parametrize(
    ("group", "outcome"),
    [
        ([errors.Conflict("x"), errors.ApiUnavailable("x")], "unavailable"),
        ([errors.Refused("x"), errors.Conflict("x")], "conflict"),
        ([errors.Refused("x"), ZeroDivisionError()], "bug"),
        ([errors.Refused("x"), ExceptionGroup("inner", [KeyError()])], "bug"),
    ],
)
def test_of_several_errors_the_one_that_promises_least_decides(
    group: list[Exception], outcome: str
) -> None:
    assert judge(ExceptionGroup("several", group)).outcome == outcome
