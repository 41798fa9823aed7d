"""Sudo: a password is checked before sudo sees it, none is tried without one, and what cannot be one is never tried."""

from __future__ import annotations

import pytest

from bramley.base.errors import BadConfiguration, NotConverged, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host.step import Confirming, Step
from bramley.host.steps.sudo import Sudo
from tests.unit.host.steps import cases
from tests.unit.host.steps.cases import Case

STEP: Step = Sudo("m1", Secret("it's m1's"))
CASES = cases.load("sudo")
BARE = CASES[1]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_rule_is_written_where_it_is_missing(case: Case) -> None:
    case.check(STEP)


@pytest.mark.parametrize("password", [None, Secret("")])
def test_without_a_password_sudo_is_not_tried(password: Secret | None) -> None:
    step = Sudo("m1", password)

    with pytest.raises(UnsupportedHost, match=r"none was given.*bramley host prepare"):
        step.refuse(BARE.facts(step))


@pytest.mark.parametrize("password", ["<sealed>", "two\nlines", "x" * 256])
def test_what_cannot_be_a_password_is_refused_before_the_first_connection(password: str) -> None:
    with pytest.raises(BadConfiguration) as caught:
        Sudo("m1", Secret(password))

    assert password == "<sealed>" or password not in str(caught.value)


def test_a_rule_that_does_not_count_is_told_as_such() -> None:
    assert isinstance(STEP, Confirming)
    with pytest.raises(NotConverged, match="sudo still asks"):
        STEP.confirm(BARE.facts(STEP))

    STEP.confirm(CASES[0].facts(STEP))


def test_the_plan_shows_no_password() -> None:
    assert "it's m1's" not in repr(list(STEP.plan(BARE.facts(STEP))))
