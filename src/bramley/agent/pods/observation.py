"""Observes a Pod, the ledger and the host, and returns an `Observation`; changes nothing.

The one exception is the image: requesting it starts its pull, so the reconciler requests it only when a clone comes next.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bramley.agent import pod_fields, vm_names
from bramley.agent.images import image_requests
from bramley.agent.ledger import VmRecord, VmState
from bramley.agent.pods.context import PodDeps, PodRef
from bramley.agent.pods.decision import Image, Observation, Phase, Process
from bramley.agent.tart import failures
from bramley.api.names import finalizers
from bramley.api.pod import Pod

# A `tart run` that fails by itself within this time has booted nothing.
MIN_RUN_TIME = timedelta(seconds=5)
# Exits are dated in whole seconds, by a clock that may be adjusted slightly.
_SLACK = timedelta(seconds=2)


def observe(ref: PodRef, deps: PodDeps) -> Observation:
    """Return the current state; `image` is left unknown."""
    record = deps.ledger.find_by_uid(ref.uid)
    process = process_of(ref.vm, record, deps)
    pod = ref.pod
    return Observation(
        is_gone=pod is None,
        is_deleting=pod is not None and pod.deleting,
        phase=_phase(pod),
        has_finalizer=pod is not None and finalizers.VM_CLEANUP in pod.metadata.finalizers,
        is_unsupported=pod is not None and pod_fields.unsupported(pod) is not None,
        is_past_deadline=is_past_deadline(pod, deps),
        record=record.state if record else None,
        is_adopted=record is not None and record.is_adopted,
        is_abandoned=_is_abandoned(ref.vm, record, deps),
        is_same_boot=record is None or record.boot_id == deps.host.boot_id(),
        clone_may_appear=_clone_may_appear(ref, record, deps),
        record_is_lost=record is None and _is_unreadable(ref.vm, deps),
        process=process,
        has_clone=has_bundle(ref.vm, deps),
        has_run=deps.runs.exists(ref.vm),
        has_data=ref.vm in deps.data.vms(),
        has_slot=_has_slot(ref, record, process, deps),
        boot_timed_out=boot_timed_out(ref, record, deps),
        has_legacy_vm=pod is not None and legacy_vm(pod, record, deps) is not None,
        has_predecessor=_has_predecessor(ref, deps),
        is_backing_off=deps.states.backoff_left(ref.uid) > timedelta(),
        shutdown_requested=deps.states.of(ref.uid).shutdown_requested_at is not None,
        grace_is_over=_grace_is_over(ref, deps),
    )


def deadline_left(pod: Pod | None, deps: PodDeps) -> timedelta | None:
    """Return the rest of a Pod's activeDeadlineSeconds, negative once it has passed; None if it has no deadline yet.

    The Pod's start time is converted once per agent to the monotonic clock, so a jump of the time of day ends no Pod.
    """
    limit = pod_fields.lifetime(pod) if pod is not None else None
    started_at = pod.status.start_time if pod is not None else None
    if pod is None or limit is None or started_at is None:
        return None
    state, now = deps.states.of(pod.uid), deps.clock.monotonic()
    if state.active_since is None:
        state.active_since = now - deps.clock.age(started_at).total_seconds()
    return limit - timedelta(seconds=now - state.active_since)


def is_past_deadline(pod: Pod | None, deps: PodDeps) -> bool:
    """Return whether a Pod's active deadline has passed."""
    remaining = deadline_left(pod, deps)
    return remaining is not None and remaining <= timedelta()


def was_past_deadline(pod: Pod, at: datetime, deps: PodDeps) -> bool:
    """Return whether the deadline had passed at a time that this host recorded."""
    left = deadline_left(pod, deps)
    return left is not None and left <= timedelta() and deps.clock.age(at) <= -left + _SLACK


