"""Automatic login: the password is checked, written and verified; loginwindow is restarted only where that ends no session or VM."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bramley.base.errors import BadConfiguration, NotConverged, UnsupportedHost
from bramley.base.secret import Secret
from bramley.host import kcpassword, loginwindow, shared_probes
from bramley.host.facts import Facts, RunResult
from bramley.host.steps.auto_login import AutoLogin
from tests.unit.host.steps import cases
from tests.unit.host.steps.cases import Case

STEP = AutoLogin("m1", Secret("hello"))
STEP_WITHOUT_PASSWORD = AutoLogin("m1")
CASES = {case.name: case for case in cases.load("auto_login")}
CONVERGED = CASES["converged"]
NO_SESSION = CASES["missing session is started without a password"]
REJECTED = {"sudo read /etc/kcpassword": kcpassword.MARKER}


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_plan_matches_case(case: Case) -> None:
    case.check(STEP)


def test_rejected_password_is_refused_until_a_new_one_is_given() -> None:
    """The session may still exist and everything else be converged: the next login would fail."""
    facts = replace(CONVERGED, overrides=REJECTED).facts(STEP_WITHOUT_PASSWORD)

    with pytest.raises(UnsupportedHost, match=r"as wrong.*provide the correct one"):
        STEP_WITHOUT_PASSWORD.check_supported(facts)


def test_missing_setup_without_a_password_is_refused() -> None:
    bare = CASES["bare Mac gets the checked password, then the user, then a session"]

    with pytest.raises(UnsupportedHost, match="is not set up, and no password was given"):
        STEP_WITHOUT_PASSWORD.check_supported(bare.facts(STEP_WITHOUT_PASSWORD))


def test_session_is_started_without_a_password() -> None:
    NO_SESSION.check(STEP_WITHOUT_PASSWORD)


def test_password_rejected_by_loginwindow_is_reported() -> None:
    """The directory accepted it: only the marker shows it."""
    with pytest.raises(UnsupportedHost, match=r"^the password is wrong: loginwindow"):
        STEP.verify(replace(NO_SESSION, overrides={**NO_SESSION.overrides, **REJECTED}).facts(STEP))


def test_missing_session_is_an_error() -> None:
    with pytest.raises(NotConverged, match="m1 was not logged in within 30 s"):
        STEP.verify(NO_SESSION.facts(STEP))

    STEP.verify(CONVERGED.facts(STEP))


def test_unreadable_session_is_an_error_with_the_answer_of_launchctl() -> None:
    unreadable = CASES["unreadable session is probed again and not ended"].facts(STEP)

    with pytest.raises(NotConverged) as caught:
        STEP.verify(unreadable)

    assert str(caught.value) == (
        "whether m1 is logged in at the Mac is unknown: `sudo launchctl print gui/501` ended with code 1: Could not print domain: "
        "1: Operation not permitted; loginwindow was not restarted, because that would end a session; make that command work, "
        "then run this again"
    )


def test_setup_that_cannot_be_read_is_not_reported_as_missing() -> None:
    setting = "sudo defaults read /Library/Preferences/com.apple.loginwindow autoLoginUser"
    refused = {setting: [1, "sudo: a password is required"]}
    facts = replace(CONVERGED, overrides=refused).facts(STEP_WITHOUT_PASSWORD)

    with pytest.raises(UnsupportedHost, match=r"is unknown \(.*sudo: a password is required\)"):
        STEP_WITHOUT_PASSWORD.check_supported(facts)


def test_login_is_pending_while_vms_run() -> None:
    busy = CASES["loginwindow is not restarted while VMs run"].facts(STEP)

    assert STEP.pending(busy).startswith("LoginPending: m1 is not logged in")
    STEP.verify(busy)
    assert STEP.pending(CONVERGED.facts(STEP)) == ""
    assert STEP.pending(NO_SESSION.facts(STEP)) == ""


def test_session_of_another_uid_is_probed() -> None:
    other = replace(
        CONVERGED, overrides={"id -u m1": "601", "sudo launchctl print gui/501": ""}
    ).facts(STEP)
    assert list(STEP.follow_up_probes(other)) == [loginwindow.session_probe(601)]
    assert list(STEP.follow_up_probes(CONVERGED.facts(STEP))) == []

    alive = other.merged(Facts({loginwindow.session_probe(601): RunResult(0, b"session = Aqua")}))
    gone = other.merged(Facts({loginwindow.session_probe(601): RunResult(112)}))

    assert list(STEP.plan(alive)) == []
    assert cases.command_text(list(STEP.plan(gone))[-1]).startswith(
        "wait sudo launchctl print gui/601"
    )


@pytest.mark.parametrize("password", ["<sealed>", "two\nlines"])
def test_impossible_password_is_refused_before_the_first_connection(password: str) -> None:
    with pytest.raises(BadConfiguration):
        AutoLogin("m1", Secret(password))


def test_plan_contains_neither_the_password_nor_the_file() -> None:
    bare = CASES["password of another user is replaced"]

    shown = repr(list(STEP.plan(bare.facts(STEP))))

    assert "hello" not in shown
    assert "15ec3e4f" not in shown
    assert repr(kcpassword.encode(Secret("hello")))[2:-1] not in shown


def test_only_the_marker_of_the_password_file_is_read() -> None:
    assert loginwindow.MARKER_PROBE.prefix == kcpassword.MARKER == bytes.fromhex("41fa3742bed9b9d4")
    assert loginwindow.MARKER_PROBE.max_bytes == len(kcpassword.MARKER)
    assert not loginwindow.PASSWORD_FILE.digest


@pytest.mark.parametrize(("code", "runs"), [(0, True), (1, False), (2, True), (127, True)])
def test_failed_vm_probe_counts_as_running_vms(code: int, runs: bool) -> None:
    assert shared_probes.vms_may_run(Facts({shared_probes.RUNNING_VMS: RunResult(code)})) is runs
