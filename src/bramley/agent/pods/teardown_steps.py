"""The steps towards a VM's end: ask the guest, stop it by force, write down how it ended, and have that acknowledged.

Nothing of a VM is removed before the API server has acknowledged its end.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from bramley.agent.guest.report import Report, finished_at
from bramley.agent.ledger import VmRecord, VmState
from bramley.agent.pods import fields, observation, status
from bramley.agent.pods.context import TROUBLE, Turn
from bramley.agent.pods.decision import Process
from bramley.agent.pods.observation import process_of
from bramley.agent.runs import Ended
from bramley.api.names import agent, events, finalizers, guest
from bramley.base import errors, log
from bramley.runtime.keys import key_of
from bramley.runtime.outcome import CheckAgain, Outcome, Settled


async def delete_vm(turn: Turn) -> Outcome | None:
    """Delete the VM; it counts as gone only when its folder is."""
    logger.info("Deleting VM", vm=turn.vm)
    await turn.means.tart.delete(turn.vm)
    if observation.has_bundle(turn.vm, turn.means):
        raise errors.Unavailable(f"VM {turn.vm} was deleted and is still there")
    return None


async def remove_data(turn: Turn) -> Outcome | None:
    """Remove what the guest was given, secrets first."""
    try:
        await turn.means.guests.forget(turn.vm)
    except OSError as error:
        raise errors.Unavailable(f"user data of {turn.vm} cannot be removed: {error}") from error
    return None


async def forget_run(turn: Turn) -> Outcome | None:
    """Forget the run; how it ended is written down or of no use to anybody."""
    turn.means.runs.forget(turn.vm)
    return None


async def drop_record(turn: Turn) -> Outcome | None:
    """Forget the VM, and wake those who wait for its slot."""
    means = turn.means
    means.ledger.drop(turn.vm)
    for pod in means.pods.all():
        if pod.uid != turn.uid:
            means.bell.enqueue(key_of(pod))
    if turn.subject.pod is not None:
        turn.see(turn.subject.pod)
    return None


async def release(turn: Turn) -> Outcome | None:
    """Take our finalizer off: the VM is gone."""
    pod = turn.pod
    try:
        await turn.means.kube.remove_finalizer(pod, finalizers.VM_CLEANUP)
    except errors.NotFound:
        return Settled()
    left = [each for each in pod.metadata.finalizers if each != finalizers.VM_CLEANUP]
    metadata = msgspec.structs.replace(pod.metadata, finalizers=left)
    turn.see(msgspec.structs.replace(pod, metadata=metadata))
    return None


async def complete(turn: Turn) -> Outcome:
    """End the Pod's grace: a Pod that is bound to a Node stays until the Node's agent says so."""
    pod = turn.pod
    # With no grace left the server ends it itself, as soon as nobody else's finalizer keeps it.
    if pod.metadata.deletion_grace_period_seconds != 0:
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await turn.means.kube.delete(pod, grace=timedelta())
    turn.means.memory.forget(turn.uid)
    return Settled()


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


def with_exit(record: VmRecord, end: End) -> VmRecord:
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


def recorded_exit(record: VmRecord) -> status.Exit:
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


logger = log.get(__name__)

# The guest has had its grace before; this is only for tart to power it off.
STOP_GRACE = timedelta(seconds=10)
# A stop may hang in the framework for ever; then tart itself is killed.
STOP_LIMIT = timedelta(seconds=20)
ASK_LIMIT = timedelta(seconds=10)
DYING = timedelta(seconds=5)
_LOOK = 0.05
STUCK_POLL = timedelta(seconds=5)


async def ask(turn: Turn) -> Outcome | None:
    """Ask the guest to shut down; what it answers does not matter, for its time runs from now on."""
    means, grace = turn.means, fields.grace(turn.pod)
    turn.notes.asked_at = means.clock.monotonic()
    means.exits.follow(turn.vm, turn.key)
    turn.tell(
        events.STOPPING_VM, f"Stopping VM {turn.vm}, whose guest has {grace.total_seconds():g} s"
    )
    try:
        said = await means.tart.exec(turn.vm, guest.SHUTDOWN, min(ASK_LIMIT, grace))
    except TROUBLE as error:
        logger.info("Guest not asked", vm=turn.vm, error=str(error))
    else:
        logger.info("Guest asked to shut down", vm=turn.vm, code=said.code)
    return None


async def stop(turn: Turn) -> Outcome | None:
    """Power the VM off, and kill it if that does not help."""
    means, vm = turn.means, turn.vm
    logger.info("Stopping VM", vm=vm)
    try:
        async with asyncio.timeout(STOP_LIMIT.total_seconds()):
            await means.tart.stop(vm, STOP_GRACE)
    except (*TROUBLE, TimeoutError) as error:
        logger.warning("VM does not stop", vm=vm, error=str(error))
    if await _is_dead(turn, timedelta(seconds=1)):
        return None
    means.runs.kill(vm)
    if await _is_dead(turn, DYING):
        return None
    logger.error("VM cannot be killed", vm=vm)
    return CheckAgain(STUCK_POLL, "the VM cannot be killed")


async def end(turn: Turn) -> Outcome | None:
    """Write down how the VM ended, before anything that tells of it goes."""
    means, record = turn.means, turn.record
    guests = means.guests
    over, reported = means.runs.ended(turn.vm), guests.report(turn.vm)
    at = finished_at(over, reported, started=record.started_at, now=means.clock.now())
    known = End(
        ended=over,
        reported=reported,
        at=at,
        was_late=observation.was_past_deadline(turn.pod, at, means),
        was_rebooted=record.boot_id != means.host.boot_id(),
    )
    ended = with_exit(record, known)
    means.ledger.put(ended)
    guests.tell_log(turn.vm)
    turn.tell(events.RUN_EXITED, ended.exit_message)
    return None


async def report(turn: Turn) -> Outcome | None:
    """Tell the API server how the VM ended; only its acknowledgement lets the rest go."""
    record, pod = turn.record, turn.pod
    said = status.terminated(
        pod,
        turn.facts(),
        exit=recorded_exit(record),
        started_at=record.started_at,
        finished_at=record.ended_at or turn.means.clock.now(),
        reason=pod_reason(record),
        message=record.exit_message,
    )
    try:
        await turn.say(said)
    except errors.Refused as error:
        # A Pod that is to go must go, also if the server does not want to hear how it ended.
        if not pod.deleting:
            raise
        logger.warning("End not taken by the server", vm=turn.vm, error=str(error))
    turn.means.ledger.put(msgspec.structs.replace(record, state=VmState.REPORTED))
    return None


async def _is_dead(turn: Turn, within: timedelta) -> bool:
    means = turn.means
    ends = means.clock.monotonic() + within.total_seconds()
    while process_of(turn.vm, None, means) is Process.ALIVE:
        if means.clock.monotonic() >= ends:
            return False
        await asyncio.sleep(_LOOK)
    return True
