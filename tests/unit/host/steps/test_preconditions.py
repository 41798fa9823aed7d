"""Preconditions: a Mac that cannot become a Node is refused with all reasons, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from bramley.host.step import Step
from bramley.host.steps.preconditions import Limits, Preconditions
from tests.unit.host.steps import cases
from tests.unit.host.steps.cases import Case


@dataclass(frozen=True)
class NewYear:
    """A clock that stands still."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0


STEP: Step = Preconditions("m1", NewYear())


@pytest.mark.parametrize("case", cases.load("preconditions"), ids=str)
def test_a_mac_is_taken_or_refused(case: Case) -> None:
    case.check(STEP)


def test_the_limits_can_be_set() -> None:
    right = cases.load("preconditions")[0]
    strict = Case(
        name="strict", right=right.right, refused="macOS 26.3 is older than 27.1, the first"
    )

    strict.check(Preconditions("m1", NewYear(), Limits(oldest_macos=(27, 1))))
