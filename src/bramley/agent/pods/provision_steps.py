"""The steps towards a running VM: claim, clone, start, and the cleanup after a start that tart refused.

Each step writes the ledger before the action that the record stands for, so that a crash leaves a record of everything that may
exist. The one exception is CLONED, which is written after the clone, because it states that the clone is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import msgspec

from bramley.agent import pod_fields
from bramley.agent.images import image_requests
from bramley.agent.ledger import VmRecord, VmState
from bramley.agent.pods import observation, status
from bramley.agent.pods.context import EXPECTED_ERRORS, PodContext
from bramley.agent.tart import failures
from bramley.agent.tart.driver import RunOptions, Share
from bramley.api.names import agent, events, finalizers, guest
from bramley.base import errors, log
from bramley.runtime.outcome import CheckAgain, Outcome, Settled

logger = log.get(__name__)

# A session that was alive this recently is not checked again before a VM starts in it.
SESSION_MAX_AGE = timedelta(seconds=5)


async def reject(context: PodContext) -> Outcome:
    """Fail a Pod that cannot run as a VM. It has no finalizer of ours, so nothing blocks its deletion."""
    message = pod_fields.unsupported(context.pod) or ""
    return await _fail(context, agent.UNSUPPORTED, message)


async def expire(context: PodContext) -> Outcome:
    """Fail a Pod whose active deadline passed before it had a VM."""
    message = "activeDeadlineSeconds passed before a VM could be created"
    return await _fail(context, agent.DEADLINE_EXCEEDED, message)


async def add_finalizer(context: PodContext) -> Outcome:
    """Add our finalizer to the Pod, before anything is created for it."""
    try:
        await context.deps.kube.add_finalizer(context.pod, finalizers.VM_CLEANUP)
    except errors.NotFound:
        return Settled()
    # Requeued here and not left to the watch: a lost watch event must not strand the Pod.
    return CheckAgain(timedelta(), "the finalizer was added")


async def adopt(context: PodContext) -> Outcome | None:
    """Record a VM as started that has no record of its start; it is monitored until it ends and never booted again."""
    deps, pod = context.deps, context.pod
    existing = deps.ledger.find_by_uid(context.uid)
    vm = observation.legacy_vm(pod, existing, deps) or context.vm
    record = existing or _new_record(context, vm)
    exists = observation.has_bundle(vm, deps) or deps.runs.exists(vm)
    deps.ledger.put(
        msgspec.structs.replace(
            record,
            state=VmState.STARTED,
            is_adopted=True,
            # The creation time of an existing VM is unknown; one that does not exist may still be cloned from now on.
            created_at=None if exists else record.created_at,
            boot_id=deps.host.boot_id(),
            started_at=record.started_at or pod.status.start_time or deps.clock.now(),
        )
    )
    logger.warning("Adopted VM", vm=vm, state=existing.state if existing else "unknown")
    context.record_event(
        events.ADOPTED_VM, f"VM {vm} was not started by this agent and is monitored until it ends"
    )
    context.replace_pod(pod)
    return None


async def claim(context: PodContext) -> Outcome | None:
    """Begin provisioning: write the record that marks the VM's name as ours."""
    deps, pod, state = context.deps, context.pod, context.state
    state.claimed_at = deps.clock.monotonic()
    # Before anything is created, so that a crash leaves nothing that the ledger does not know.
    deps.ledger.put(_new_record(context, context.vm))
    if state.record_once(events.CREATING_VM):
        _record_creation(context)
    if not pod_fields.never_restarts(pod) and state.record_once(events.RUNS_ONCE):
        policy = pod.spec.restart_policy or "Always"
        context.record_warning(
            events.RUNS_ONCE, f"a VM runs once: restartPolicy {policy} is treated as Never"
        )
    return None


async def clone(context: PodContext) -> Outcome | None:
    """Clone the disk and set the VM's identity and size; only then record the clone as complete."""
    deps, image = context.deps, context.image
    if not isinstance(image, image_requests.Ready):
        return None
    size = pod_fields.vm_size(context.pod)
    work = _with_session_check(context, _create_disk(context, image, size))
    if not await deps.deletion_watcher.run_unless_deleted(context.key, context.uid, work):
        return CheckAgain(timedelta(), "the Pod is being deleted")
    deps.ledger.put(
        msgspec.structs.replace(
            context.record, state=VmState.CLONED, golden=image.golden, digest=image.digest
        )
    )
    pool = pod_fields.pool(context.pod)
    deps.metrics.observe_provisioning(pool, _provisioning_seconds(context), is_warm=image.is_warm)
    context.record_event(events.CLONED_VM, f"Cloned VM {context.vm} from {image.golden}")
    return None


async def start(context: PodContext) -> Outcome | None:
    """Record the VM as started, then run it: from the record on, this disk counts as used, whatever happens."""
    deps = context.deps
    preparation = _prepare(context)
    if not await deps.deletion_watcher.run_unless_deleted(context.key, context.uid, preparation):
        return CheckAgain(timedelta(), "the Pod is being deleted")
    # Other VMs may have started meanwhile. There must be no await between this check and the record, which takes the slot.
    is_deleted = deps.deletion_watcher.is_deleted(context.key, context.uid)
    if not deps.slots.has_room(context.vm) or is_deleted:
        return CheckAgain(timedelta(), "the state has changed during the preparation")
    deps.ledger.put(
        msgspec.structs.replace(
            context.record,
            state=VmState.STARTED,
            boot_id=deps.host.boot_id(),
            started_at=deps.clock.now(),
        )
    )
    context.state.started_at = deps.clock.monotonic()
    context.state.lacks_address = False
    # The run of an earlier attempt exists: it is followed and never started again.
    with contextlib.suppress(errors.AlreadyExists):
        await deps.tart.start(deps.runs, context.vm, RunOptions(shares=_shares(context)))
    context.record_event(events.STARTED_VM, f"Started VM {context.vm}")
    return None


