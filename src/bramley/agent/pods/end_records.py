"""How a VM ended, written into its record and read out of it again. Pure.

The record must tell the whole story, because the agent that reports an end may not be the one that saw it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from bramley.agent.guest.report import Report
from bramley.agent.ledger.records import VmRecord, VmState
from bramley.agent.pods import status
from bramley.agent.runs import Ended
from bramley.api.names import agent

# Reasons of ours that stand above what the guest or tart said.
_OURS = frozenset({agent.HOST_REBOOTED, agent.DEADLINE_EXCEEDED})
_SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class End:
    """What is known of an end: how the run ended, what the guest reported, when that was, and what happened around it."""

    ended: Ended | None
    reported: Report
    at: datetime
    was_late: bool = False
    was_rebooted: bool = False


def ended(record: VmRecord, end: End) -> VmRecord:
    """Return the record with how its VM ended; one that has reported nothing and that nobody watched has failed."""
    exit = status.exit_of(end.reported.code, end.ended)
    reason = exit.reason
    if end.was_late:
        reason = agent.DEADLINE_EXCEEDED
    elif end.was_rebooted and end.reported.code is None:
        reason = agent.HOST_REBOOTED
    return msgspec.structs.replace(
        record,
        state=VmState.ENDED,
        ended_at=end.at,
        exit_code=exit.code,
        exit_reason=reason,
        exit_message=_message(record, reason, exit.code),
    )


def exit_of(record: VmRecord) -> status.Exit:
    """Return how a VM ended, as its record tells."""
    code = 1 if record.exit_code is None else record.exit_code
    is_good = code == 0 and record.exit_reason not in _OURS
    killed = record.exit_reason == agent.RUN_FAILED and code > _SIGNALLED
    return status.Exit(
        status.SUCCEEDED if is_good else status.FAILED,
        code,
        record.exit_reason or agent.RUN_LOST,
        signal=code - _SIGNALLED if killed else 0,
    )


def pod_reason(record: VmRecord) -> str:
    """Return the reason that stands in the Pod's own status."""
    return record.exit_reason if record.exit_reason in _OURS else agent.RUN_EXITED


def _message(record: VmRecord, reason: str, code: int) -> str:
    told = {
        agent.HOST_REBOOTED: "the host was rebooted while the VM ran, and its disk never boots again",
        agent.DEADLINE_EXCEEDED: "the Pod was active longer than its activeDeadlineSeconds",
        agent.RUN_LOST: "the VM ended unseen and its guest reported nothing",
    }.get(reason, f"tart run ended with exit code {code}")
    return f"{told}; the host keeps the log of VM {record.vm} as {record.vm}.log"
