"""Scales the number of examples of a test by the profile of hypothesis, for fast runs."""

from __future__ import annotations

from hypothesis import settings


def share() -> float:
    """Return the fraction of examples that the profile requests: 1, or less under `fast`."""
    requested, usual = (each.max_examples for each in (settings(), settings.get_profile("default")))
    return min(1.0, requested / usual)


def examples(number: int) -> int:
    """Return the scaled number of examples."""
    return max(1, round(number * share()))
