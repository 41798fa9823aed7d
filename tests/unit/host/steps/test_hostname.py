"""The Mac's names: each is set only if it differs, and Bonjour's is one label."""

from __future__ import annotations

import pytest

from bramley.host.facts import Facts, RunResult
from bramley.host.step import Step
from bramley.host.steps.hostname import Hostname
from tests.unit.host.steps import cases
from tests.unit.host.steps.cases import Case

STEP: Step = Hostname("mac-01")


@pytest.mark.parametrize("case", cases.load("hostname"), ids=str)
def test_plan_matches_case(case: Case) -> None:
    case.check(STEP)


@pytest.mark.parametrize(
    ("node", "label"), [("mac.rack1.example", "mac-rack1-example"), ("a" * 62 + ".b", "a" * 62)]
)
def test_bonjour_name_is_one_label(node: str, label: str) -> None:
    step = Hostname(node)
    nothing = Facts({probe: RunResult(1) for probe in step.probes()})

    commands = [cases.command_text(command) for command in step.plan(nothing)]

    assert f"sudo scutil --set LocalHostName {label}" in commands
