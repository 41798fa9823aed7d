"""Looks at a Pod, the ledger and the host, and says what is there in the words of `observation`; changes nothing.

The one exception is the image: asking for it begins its pull, so it is asked for only when a clone is what comes next.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from bramley.agent import vm_names
from bramley.agent.images import image_requests
from bramley.agent.ledger import VmRecord, VmState
from bramley.agent.pods import fields
from bramley.agent.pods.context import Means, PodRef
from bramley.agent.pods.decision import (
    Image,
    Observation,
    Phase,
    Process,
)
from bramley.agent.tart import failures
from bramley.api.names import finalizers
from bramley.api.pod import Pod

# Ends are dated in whole seconds, and by a clock that may be corrected a little.
_SLACK = timedelta(seconds=2)


def deadline_left(pod: Pod | None, means: Means) -> timedelta | None:
    """Return how long a Pod may still be active, below zero if it is too late; None if nothing limits it yet."""
    limit = fields.lifetime(pod) if pod is not None else None
    began = pod.status.start_time if pod is not None else None
    if pod is None or limit is None or began is None:
        return None
    notes, now = means.memory.of(pod.uid), means.clock.monotonic()
    if notes.active_since is None:
        notes.active_since = now - means.clock.age(began).total_seconds()
    return limit - timedelta(seconds=now - notes.active_since)


def is_past_deadline(pod: Pod | None, means: Means) -> bool:
    """Tell whether a Pod's active deadline has passed."""
    rest = deadline_left(pod, means)
    return rest is not None and rest <= timedelta()


def was_past_deadline(pod: Pod, at: datetime, means: Means) -> bool:
    """Tell whether it had passed at a moment that this host has dated."""
    rest = deadline_left(pod, means)
    return rest is not None and rest <= timedelta() and means.clock.age(at) <= -rest + _SLACK


# A `tart run` that ends by itself within this time, and with an error, has started nothing.
SANITY = timedelta(seconds=5)


def observe(subject: PodRef, means: Means) -> Observation:
    """Return what is there now; `image` is left unasked."""
    record = means.ledger.find_by_uid(subject.uid)
    process = process_of(subject.vm, record, means)
    pod = subject.pod
    return Observation(
        is_gone=pod is None,
        is_deleting=pod is not None and pod.deleting,
        phase=_phase(pod),
        has_finalizer=pod is not None and finalizers.VM_CLEANUP in pod.metadata.finalizers,
        is_unsupported=pod is not None and fields.unsupported(pod) is not None,
        is_late=is_past_deadline(pod, means),
        record=record.state if record else None,
        is_adopted=record is not None and record.is_adopted,
        is_same_boot=record is None or record.boot_id == means.host.boot_id(),
        may_appear=_may_appear(subject, record, means),
        was_lost=record is None and _is_unreadable(subject.vm, means),
        process=process,
        has_clone=has_bundle(subject.vm, means),
        has_run=means.runs.is_begun(subject.vm),
        has_data=subject.vm in means.data.vms(),
        has_slot=_has_slot(subject, record, process, means),
        has_legacy=pod is not None and legacy_of(pod, record, means) is not None,
        has_predecessor=_has_predecessor(subject, means),
        is_backing_off=means.memory.hold_off(subject.uid) > timedelta(),
        was_asked=means.memory.of(subject.uid).asked_at is not None,
        is_out_of_grace=_is_out_of_grace(subject, means),
    )


def claimants(means: Means) -> set[str]:
    """Return the Pods whose VM is being made: not those that are to go, nor those that lack something, perhaps for ever."""
    wanted = (each for each in means.pods.all() if not (each.deleting or _phase(each).is_finished))
    return {each.uid for each in wanted} - means.memory.failing()


def image_of(answer: image_requests.Answer) -> Image:
    """Return what an answer means for the next step."""
    if isinstance(answer, image_requests.Ready):
        return Image.READY
    return Image.PULLING if isinstance(answer, image_requests.Pulling) else Image.FAILED


def process_of(vm: str, record: VmRecord | None, means: Means) -> Process:
    """Return what became of a VM's run. Only the lock tells of a VM that no supervisor of ours started."""
    if means.runs.is_alive(vm) or means.slots.is_held(vm):
        return Process.ALIVE
    ended = means.runs.ended(vm)
    if ended is None:
        return Process.NONE
    return Process.REFUSED if start_failure(vm, record, means) else Process.ENDED


