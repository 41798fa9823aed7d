"""The state machine of a Pod: a pure function from an observation to the next step.

The order of the branches matters: a deletion is handled before everything else, and an end before a beginning. After each step
everything is observed again, so a crash between any two steps only leads to another observation. `docs/explanation/pods.md`
explains why each order of steps is safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bramley.agent.ledger import VmState


class Phase(StrEnum):
    """The Pod's phase; an empty phase counts as Pending."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def is_finished(self) -> bool:
        """Return whether nothing may run for the Pod any more."""
        return self in {Phase.SUCCEEDED, Phase.FAILED}


class Process(StrEnum):
    """The state of `tart run`."""

    NONE = "none"  # never started, as far as this host knows
    ALIVE = "alive"  # tart runs, or another process holds the VM's lock
    ENDED = "ended"  # it has exited; the guest may have run
    REFUSED = "refused"  # it failed immediately: the guest never booted


class Image(StrEnum):
    """Whether there is a golden base to clone."""

    UNKNOWN = "unknown"
    READY = "ready"
    PULLING = "pulling"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The observed state of a Pod and of its resources on this host: everything that `decide` may use."""

    # The Pod. A Pod that is gone has left only a record.
    is_gone: bool = False
    is_deleting: bool = False
    phase: Phase = Phase.PENDING
    has_finalizer: bool = False
    is_unsupported: bool = False
    is_past_deadline: bool = False  # activeDeadlineSeconds has passed

    # The ledger.
    record: VmState | None = None
    is_adopted: bool = False  # started by an agent without a ledger, or its record was lost
    is_abandoned: bool = False  # its guest had no address in time: the VM is discarded, and its guest has reported nothing
    is_same_boot: bool = True  # the host has not been rebooted since the record was written
    clone_may_appear: bool = False  # an earlier agent may have left a running `tart clone`
    record_is_lost: bool = False  # there was a record, and it is unreadable

    # The host.
    process: Process = Process.NONE
    has_clone: bool = False  # a folder of this VM's name, complete or not
    has_run: bool = False  # a run's folder, with its exit in it or not
    has_data: bool = False  # the guest's shared folders
    image: Image = Image.UNKNOWN
    has_slot: bool = True  # one more VM may run now
    boot_timed_out: bool = False  # the VM has no address, long after its start
    has_legacy_vm: bool = False  # a VM under the name that older agents used

    # Other state.
    has_predecessor: bool = False  # a Pod of the same name has left resources
    is_backing_off: bool = False  # the last attempt has just failed
    shutdown_requested: bool = False  # a shutdown of the guest was requested
    grace_is_over: bool = False


class Step(StrEnum):
    """The next step for a Pod."""

    # Waiting; AWAIT_* names what for.
    IDLE = "idle"
    AWAIT_PREDECESSOR = "await predecessor"
    AWAIT_SLOT = "await slot"
    AWAIT_IMAGE = "await image"
    AWAIT_RETRY = "await retry"
    AWAIT_SHUTDOWN = "await shutdown"
    AWAIT_LATE_CLONE = "await late clone"

    # Provisioning.
    REJECT = "reject"
    EXPIRE = "expire"
    ADD_FINALIZER = "add finalizer"
    ADOPT = "adopt"
    CLAIM = "claim"
    CLONE = "clone"
    START = "start"
    MONITOR = "monitor"
    DISCARD_FAILED_START = "discard failed start"
    ABANDON_BOOT = "abandon boot"

    # Shutdown.
    SHUT_DOWN_GUEST = "shut down guest"
    STOP_VM = "stop VM"
    RECORD_EXIT = "record exit"
    REPORT_EXIT = "report exit"

    # Cleanup, in this order.
    DELETE_VM = "delete VM"
    REMOVE_DATA = "remove data"
    REMOVE_RUN = "remove run"
    REMOVE_RECORD = "remove record"
    REMOVE_FINALIZER = "remove finalizer"
    FINISH_DELETION = "finish deletion"


def decide(observed: Observation) -> Step:
    """Return the next step for a Pod."""
    if observed.is_gone:
        return _clean_up_orphan(observed)
    # Must stay before the terminal phase: otherwise a finished Pod that is deleted stays in Terminating for ever.
    if observed.is_deleting:
        return _terminate(observed)
    if observed.phase.is_finished:
        return _clean_up_finished(observed)
    if observed.record is None:
        return _begin(observed)
    return _BY_RECORD[observed.record](observed)


def _clean_up_orphan(observed: Observation) -> Step:
    """Remove what a Pod that is gone has left; its exit is not reported, because there is no Pod to report it on."""
    return _stop_vm(observed) or _remove_resources(observed) or Step.IDLE


def _terminate(observed: Observation) -> Step:
    """Stop the VM, report its exit, remove everything, and finish the deletion of the Pod."""
    return (
        _adopt_legacy_vm(observed)
        or _stop_vm(observed)
        # Reported before anything is removed: what is left on disk is the only evidence of the exit.
        or (None if observed.phase.is_finished else _report_exit(observed))
        or _remove_resources(observed)
        or _remove_finalizer(observed)
        or Step.FINISH_DELETION
    )


def _clean_up_finished(observed: Observation) -> Step:
    """Remove everything of a Pod whose final status is already published."""
    return (
        _adopt_legacy_vm(observed)
        or _stop_vm(observed)
        or _remove_resources(observed)
        or _release_finished_pod(observed)
    )


def _begin(observed: Observation) -> Step:
    """Begin with a Pod that has no record."""
    if _has_leftovers(observed):
        # A guest may have run on this disk, so it is monitored until it ends and never booted again.
        return Step.ADOPT if observed.has_finalizer else Step.ADD_FINALIZER
    if observed.is_unsupported:
        return Step.REJECT
    if observed.is_past_deadline:
        return Step.EXPIRE
    # Before anything is created: without the finalizer the Pod could vanish and leave its VM behind.
    if not observed.has_finalizer:
        return Step.ADD_FINALIZER
    if observed.has_predecessor:
        return Step.AWAIT_PREDECESSOR
    return _when_allowed(observed, Step.CLAIM)


def _claimed(observed: Observation) -> Step:
    # First: whatever the record states, a disk that may have run is neither replaced nor booted.
    if _may_have_run(observed):
        return Step.ADOPT
    if observed.is_past_deadline:
        return Step.RECORD_EXIT
    if observed.has_clone:
        # The record does not state that the clone is complete, so it may be partial.
        return Step.DELETE_VM
    if observed.image is not Image.READY:
        return Step.AWAIT_IMAGE
    return Step.AWAIT_RETRY if observed.is_backing_off else Step.CLONE


def _cloned(observed: Observation) -> Step:
    if _may_have_run(observed):
        return Step.ADOPT
    if observed.is_past_deadline:
        return Step.RECORD_EXIT
    if not observed.has_clone:
        # A record never moves back, so provisioning begins again with a new one.
        return Step.REMOVE_RECORD
    return _when_allowed(observed, Step.START)


def _started(observed: Observation) -> Step:
    if observed.process is Process.ALIVE:
        return (observed.is_past_deadline and _stop_vm(observed)) or _follow(observed)
    is_pending = observed.phase is Phase.PENDING and not observed.is_past_deadline
    if observed.is_abandoned and is_pending:
        return _remove_resources(observed) or Step.IDLE
    if _never_booted(observed):
        return _retry_start(observed)
    return Step.RECORD_EXIT


def _follow(observed: Observation) -> Step:
    """Follow a running VM; one that never gets an address is discarded like a failed start, as long as nothing has used it."""
    is_ours = observed.is_same_boot and not observed.is_adopted
    if observed.boot_timed_out and is_ours and observed.phase is Phase.PENDING:
        return Step.STOP_VM if observed.is_abandoned else Step.ABANDON_BOOT
    # Also if an earlier agent abandoned the VM: it may have got an address and a job since, so that is looked up first.
    return Step.MONITOR


def _retry_start(observed: Observation) -> Step:
    """Continue after a start that failed: with the same disk if `tart run` was never issued, else with a new clone."""
    if observed.is_past_deadline:
        return Step.RECORD_EXIT
    if observed.process is Process.NONE and observed.has_clone:
        return _when_allowed(observed, Step.START)
    # Tart refused to start the VM. The disk is deleted together with the report of the failure.
    return (
        Step.DISCARD_FAILED_START
        if observed.has_clone
        else _remove_resources(observed) or Step.IDLE
    )


def _when_allowed(observed: Observation, step: Step) -> Step:
    """Return the step, unless the Pod is backing off or all slots are taken."""
    if observed.is_backing_off:
        return Step.AWAIT_RETRY
    return step if observed.has_slot else Step.AWAIT_SLOT


# REPORTED: the server has acknowledged the exit, and the observed phase is older than that.
_BY_RECORD = {
    VmState.CLAIMED: _claimed,
    VmState.CLONED: _cloned,
    VmState.STARTED: _started,
    VmState.ENDED: lambda _: Step.REPORT_EXIT,
    VmState.REPORTED: _clean_up_finished,
}


def _adopt_legacy_vm(observed: Observation) -> Step | None:
    """Record a VM of an older agent, so that it is removed like every other VM."""
    return Step.ADOPT if observed.has_legacy_vm and observed.record is None else None


def _stop_vm(observed: Observation) -> Step | None:
    """Stop a running VM: by its guest within the grace period, then by force."""
    if observed.process is not Process.ALIVE:
        return None
    if observed.grace_is_over:
        return Step.STOP_VM
    return Step.AWAIT_SHUTDOWN if observed.shutdown_requested else Step.SHUT_DOWN_GUEST


def _report_exit(observed: Observation) -> Step | None:
    """Record how the VM ended and have the server acknowledge it, before anything of the VM is removed."""
    if observed.record is VmState.ENDED:
        return Step.REPORT_EXIT
    if observed.record is VmState.STARTED and not _never_booted(observed):
        return Step.RECORD_EXIT
    # Without a usable record the exit still has to be reported: a job may have run.
    if observed.record in {None, VmState.CLAIMED, VmState.CLONED} and _may_have_run(observed):
        return Step.ADOPT
    return None


def _remove_resources(observed: Observation) -> Step | None:
    """Remove the VM, then the guest's data, then the run, then the record.

    The record goes last: as long as it exists, everything else is known to be ours and is removed after a crash.
    """
    if observed.has_clone:
        return Step.DELETE_VM
    if observed.has_data:
        return Step.REMOVE_DATA
    if observed.has_run:
        return Step.REMOVE_RUN
    if observed.record is None and not observed.record_is_lost:
        return None
    if not observed.clone_may_appear:
        return Step.REMOVE_RECORD
    # The record outlives its Pod until no clone can appear any more, so that a late clone is known to be ours.
    return Step.AWAIT_LATE_CLONE if observed.is_gone else None


def _release_finished_pod(observed: Observation) -> Step:
    """Remove the finalizer of a finished Pod that is not deleted, once no clone can appear any more."""
    if observed.clone_may_appear:
        return Step.AWAIT_LATE_CLONE
    return _remove_finalizer(observed) or Step.IDLE


def _remove_finalizer(observed: Observation) -> Step | None:
    return Step.REMOVE_FINALIZER if observed.has_finalizer else None


def _has_leftovers(observed: Observation) -> bool:
    """Return whether there was a VM for this Pod although it has no record."""
    has_files = observed.has_legacy_vm or observed.has_clone or observed.has_data
    return observed.record_is_lost or has_files or _may_have_run(observed)


def _may_have_run(observed: Observation) -> bool:
    """Return whether the guest may have booted, whatever the record states."""
    is_running = observed.phase is Phase.RUNNING
    return is_running or observed.has_run or observed.process is not Process.NONE


def _never_booted(observed: Observation) -> bool:
    """Return whether a VM that is recorded as started has certainly never booted."""
    if observed.is_adopted or not observed.is_same_boot or observed.phase is Phase.RUNNING:
        return False
    # It has booted, whatever is left of its run.
    if observed.is_abandoned:
        return False
    return observed.process in {Process.NONE, Process.REFUSED}