def boot_time_left(record: VmRecord, deps: PodDeps) -> timedelta:
    """Return the rest of the time in which a VM's guest must have an address, negative once it has passed.

    The start of a VM by an earlier agent is converted once to the monotonic clock, so a jump of the time of day ends no VM.
    """
    state, now = deps.states.of(record.uid), deps.clock.monotonic()
    if state.booting_since is None and record.started_at is not None:
        state.booting_since = now - deps.clock.age(record.started_at).total_seconds()
    since = state.started_at if state.started_at is not None else state.booting_since
    return deps.boot_timeout - timedelta(seconds=now - (now if since is None else since))


def boot_timed_out(ref: PodRef, record: VmRecord | None, deps: PodDeps) -> bool:
    """Return whether a VM that the agent started certainly has no address in time; what an adopted one has done is not known."""
    if record is None or record.is_adopted or record.boot_id != deps.host.boot_id():
        return False
    return deps.states.of(ref.uid).lacks_address and is_boot_overdue(ref, record, deps)


def is_boot_overdue(ref: PodRef, record: VmRecord, deps: PodDeps) -> bool:
    """Return whether no address of a VM is known that was started long ago, and that it has never had one nor reported."""
    state, pod = deps.states.of(ref.uid), ref.pod
    if record.state is not VmState.STARTED or pod is None or record.had_address:
        return False
    has_address = bool(state.address or pod.status.pod_ip) or _phase(pod) is not Phase.PENDING
    if has_address or boot_time_left(record, deps) > timedelta():
        return False
    return deps.guests.report(ref.vm).code is None


def _is_abandoned(vm: str, record: VmRecord | None, deps: PodDeps) -> bool:
    """Return whether a VM is being discarded; one whose guest has reported or got an address nevertheless may have run its job."""
    if record is None or not record.is_abandoned or record.had_address:
        return False
    return deps.guests.report(vm).code is None


def claiming_uids(deps: PodDeps) -> set[str]:
    """Return the Pods whose VM may be created now; not those that end, nor those whose last attempt failed."""
    active = (each for each in deps.pods.all() if not (each.deleting or _phase(each).is_finished))
    return {each.uid for each in active} - deps.states.failing_uids()


def image_of(state: image_requests.ImageState) -> Image:
    """Return the state of an image as `decide` uses it."""
    if isinstance(state, image_requests.Ready):
        return Image.READY
    return Image.PULLING if isinstance(state, image_requests.Pulling) else Image.FAILED


def process_of(vm: str, record: VmRecord | None, deps: PodDeps) -> Process:
    """Return the state of a VM's run. A VM that none of our supervisors started is visible only by its lock."""
    if deps.runs.is_alive(vm) or deps.slots.is_held(vm):
        return Process.ALIVE
    ended = deps.runs.find_exit(vm)
    if ended is None:
        return Process.NONE
    return Process.REFUSED if start_failure(vm, record, deps) else Process.ENDED


def start_failure(vm: str, record: VmRecord | None, deps: PodDeps) -> failures.TartFailed | None:
    """Return why a run failed to start, if it ended at once and its guest has reported nothing."""
    ended = deps.runs.find_exit(vm)
    # A run that was killed by a signal may have booted its guest.
    if ended is None or ended.code is None or ended.code <= 0 or ended.at is None:
        return None
    if record is None or not _was_brief(record, ended.at, deps):
        return None
    # A guest that has reported has booted, however soon it ended.
    if deps.guests.report(vm).code is not None:
        return None
    return failures.start_failure(ended.code, deps.runs.output_tail(vm))


def _was_brief(record: VmRecord, ended_at: datetime, deps: PodDeps) -> bool:
    """Return whether a run ended at once. Recorded dates may be off in both directions; the monotonic clock is not."""
    if record.started_at is not None and abs(ended_at - record.started_at) < MIN_RUN_TIME:
        return True
    started_at = deps.states.of(record.uid).started_at
    if started_at is None:
        return False
    return deps.clock.monotonic() - started_at < MIN_RUN_TIME.total_seconds()


