"""Automatic login: checked, written, tried, and looked at ever after; loginwindow is restarted only where that ends nobody's work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bramley.base.errors import BadConfiguration, NotConverged, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host import kcpassword, login, vms
from bramley.host.facts import Facts, Said
from bramley.host.steps.auto_login import AutoLogin
from tests.unit.host.steps import cases
from tests.unit.host.steps.cases import Case

STEP = AutoLogin("m1", Secret("hello"))
WITHOUT = AutoLogin("m1")
CASES = {case.name: case for case in cases.load("auto_login")}
RIGHT = CASES["as wanted"]
NO_SESSION = CASES["a Mac without a session gets one, and no password is needed for it"]
SEALED = {"sudo read /etc/kcpassword": kcpassword.MARKER}


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_the_user_is_logged_in_where_that_ends_nobodys_work(case: Case) -> None:
    case.check(STEP)


def test_a_sealed_password_is_told_at_every_look_and_a_new_one_asked_for() -> None:
    """The session may still be alive, and everything else be right: the next login would fail."""
    seen = replace(RIGHT, but=SEALED).facts(WITHOUT)

    with pytest.raises(UnsupportedHost, match=r"mark of a wrong password.*give the right one"):
        WITHOUT.refuse(seen)


def test_without_a_password_what_is_not_set_up_is_refused() -> None:
    bare = CASES[
        "a bare Mac gets the password once it has been found right, then the user, then a session"
    ]

    with pytest.raises(UnsupportedHost, match="is not set up, and no password was given"):
        WITHOUT.refuse(bare.facts(WITHOUT))


def test_without_a_password_a_mac_that_is_set_up_gets_its_session() -> None:
    NO_SESSION.check(WITHOUT)


def test_a_password_that_loginwindow_did_not_take_is_wrong() -> None:
    """The directory had taken it: only the marker tells."""
    with pytest.raises(UnsupportedHost, match=r"^the password is wrong: loginwindow"):
        STEP.confirm(replace(NO_SESSION, but={**NO_SESSION.but, **SEALED}).facts(STEP))


def test_a_session_that_did_not_come_is_an_error() -> None:
    with pytest.raises(NotConverged, match="nobody was logged in within 30 s"):
        STEP.confirm(NO_SESSION.facts(STEP))

    STEP.confirm(RIGHT.facts(STEP))


def test_a_session_that_must_wait_for_vms_is_told() -> None:
    busy = CASES["loginwindow is not restarted while VMs run"].facts(STEP)

    assert STEP.pending(busy).startswith("LoginPending: m1 is not logged in")
    STEP.confirm(busy)
    assert STEP.pending(RIGHT.facts(STEP)) == ""
    assert STEP.pending(NO_SESSION.facts(STEP)) == ""


def test_the_session_of_a_user_with_another_number_is_asked_for() -> None:
    other = replace(RIGHT, but={"id -u m1": "502", "launchctl print gui/501": ""}).facts(STEP)
    assert list(STEP.looks_further(other)) == [login.session_look(502)]
    assert list(STEP.looks_further(RIGHT.facts(STEP))) == []

    alive = other.and_then(Facts({login.session_look(502): Said(0, b"session = Aqua")}))
    gone = other.and_then(Facts({login.session_look(502): Said(113)}))

    assert list(STEP.plan(alive)) == []
    assert cases.shown(list(STEP.plan(gone))[-1]).startswith("wait launchctl print gui/502")


@pytest.mark.parametrize("password", ["<sealed>", "two\nlines"])
def test_what_cannot_be_a_password_is_refused_before_the_first_connection(password: str) -> None:
    with pytest.raises(BadConfiguration):
        AutoLogin("m1", Secret(password))


def test_no_plan_shows_the_password_or_what_the_file_holds() -> None:
    bare = CASES["the password of another user does not stay"]

    shown = repr(list(STEP.plan(bare.facts(STEP))))

    assert "hello" not in shown
    assert "15ec3e4f" not in shown
    assert repr(kcpassword.encode(Secret("hello")))[2:-1] not in shown


def test_of_the_password_file_only_the_marker_leaves_the_mac() -> None:
    assert login.MARKER.only == kcpassword.MARKER == bytes.fromhex("41fa3742bed9b9d4")
    assert login.MARKER.most == len(kcpassword.MARKER)
    assert not login.FOUND.digest


@pytest.mark.parametrize(("code", "runs"), [(0, True), (1, False), (2, True), (127, True)])
def test_an_unanswered_question_for_vms_counts_as_yes(code: int, runs: bool) -> None:
    assert vms.may_run(Facts({vms.PROBE: Said(code)})) is runs
