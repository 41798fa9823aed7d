"""How much a test looks at that has a number of its own: all of it, or its share where a run is to be fast."""

from __future__ import annotations

from hypothesis import settings


def share() -> float:
    """Return the share of examples that hypothesis' profile asks for: 1, and less under `fast`."""
    asked, usual = (each.max_examples for each in (settings(), settings.get_profile("default")))
    return min(1.0, asked / usual)


def examples(number: int) -> int:
    """Return how many examples to look at where all are so many."""
    return max(1, round(number * share()))