async def discard_failed_start(context: PodContext) -> Outcome | None:
    """Delete the disk of a refused start, publish why it was refused, and retry from the beginning after a backoff."""
    deps = context.deps
    error = observation.start_failure(context.vm, context.record, deps)
    await deps.tart.delete(context.vm)
    if error is None:
        return None
    if isinstance(error, failures.LimitReached):
        deps.slots.record_refusal(context.vm, error.stderr)
    return await context.report_failure(error)


async def abandon_boot(context: PodContext) -> Outcome | None:
    """Give up a VM that has no address: it is discarded with its disk, and the Pod gets a new one after a backoff.

    Its guest may have booted, so from the record on this disk is never used again; nothing of the Pod has failed.
    """
    deps = context.deps
    seconds = deps.boot_timeout.total_seconds()
    message = f"VM {context.vm} has no address after {seconds:g} s: {_lease_message(context)}"
    deps.ledger.put(msgspec.structs.replace(context.record, is_abandoned=True))
    deps.metrics.vm_boot_timeouts.of(pod_fields.pool(context.pod)).inc()
    context.state.is_failing = True
    logger.warning("VM has no address", vm=context.vm, text=message)
    context.record_warning(events.BOOT_TIMED_OUT, f"{message}; it is deleted and created again")
    waiting = status.waiting(
        context.pod,
        context.status_facts(),
        reason=events.BOOT_TIMED_OUT,
        message=message,
        is_failing=True,
    )
    await context.publish_status(waiting)
    return None


def _lease_message(context: PodContext) -> str:
    """Return what the lease file shows about the cause."""
    leases = context.deps.dhcp_leases
    try:
        usage = leases.usage() if leases is not None else None
    except OSError as error:
        return f"whether DHCP leases are left is unknown: {error}"
    if usage is None:
        return "whether DHCP leases are left is unknown"
    numbers = f"{usage.used} of {usage.size} DHCP leases are in use"
    if usage.is_full:
        return f"{numbers} in {usage.network}, so no VM gets one until others expire"
    return f"its guest did not boot or did not request one, as {numbers}"


async def _fail(context: PodContext, reason: str, message: str) -> Outcome:
    context.record_warning(reason, message)
    failed = status.rejected(context.pod, context.status_facts(), message=message, reason=reason)
    await context.publish_status(failed)
    return Settled()


async def _create_disk(
    context: PodContext, image: image_requests.Ready, size: pod_fields.VmSize
) -> None:
    tart, vm = context.deps.tart, context.vm
    await context.deps.images.clone(image.golden, vm)
    try:
        await tart.set(
            vm, cpu=size.cpu, memory_mb=size.memory_mb, random_mac=True, random_serial=True
        )
    except failures.Unusable:
        raise
    except (failures.TartFailed, errors.TimedOut) as error:
        # A guest with the identity of its image still works; a guest with the wrong size does not fit the request.
        await tart.set(vm, cpu=size.cpu, memory_mb=size.memory_mb)
        context.record_warning(
            events.IDENTITY_REGEN_SKIPPED, f"VM {vm} keeps its image's identity: {error}"
        )


async def _with_session_check(context: PodContext, work: Coroutine[Any, Any, None]) -> None:
    """Do the work while the GUI session is checked, which takes as long. `start` handles a session that is not alive."""
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        check = group.create_task(_check_session(context))
        try:
            await work
        except EXPECTED_ERRORS as error:
            failure = error
            check.cancel()
    # Raised outside of the group, which would wrap it into an ExceptionGroup.
    if failure is not None:
        raise failure


async def _check_session(context: PodContext) -> None:
    if context.deps.gui_session is not None:
        with contextlib.suppress(*EXPECTED_ERRORS):
            await context.deps.gui_session.check()


async def _prepare(context: PodContext) -> None:
    deps = context.deps
    if deps.gui_session is not None:
        await deps.gui_session.ensure(max_age=SESSION_MAX_AGE)
    await deps.guests.prepare(context.pod, context.vm)


def _provisioning_seconds(context: PodContext) -> float:
    """Return how long image and clone took; computed from the record if an earlier agent claimed the VM."""
    clock, claimed_at = context.deps.clock, context.state.claimed_at
    if claimed_at is not None:
        return clock.monotonic() - claimed_at
    created_at = context.record.created_at
    return max((clock.now() - created_at).total_seconds(), 0.0) if created_at else 0.0


def _shares(context: PodContext) -> tuple[Share, ...]:
    shares = context.deps.data.shares(context.vm)
    return (
        Share(guest.ENV_SHARE, shares.env, is_read_only=True),
        Share(guest.STATUS_SHARE, shares.status),
    )


def _new_record(context: PodContext, vm: str) -> VmRecord:
    pod = context.pod
    return VmRecord(
        vm=vm,
        namespace=context.key.namespace,
        pod=context.key.name,
        uid=context.uid,
        image=next((each.image for each in pod.spec.containers), ""),
        pool=pod_fields.pool(pod),
        boot_id=context.deps.host.boot_id(),
        created_at=context.deps.clock.now(),
    )


def _record_creation(context: PodContext) -> None:
    """Record that provisioning starts, and how long the Pod has waited for it."""
    context.record_event(events.CREATING_VM, f"Creating VM {context.vm}")
    created = context.pod.metadata.creation_timestamp
    if created is not None:
        waited = (context.deps.clock.now() - created).total_seconds()
        delay = context.deps.metrics.provision_delay.of(pod_fields.pool(context.pod))
        delay.observe(max(waited, 0.0))
