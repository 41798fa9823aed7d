"""Sudo: the password is checked before sudo gets it; a missing or impossible password is never tried."""

from __future__ import annotations

import pytest

from bramley.base.errors import BadConfiguration, NotConverged, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host.step import Step, VerifyingStep
from bramley.host.steps.sudo import Sudo
from tests.unit.host.steps import cases
from tests.unit.host.steps.cases import Case

STEP: Step = Sudo("m1", Secret("it's m1's"))
CASES = cases.load("sudo")
BARE = CASES[1]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_plan_matches_case(case: Case) -> None:
    case.check(STEP)


@pytest.mark.parametrize("password", [None, Secret("")])
def test_missing_password_is_refused_without_a_sudo_attempt(password: Secret | None) -> None:
    step = Sudo("m1", password)

    with pytest.raises(UnsupportedHost, match=r"none was given.*bramley host prepare"):
        step.check_supported(BARE.facts(step))


@pytest.mark.parametrize("password", ["<sealed>", "two\nlines", "x" * 256])
def test_impossible_password_is_refused_before_the_first_connection(password: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        Sudo("m1", Secret(password))

    assert password == "<sealed>" or password not in str(caught.value)


def test_ineffective_rule_is_reported() -> None:
    assert isinstance(STEP, VerifyingStep)
    with pytest.raises(NotConverged, match="sudo still requires a password"):
        STEP.verify(BARE.facts(STEP))

    STEP.verify(CASES[0].facts(STEP))


def test_plan_does_not_contain_the_password() -> None:
    assert "it's m1's" not in repr(list(STEP.plan(BARE.facts(STEP))))
