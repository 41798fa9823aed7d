"""The steps of a VM's end: shut down or stop it, record and report its exit, then remove everything.

Nothing of a VM is removed before the API server has acknowledged its exit. Each step can be repeated at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from bramley.agent import pod_fields
from bramley.agent.guest.report import Report, finished_at
from bramley.agent.ledger import LedgerUnavailable, VmRecord, VmState
from bramley.agent.pods import observation, status
from bramley.agent.pods.context import EXPECTED_ERRORS, PodContext
from bramley.agent.pods.decision import Process
from bramley.agent.runs import RunExit
from bramley.agent.tart import failures
from bramley.agent.tart.failures import EndLine, RunEnd
from bramley.api.names import agent, events, finalizers, guest
from bramley.base import errors, log
from bramley.runtime.keys import key_of
from bramley.runtime.outcome import CheckAgain, Outcome, Settled

logger = log.get(__name__)

# The guest's grace period is over by then; this is the time for tart to power it off.
STOP_GRACE = timedelta(seconds=10)
# `tart stop` may hang in the framework for ever; then tart itself is killed.
STOP_LIMIT = timedelta(seconds=20)
SHUTDOWN_LIMIT = timedelta(seconds=10)
KILL_LIMIT = timedelta(seconds=5)
_POLL_SECONDS = 0.05
UNKILLABLE_POLL = timedelta(seconds=5)
# Reasons of the agent; they take precedence over what the guest or tart reported.
_AGENT_REASONS = frozenset({agent.HOST_REBOOTED, agent.DEADLINE_EXCEEDED})
# Ends of a VM that are no exits of its guest; they are also the reason of the Pod.
_BROKEN_RUNS = frozenset({agent.GUEST_CRASHED, agent.NETWORK_LOST, agent.STOPPED})
_SIGNALLED = 128
# The error of a crash may have many lines.
_END_LINES = 200


@dataclass(frozen=True, slots=True)
class VmExit:
    """The facts of an exit: how the run ended, what the guest reported, when, and why the agent ended it, if it did."""

    ended: RunExit | None
    reported: Report
    at: datetime
    end_line: EndLine | None = None
    was_past_deadline: bool = False
    was_rebooted: bool = False


def with_exit(record: VmRecord, vm_exit: VmExit) -> VmRecord:
    """Return the record with the exit; a VM without a report and without a known exit code has failed.

    The record must hold all facts, because the agent that reports the exit may not be the one that observed it.
    """
    exit = status.exit_of(
        vm_exit.reported.code,
        vm_exit.ended,
        vm_exit.end_line.end if vm_exit.end_line else None,
        was_shut_down=record.was_shut_down,
        was_powered_off=record.was_powered_off,
    )
    reason = exit.reason
    if vm_exit.was_past_deadline:
        reason = agent.DEADLINE_EXCEEDED
    elif vm_exit.was_rebooted and vm_exit.reported.code is None:
        reason = agent.HOST_REBOOTED
    return msgspec.structs.replace(
        record,
        state=VmState.ENDED,
        ended_at=vm_exit.at,
        exit_code=exit.code,
        exit_reason=reason,
        exit_message=_message(record, reason, exit.code, vm_exit.end_line),
    )


def recorded_exit(record: VmRecord) -> status.Exit:
    """Return the exit that a record holds."""
    code = 1 if record.exit_code is None else record.exit_code
    is_success = code == 0 and record.exit_reason not in _AGENT_REASONS
    is_signalled = record.exit_reason == agent.RUN_FAILED and code > _SIGNALLED
    return status.Exit(
        status.SUCCEEDED if is_success else status.FAILED,
        code,
        record.exit_reason or agent.RUN_LOST,
        signal=code - _SIGNALLED if is_signalled else 0,
    )


def pod_reason(record: VmRecord) -> str:
    """Return the reason for the Pod's own status."""
    has_own_reason = record.exit_reason in _AGENT_REASONS | _BROKEN_RUNS
    return record.exit_reason if has_own_reason else agent.RUN_EXITED