def has_bundle(vm: str, deps: PodDeps) -> bool:
    """Return whether there is a folder of this VM, complete or not."""
    return (deps.tart.home / "vms" / vm).exists()


def legacy_vm(pod: Pod, record: VmRecord | None, deps: PodDeps) -> str | None:
    """Return the VM that an older agent made for this Pod, unless a record or another Pod may claim it.

    Legacy names join namespace and Pod by a dash, so two Pods may have the same one. Only a Pod with our finalizer can have
    such a VM.
    """
    if record is not None or finalizers.VM_CLEANUP not in pod.metadata.finalizers:
        return None
    vm = vm_names.legacy_of_pod(pod.namespace or "", pod.name)
    if deps.ledger.vm(vm) is not None or not has_bundle(vm, deps):
        return None
    pods = [
        each
        for each in deps.pods.all()
        if vm_names.legacy_of_pod(each.namespace or "", each.name) == vm
    ]
    return vm if len(pods) <= 1 else None


def _phase(pod: Pod | None) -> Phase:
    phase = pod.status.phase if pod is not None else ""
    return Phase(phase) if phase in set(Phase) else Phase.PENDING


def _clone_may_appear(ref: PodRef, record: VmRecord | None, deps: PodDeps) -> bool:
    """Return whether a clone that an earlier agent started may still appear: `tart clone` survives a killed agent."""
    state, deadline = deps.states.of(ref.uid), deps.tart.deadlines.clone
    if record is None:
        # A Pod without a record is first adopted, or gets our finalizer.
        is_lost = ref.pod is None and _is_unreadable(ref.vm, deps)
        since = deps.clock.monotonic() - (state.gone_since or deps.clock.monotonic())
        return is_lost and since < deadline.total_seconds()
    if record.golden or record.created_at is None or state.claimed_at is not None:
        # The clone is complete, or existed when it was adopted, or was started by this agent and ends with its call.
        return False
    # No process survives a reboot, however long the record is kept: its date may be in the future since the clock was set back.
    return record.boot_id == deps.host.boot_id() and deps.clock.age(record.created_at) < deadline


def _is_unreadable(vm: str, deps: PodDeps) -> bool:
    return any(each.name == vm for each in deps.ledger.unreadable())


def _has_slot(ref: PodRef, record: VmRecord | None, process: Process, deps: PodDeps) -> bool:
    """Return whether one more VM may run; not checked where none can start, because that reads the process table."""
    pod = ref.pod
    if pod is None or pod.deleting or _phase(pod).is_finished or process is not Process.NONE:
        return True
    slots, vm = deps.slots, ref.vm
    if record is not None:
        # A claim already has its slot.
        return record.state is VmState.CLAIMED or slots.has_room(vm)
    if finalizers.VM_CLEANUP not in pod.metadata.finalizers:
        # The finalizer comes before anything is created.
        return True
    return slots.has_room_for_claim(vm, uids=claiming_uids(deps))


def _has_predecessor(ref: PodRef, deps: PodDeps) -> bool:
    return any(
        (record.namespace, record.pod) == ref.key and record.uid != ref.uid
        for record in deps.ledger.vms().values()
    )


def _grace_is_over(ref: PodRef, deps: PodDeps) -> bool:
    """Return whether the grace period is over: since our shutdown request, or, after restarts of the agent, twice that time.

    The second is measured by the server's date and our clock, which may be wrong, so it is used only by an agent that started
    after the VM.
    """
    pod = ref.pod
    if pod is None:
        return True
    grace = pod_fields.grace(pod)
    state, deadline = deps.states.of(ref.uid), pod.metadata.deletion_timestamp
    requested_at = state.shutdown_requested_at
    if requested_at is not None and deps.clock.monotonic() - requested_at >= grace.total_seconds():
        return True
    is_later_agent = state.started_at is None and not state.address
    is_overdue = is_later_agent and deadline is not None and deps.clock.now() >= deadline + grace
    return grace <= timedelta() or is_overdue
