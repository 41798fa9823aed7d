"""The steps towards a VM's end: ask the guest, stop it by force, write down how it ended, and have that acknowledged.

Nothing of a VM is removed before the API server has acknowledged its end.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec

from bramley.agent.guest.report import finished_at
from bramley.agent.ledger.records import VmState
from bramley.agent.pods import activity, end_records, fields, status
from bramley.agent.pods.observation import Process
from bramley.agent.pods.observing import process_of
from bramley.agent.pods.turn import TROUBLE, Turn
from bramley.api.names import events, guest
from bramley.base import errors, log
from bramley.runtime.outcome import CheckAgain, Outcome

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
    known = end_records.End(
        ended=over,
        reported=reported,
        at=at,
        was_late=activity.was_late(turn.pod, at, means),
        was_rebooted=record.boot_id != means.host.boot_id(),
    )
    ended = end_records.ended(record, known)
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
        exit=end_records.exit_of(record),
        started_at=record.started_at,
        finished_at=record.ended_at or turn.means.clock.now(),
        reason=end_records.pod_reason(record),
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