async def shut_down_guest(context: PodContext) -> Outcome | None:
    """Run shutdown in the guest. Its result does not matter: the grace period runs from now on."""
    deps, grace = context.deps, pod_fields.grace(context.pod)
    _mark(context, was_shut_down=True)
    # Before the command: the grace period also runs while it hangs.
    context.state.shutdown_requested_at = deps.clock.monotonic()
    deps.exit_watcher.watch(context.vm, context.key)
    context.record_event(
        events.STOPPING_VM,
        f"Stopping VM {context.vm} with a grace period of {grace.total_seconds():g} s",
    )
    try:
        limit = min(SHUTDOWN_LIMIT, grace)
        result = await deps.tart.exec(context.vm, guest.SHUTDOWN, limit)
    except EXPECTED_ERRORS as error:
        logger.info("Guest shutdown not started", vm=context.vm, error=str(error))
    else:
        logger.info("Guest shutdown started", vm=context.vm, code=result.code)
    return None


async def stop_vm(context: PodContext) -> Outcome | None:
    """Power the VM off, and kill tart if that does not help."""
    deps, vm = context.deps, context.vm
    logger.info("Stopping VM", vm=vm)
    _mark(context, was_powered_off=True)
    try:
        async with asyncio.timeout(STOP_LIMIT.total_seconds()):
            await deps.tart.stop(vm, STOP_GRACE)
    except (*EXPECTED_ERRORS, TimeoutError) as error:
        logger.warning("VM does not stop", vm=vm, error=str(error))
    if await _has_ended(context, timedelta(seconds=1)):
        return None
    deps.runs.kill(vm)
    if await _has_ended(context, KILL_LIMIT):
        return None
    logger.error("VM cannot be killed", vm=vm)
    return CheckAgain(UNKILLABLE_POLL, "the VM cannot be killed")


async def record_exit(context: PodContext) -> Outcome | None:
    """Write the exit to the ledger, before any evidence of it is removed."""
    deps, record = context.deps, context.record
    # Where the disk was too full to record the request.
    if context.state.shutdown_requested_at is not None:
        record = msgspec.structs.replace(record, was_shut_down=True)
    ended, reported = deps.runs.find_exit(context.vm), deps.guests.report(context.vm)
    at = finished_at(ended, reported, started=record.started_at, now=deps.clock.now())
    vm_exit = VmExit(
        ended=ended,
        reported=reported,
        at=at,
        end_line=_end_line(context) if ended is not None else None,
        was_past_deadline=observation.was_past_deadline(context.pod, at, deps),
        was_rebooted=record.boot_id != deps.host.boot_id(),
    )
    record = with_exit(record, vm_exit)
    # Before the log and the event: after a crash in between, the exit would be recorded again.
    deps.ledger.put(record)
    deps.guests.log_output(context.vm)
    if record.exit_reason in _BROKEN_RUNS and not _was_ended_by_agent(record):
        context.record_warning(record.exit_reason, record.exit_message)
    else:
        context.record_event(events.RUN_EXITED, record.exit_message)
    return None


async def report_exit(context: PodContext) -> Outcome | None:
    """Publish the exit. The record becomes REPORTED, and removable, only after the server has acknowledged it."""
    record, pod = context.record, context.pod
    terminated = status.terminated(
        pod,
        context.status_facts(),
        exit=recorded_exit(record),
        started_at=record.started_at,
        finished_at=record.ended_at or context.deps.clock.now(),
        reason=pod_reason(record),
        message=record.exit_message,
    )
    try:
        await context.publish_status(terminated)
    except errors.Refused as error:
        # A refused status must not block the deletion of the Pod.
        if not pod.deleting:
            raise
        logger.warning("Server refused the exit status", vm=context.vm, error=str(error))
    # Must stay after the publish: a REPORTED record may be removed at any time, and the exit would be lost.
    context.deps.ledger.put(msgspec.structs.replace(record, state=VmState.REPORTED))
    return None


async def delete_vm(context: PodContext) -> Outcome | None:
    """Delete the VM; it counts as deleted only when its folder is gone."""
    logger.info("Deleting VM", vm=context.vm)
    await context.deps.tart.delete(context.vm)
    if observation.has_bundle(context.vm, context.deps):
        raise errors.Unavailable(f"VM {context.vm} still exists after tart deleted it")
    return None


async def remove_data(context: PodContext) -> Outcome | None:
    """Remove the guest's shared folders, secrets first."""
    try:
        await context.deps.guests.remove(context.vm)
    except OSError as error:
        raise errors.Unavailable(f"user data of {context.vm} cannot be removed: {error}") from error
    return None


async def remove_run(context: PodContext) -> Outcome | None:
    """Remove the run; its exit is in the ledger by now, or is not needed."""
    context.deps.runs.forget(context.vm)
    return None


