from __future__ import annotations

from datetime import timedelta

import pytest

from bramley.base import errors


def test_the_reason_is_the_class_name() -> None:
    assert errors.Conflict("stale").reason == "Conflict"
    assert errors.RateLimited("slow down", after=timedelta(seconds=1)).reason == "RateLimited"


def test_facts_are_attributes() -> None:
    cause = errors.Cause("spec.replicas", "FieldValueInvalid", "must be at least 0")

    refusal = errors.InvalidSpec("RunnerPool is invalid", causes=(cause,))

    assert refusal.causes == (cause,)
    assert errors.RateLimited("slow down", after=timedelta(seconds=7)).after == timedelta(seconds=7)


@pytest.mark.parametrize("kind", [errors.ApiUnavailable, errors.TimedOut, errors.LeaseLost])
def test_transient_errors_are_unavailable(kind: type[errors.BramleyError]) -> None:
    assert issubclass(kind, errors.Unavailable)
    assert not issubclass(kind, errors.Refused)


@pytest.mark.parametrize(
    "kind", [errors.InvalidSpec, errors.BadRequest, errors.Unauthorized, errors.Forbidden]
)
def test_permanent_errors_are_refused(kind: type[errors.BramleyError]) -> None:
    assert issubclass(kind, errors.Refused)
