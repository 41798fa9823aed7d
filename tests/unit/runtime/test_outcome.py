from __future__ import annotations

from datetime import timedelta

import pytest

from bramley.base import errors
from bramley.runtime.outcome import CheckAgain, Requeue, Settled, result_of

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("error", "outcome", "requeue"),
    [
        (errors.Unavailable("x"), "unavailable", Requeue.WITH_BACKOFF),
        (errors.ApiUnavailable("x"), "unavailable", Requeue.WITH_BACKOFF),
        (errors.TimedOut("x"), "unavailable", Requeue.WITH_BACKOFF),
        (errors.LeaseLost("x"), "unavailable", Requeue.WITH_BACKOFF),
        (errors.RateLimited("x", after=MINUTE), "rate_limited", Requeue.AFTER),
        (errors.Conflict("x"), "conflict", Requeue.AT_ONCE),
        (errors.NotFound("x"), "bug", Requeue.WITH_BACKOFF),
        (errors.AlreadyExists("x"), "bug", Requeue.WITH_BACKOFF),
        (errors.Gone("x"), "bug", Requeue.WITH_BACKOFF),
        (errors.Refused("x"), "refused", Requeue.ON_CHANGE),
        (errors.InvalidSpec("x"), "refused", Requeue.ON_CHANGE),
        (errors.Forbidden("x"), "refused", Requeue.ON_CHANGE),
        (errors.HostUnreachable("x"), "unavailable", Requeue.WITH_BACKOFF),
        (errors.CommandFailed("x"), "failed", Requeue.WITH_BACKOFF),
        (errors.NotConverged("x"), "failed", Requeue.WITH_BACKOFF),
        (errors.UnsupportedHost("x"), "refused", Requeue.ON_CHANGE),
        (errors.HostKeyChanged("x"), "refused", Requeue.ON_CHANGE),
        (errors.BramleyError("x"), "failed", Requeue.WITH_BACKOFF),
        (KeyError("x"), "bug", Requeue.WITH_BACKOFF),
    ],
)
def test_every_error_has_a_result(error: Exception, outcome: str, requeue: Requeue) -> None:
    result = result_of(error)

    assert (result.outcome, result.requeue) == (outcome, requeue)
    assert result.reason == type(error).__name__
    assert result.is_bug == (outcome == "bug")


def test_every_error_class_has_a_result() -> None:
    """A new branch of the error tree must be given a result on purpose."""
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
    assert result_of(Settled()).requeue is Requeue.ON_CHANGE
    result = result_of(CheckAgain(MINUTE, "booting"))
    assert (result.requeue, result.after, result.why) == (Requeue.AFTER, MINUTE, "booting")


def test_rate_limited_key_waits_as_long_as_the_server_demands() -> None:
    assert result_of(errors.RateLimited("x", after=MINUTE)).after == MINUTE


@pytest.mark.parametrize(
    ("group", "outcome"),
    [
        ([errors.Conflict("x"), errors.ApiUnavailable("x")], "unavailable"),
        ([errors.Refused("x"), errors.Conflict("x")], "conflict"),
        ([errors.Refused("x"), ZeroDivisionError()], "bug"),
        ([errors.Refused("x"), ExceptionGroup("inner", [KeyError()])], "bug"),
    ],
)
def test_worst_error_of_a_group_decides(group: list[Exception], outcome: str) -> None:
    assert result_of(ExceptionGroup("several", group)).outcome == outcome