async def remove_record(context: PodContext) -> Outcome | None:
    """Remove the record and enqueue the Pods that may wait for its slot."""
    deps = context.deps
    record = deps.ledger.vm(context.vm)
    # Last of all resources: as long as it exists, a restarted agent removes the others.
    deps.ledger.drop(context.vm)
    if record is not None and record.is_abandoned:
        # From now on and not from the failure on: other Pods wait for the slot, and get it meanwhile.
        deps.states.record_failure(context.uid)
    deps.liveness.forget(context.vm)
    for pod in deps.pods.all():
        if pod.uid != context.uid:
            deps.trigger.enqueue(key_of(pod))
    if context.ref.pod is not None:
        context.replace_pod(context.ref.pod)
    return None


async def remove_finalizer(context: PodContext) -> Outcome | None:
    """Remove our finalizer: nothing of the VM is left."""
    pod = context.pod
    try:
        # Only now: without the finalizer the Pod may vanish, and with it the reason to clean up.
        await context.deps.kube.remove_finalizer(pod, finalizers.VM_CLEANUP)
    except errors.NotFound:
        return Settled()
    remaining = [each for each in pod.metadata.finalizers if each != finalizers.VM_CLEANUP]
    metadata = msgspec.structs.replace(pod.metadata, finalizers=remaining)
    context.replace_pod(msgspec.structs.replace(pod, metadata=metadata))
    return None


async def finish_deletion(context: PodContext) -> Outcome:
    """Delete the Pod with a grace period of zero: the server keeps a Pod that is bound to a Node until its kubelet does that."""
    pod = context.pod
    # With no grace period left the server removes it by itself, once it has no finalizers.
    if pod.metadata.deletion_grace_period_seconds != 0:
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await context.deps.kube.delete(pod, grace=timedelta())
    context.deps.states.forget(context.uid)
    return Settled()


def _message(record: VmRecord, reason: str, code: int, end_line: EndLine | None) -> str:
    message = {
        agent.HOST_REBOOTED: "the host was rebooted while the VM ran, and its disk never boots again",
        agent.DEADLINE_EXCEEDED: "the Pod was active longer than its activeDeadlineSeconds",
        agent.RUN_LOST: "the VM ended unobserved and its guest reported nothing",
        agent.GUEST_CRASHED: "the guest crashed and reported nothing",
        agent.NETWORK_LOST: "the VM lost its network and its guest reported nothing",
        agent.STOPPED: _stop_message(record, end_line),
    }.get(reason, f"tart run ended with exit code {code}")
    quoted = f" (tart: {end_line.text})" if end_line and reason in _BROKEN_RUNS else ""
    return f"{message}{quoted}; the log is kept on the host as {record.vm}.log"


def _was_ended_by_agent(record: VmRecord) -> bool:
    is_stopped = record.exit_reason == agent.STOPPED
    return is_stopped and (record.was_shut_down or record.was_powered_off)


def _end_line(context: PodContext) -> EndLine | None:
    """Return how tart's output shows that the run ended; without a run of ours, the log is not about this VM."""
    return failures.end_of_run(context.deps.runs.output_tail(context.vm, _END_LINES))


def _stop_message(record: VmRecord, end_line: EndLine | None) -> str:
    if record.was_shut_down and end_line is not None and end_line.end is RunEnd.HALTED:
        return "the agent shut the guest down, and it reported nothing"
    if record.is_abandoned:
        return "the VM had no address in time and was powered off"
    if record.was_powered_off:
        return "the agent powered the VM off, and its guest reported nothing"
    return "the VM was stopped or suspended by others, and its guest reported nothing"


def _mark(context: PodContext, **changes: bool) -> None:
    """Record what the agent is about to do, for the exit; a full disk must not keep a VM alive."""
    ledger = context.deps.ledger
    record = ledger.find_by_uid(context.uid)
    if record is None or record.state is not VmState.STARTED:
        return
    try:
        ledger.put(msgspec.structs.replace(record, **changes))
    except LedgerUnavailable as error:
        logger.warning("Stop of a VM not recorded", vm=context.vm, error=str(error))


async def _has_ended(context: PodContext, within: timedelta) -> bool:
    deps = context.deps
    deadline = deps.clock.monotonic() + within.total_seconds()
    while observation.process_of(context.vm, None, deps) is Process.ALIVE:
        if deps.clock.monotonic() >= deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True
