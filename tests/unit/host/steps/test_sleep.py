"""Sleep is off for every power source, and the session stays open."""

from __future__ import annotations

import pytest

from bramley.host.step import Step
from bramley.host.steps.sleep import Sleep
from tests.unit.host.steps import cases
from tests.unit.host.steps.cases import Case

STEP: Step = Sleep()


@pytest.mark.parametrize("case", cases.load("sleep"), ids=str)
def test_plan_matches_case(case: Case) -> None:
    case.check(STEP)
