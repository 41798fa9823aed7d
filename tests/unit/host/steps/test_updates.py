"""Automatic updates of macOS are off."""

from __future__ import annotations

import pytest

from bramley.host.step import Step
from bramley.host.steps.updates import Updates
from tests.unit.host.steps import cases
from tests.unit.host.steps.cases import Case

STEP: Step = Updates()


@pytest.mark.parametrize("case", cases.load("updates"), ids=str)
def test_plan_matches_case(case: Case) -> None:
    case.check(STEP)