def start_failure(vm: str, record: VmRecord | None, means: Means) -> failures.TartFailed | None:
    """Return why a run came to nothing, if it ended at once and its guest has said nothing."""
    ended = means.runs.ended(vm)
    if ended is None or ended.code is None or ended.code <= 0 or ended.at is None:
        return None
    if record is None or not _was_brief(record, ended.at, means):
        return None
    if means.guests.report(vm).code is not None:
        return None
    return failures.start_failure(ended.code, means.runs.said(vm))


def _was_brief(record: VmRecord, ended_at: datetime, means: Means) -> bool:
    """Tell whether a run ended at once. Dates can be wrong in both directions; what this agent has seen itself cannot."""
    if record.started_at is not None and abs(ended_at - record.started_at) < SANITY:
        return True
    began = means.memory.of(record.uid).started_at
    return began is not None and means.clock.monotonic() - began < SANITY.total_seconds()


def has_bundle(vm: str, means: Means) -> bool:
    """Tell whether there is a folder of this VM, whole or not."""
    return (means.tart.home / "vms" / vm).exists()


def legacy_of(pod: Pod, record: VmRecord | None, means: Means) -> str | None:
    """Return the VM that an older agent made for this Pod, unless a record or another Pod may claim it.

    Such names join namespace and Pod by a dash, so two Pods may mean the same one. Only a Pod that an agent has held before
    can have such a VM.
    """
    if record is not None or finalizers.VM_CLEANUP not in pod.metadata.finalizers:
        return None
    vm = vm_names.of_old(pod.namespace or "", pod.name)
    if means.ledger.vm(vm) is not None or not has_bundle(vm, means):
        return None
    claims = [
        each for each in means.pods.all() if vm_names.of_old(each.namespace or "", each.name) == vm
    ]
    return vm if len(claims) <= 1 else None


def _phase(pod: Pod | None) -> Phase:
    phase = pod.status.phase if pod is not None else ""
    return Phase(phase) if phase in set(Phase) else Phase.PENDING


def _may_appear(subject: PodRef, record: VmRecord | None, means: Means) -> bool:
    """Tell whether a clone that an earlier agent began may still come: killed agents leave their programs behind."""
    notes, longest = means.memory.of(subject.uid), means.tart.deadlines.clone
    if record is None:
        # A Pod without a record of its own is held or adopted first.
        is_lost = subject.pod is None and _is_unreadable(subject.vm, means)
        since = means.clock.monotonic() - (notes.gone_since or means.clock.monotonic())
        return is_lost and since < longest.total_seconds()
    if record.golden or record.created_at is None or notes.claimed_at is not None:
        # Its clone is done, or was there when it was adopted, or is this agent's own, which dies with its call.
        return False
    return means.clock.age(record.created_at) < longest


def _is_unreadable(vm: str, means: Means) -> bool:
    return any(each.name == vm for each in means.ledger.unreadable())


def _has_slot(subject: PodRef, record: VmRecord | None, process: Process, means: Means) -> bool:
    """Tell whether one more VM may run; not looked for where none can be started, because it reads all processes."""
    pod = subject.pod
    if pod is None or pod.deleting or _phase(pod).is_finished or process is not Process.NONE:
        return True
    slots, vm = means.slots, subject.vm
    if record is not None:
        # A claim has its slot already.
        return record.state is VmState.CLAIMED or slots.has_room(vm)
    if finalizers.VM_CLEANUP not in pod.metadata.finalizers:
        # A Pod is held before anything is made for it.
        return True
    return slots.has_room_for_claim(vm, of=claimants(means))


def _has_predecessor(subject: PodRef, means: Means) -> bool:
    return any(
        (record.namespace, record.pod) == subject.key and record.uid != subject.uid
        for record in means.ledger.vms().values()
    )


def _is_out_of_grace(subject: PodRef, means: Means) -> bool:
    """Tell whether the guest has had its time: since we asked it, or, if agents came and went, since twice that time.

    The second is judged by the server's date and our clock, which may be wrong, so it counts only for an agent that came late.
    """
    pod = subject.pod
    if pod is None:
        return True
    grace = fields.grace(pod)
    notes = means.memory.of(subject.uid)
    asked_at, ends = notes.asked_at, pod.metadata.deletion_timestamp
    if asked_at is not None and means.clock.monotonic() - asked_at >= grace.total_seconds():
        return True
    came_late = notes.started_at is None and not notes.address
    is_overdue = came_late and ends is not None and means.clock.now() >= ends + grace
    return grace <= timedelta() or is_overdue
