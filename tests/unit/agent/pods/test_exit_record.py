"""The exit of a VM in its record, also as read by an agent that did not observe it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from bramley.agent.guest.report import Report, finished_at
from bramley.agent.ledger import VmRecord, VmState
from bramley.agent.pods import status, teardown_steps
from bramley.agent.pods.teardown_steps import VmExit
from bramley.agent.runs import RunExit
from bramley.agent.tart.failures import EndLine, RunEnd
from bramley.api.names import agent

BEGAN = datetime(2026, 7, 1, 12, tzinfo=UTC)
NOW = BEGAN + timedelta(hours=1)
RECORD = VmRecord(
    vm="default-runner-0123456789ab",
    namespace="default",
    pod="runner",
    uid="u-1",
    image="runner",
    state=VmState.STARTED,
    started_at=BEGAN,
)


def end(
    code: int | None = None,
    reported: int | None = None,
    *,
    end_of_run: RunEnd | None = RunEnd.HALTED,
    minutes: int = 30,
    was_past_deadline: bool = False,
    was_rebooted: bool = False,
    **marks: bool,
) -> VmRecord:
    at = BEGAN + timedelta(minutes=minutes)
    ended = None if code is None else RunExit(code, at)
    report = Report(reported, at if reported is not None else None)
    known = VmExit(
        ended=ended,
        reported=report,
        at=finished_at(ended, report, started=BEGAN, now=NOW),
        end_line=None if end_of_run is None else EndLine(end_of_run, f"it has {end_of_run}"),
        was_past_deadline=was_past_deadline,
        was_rebooted=was_rebooted,
    )
    return teardown_steps.with_exit(msgspec.structs.replace(RECORD, **marks), known)


CASES = [
    pytest.param(end(0, 0), "Succeeded", 0, agent.COMPLETED, agent.RUN_EXITED, id="well"),
    pytest.param(end(0, 3), "Failed", 3, agent.ERROR, agent.RUN_EXITED, id="the guest says 3"),
    pytest.param(end(0), "Succeeded", 0, agent.RUN_EXITED, agent.RUN_EXITED, id="silent halt"),
    pytest.param(
        end(0, end_of_run=None), "Failed", 1, agent.RUN_LOST, agent.RUN_EXITED, id="no output"
    ),
    pytest.param(
        end(0, end_of_run=RunEnd.CRASHED),
        "Failed",
        1,
        agent.GUEST_CRASHED,
        agent.GUEST_CRASHED,
        id="crash",
    ),
    pytest.param(
        end(0, end_of_run=RunEnd.DISCONNECTED),
        "Failed",
        1,
        agent.NETWORK_LOST,
        agent.NETWORK_LOST,
        id="lost network",
    ),
    pytest.param(
        end(0, end_of_run=RunEnd.STOPPED),
        "Failed",
        137,
        agent.STOPPED,
        agent.STOPPED,
        id="stopped by others",
    ),
    pytest.param(
        end(0, was_shut_down=True),
        "Failed",
        143,
        agent.STOPPED,
        agent.STOPPED,
        id="shut down by the agent",
    ),
    pytest.param(
        end(0, end_of_run=RunEnd.STOPPED, was_shut_down=True, was_powered_off=True),
        "Failed",
        137,
        agent.STOPPED,
        agent.STOPPED,
        id="powered off by the agent",
    ),
    pytest.param(
        end(
            0,
            end_of_run=RunEnd.STOPPED,
            was_shut_down=True,
            was_powered_off=True,
            was_past_deadline=True,
        ),
        "Failed",
        137,
        agent.DEADLINE_EXCEEDED,
        agent.DEADLINE_EXCEEDED,
        id="powered off at its active deadline",
    ),
    pytest.param(end(1), "Failed", 1, agent.RUN_FAILED, agent.RUN_EXITED, id="tart fails"),
    pytest.param(end(-9), "Failed", 137, agent.RUN_FAILED, agent.RUN_EXITED, id="tart killed"),
    pytest.param(end(), "Failed", 1, agent.RUN_LOST, agent.RUN_EXITED, id="exit unknown"),
    pytest.param(
        end(was_rebooted=True),
        "Failed",
        1,
        agent.HOST_REBOOTED,
        agent.HOST_REBOOTED,
        id="the host was rebooted",
    ),
    pytest.param(
        end(0, 0, was_past_deadline=True),
        "Failed",
        0,
        agent.DEADLINE_EXCEEDED,
        agent.DEADLINE_EXCEEDED,
        id="too late, even if well",
    ),
    pytest.param(
        end(0, 0, was_past_deadline=False),
        "Succeeded",
        0,
        agent.COMPLETED,
        agent.RUN_EXITED,
        id="just in time",
    ),
]


@pytest.mark.parametrize(("record", "phase", "code", "reason", "pod_reason"), CASES)
def test_record_has_the_whole_exit(
    record: VmRecord, phase: str, code: int, reason: str, pod_reason: str
) -> None:
    exit = teardown_steps.recorded_exit(record)

    assert record.state is VmState.ENDED
    assert (exit.phase, exit.code, exit.reason) == (phase, code, reason)
    assert teardown_steps.pod_reason(record) == pod_reason


def test_signal_that_killed_tart_is_kept() -> None:
    assert teardown_steps.recorded_exit(end(-9)) == status.Exit(
        "Failed", 137, agent.RUN_FAILED, signal=9
    )


def test_report_of_the_guest_wins_over_a_reboot() -> None:
    record = end(reported=4, was_rebooted=True)

    assert (record.exit_code, record.exit_reason) == (4, agent.ERROR)


def test_finish_time_is_that_of_its_source() -> None:
    assert end(0).ended_at == BEGAN + timedelta(minutes=30)
    assert end().ended_at == NOW


def test_message_names_the_log() -> None:
    assert RECORD.vm + ".log" in end(1).exit_message


def test_message_quotes_how_the_run_ended() -> None:
    assert "it has crashed" in end(0, end_of_run=RunEnd.CRASHED).exit_message
    assert "by others" in end(0, end_of_run=RunEnd.STOPPED).exit_message
    powered_off = end(0, end_of_run=RunEnd.STOPPED, was_powered_off=True)
    assert "the agent powered the VM off" in powered_off.exit_message
