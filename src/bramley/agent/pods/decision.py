"""The state machine of a Pod: one pure function from what was seen to the one thing to do next.

The order of the branches is load-bearing: a deletion counts before everything, an end before a beginning. After each step
everything is looked at again, so a kill between any two steps is just another look; `docs/explanation/pods.md` tells why each
order of steps is safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bramley.agent.ledger import VmState


class Phase(StrEnum):
    """How the API server sees the Pod; a Pod that nobody has looked at yet counts as pending."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def is_finished(self) -> bool:
        """Tell whether nothing may run for the Pod any more."""
        return self in {Phase.SUCCEEDED, Phase.FAILED}


class Process(StrEnum):
    """What became of `tart run`."""

    NONE = "none"  # never begun, as far as this host knows
    ALIVE = "alive"  # tart runs, or somebody holds the VM's lock
    ENDED = "ended"  # it is over; the guest may have worked
    REFUSED = "refused"  # it is over at once and with an error: no guest ever came up


class Image(StrEnum):
    """Whether there is something to clone."""

    UNASKED = "unasked"
    READY = "ready"
    PULLING = "pulling"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One look at a Pod and at what this host has for it."""

    # The Pod. One that is gone has only left a record behind.
    is_gone: bool = False
    is_deleting: bool = False
    phase: Phase = Phase.PENDING
    has_finalizer: bool = False
    is_unsupported: bool = False
    is_late: bool = False  # its active deadline has passed

    # The ledger.
    record: VmState | None = None
    is_adopted: bool = (
        False  # the VM was begun by an agent without a ledger, or its record was lost
    )
    is_same_boot: bool = True  # the host has not been rebooted since the record was written
    may_appear: bool = False  # an earlier agent may have left a clone under way
    was_lost: bool = False  # there was a record, and it cannot be read

    # The host.
    process: Process = Process.NONE
    has_clone: bool = False  # a folder of this VM's name, whole or not
    has_run: bool = False  # a run's folder, with its end in it or not
    has_data: bool = False  # the guest's shared folders
    image: Image = Image.UNASKED
    has_slot: bool = True  # one more VM may run now
    has_legacy: bool = False  # a VM under the name that older agents gave

    # Others.
    has_predecessor: bool = False  # a Pod of the same name has left something behind
    is_backing_off: bool = False  # the last try failed a moment ago
    was_asked: bool = False  # the guest was asked to shut down
    is_out_of_grace: bool = False


class Step(StrEnum):
    """The next thing to do for a Pod; whatever waits says for what."""

    # Nothing, until something changes.
    REST = "rest"
    AWAIT_PREDECESSOR = "await predecessor"
    AWAIT_SLOT = "await slot"
    AWAIT_IMAGE = "await image"
    AWAIT_RETRY = "await retry"
    AWAIT_END = "await end"
    AWAIT_REMAINS = "await remains"

    # Towards a running VM.
    REJECT = "reject"
    EXPIRE = "expire"
    HOLD = "hold"
    ADOPT = "adopt"
    CLAIM = "claim"
    CLONE = "clone"
    START = "start"
    FOLLOW = "follow"
    REGRET = "regret"

    # Towards its end.
    ASK = "ask"
    STOP = "stop"
    END = "end"
    REPORT = "report"

    # Leaving nothing behind, in this order.
    DELETE_VM = "delete VM"
    REMOVE_DATA = "remove data"
    FORGET_RUN = "forget run"
    DROP_RECORD = "drop record"
    RELEASE = "release"
    COMPLETE = "complete"


def decide(seen: Observation) -> Step:
    """Return the next step for a Pod."""
    if seen.is_gone:
        return _clear(seen)
    # Before the terminal phase: a finished Pod that is deleted must go, or it stays in Terminating for ever.
    if seen.is_deleting:
        return _leave(seen)
    if seen.phase.is_finished:
        return _finish(seen)
    if seen.record is None:
        return _begin(seen)
    return _PROGRESS[seen.record](seen)


def _clear(seen: Observation) -> Step:
    """Remove what a Pod that is gone has left; nobody is there to be told how it ended."""
    return _quench(seen) or _remove(seen) or Step.REST


def _leave(seen: Observation) -> Step:
    """Stop, tell how it ended, remove everything, and let the Pod go."""
    told = _inherit(seen) or _quench(seen) or (None if seen.phase.is_finished else _tell(seen))
    return told or _remove(seen) or _let_go(seen) or Step.COMPLETE


def _finish(seen: Observation) -> Step:
    """Remove everything of a Pod that has ended; its status is told already, by whomever."""
    return _inherit(seen) or _quench(seen) or _remove(seen) or _part(seen)


def _begin(seen: Observation) -> Step:
    """Take a Pod on that has no record."""
    if _has_trace(seen):
        # Whatever this is, a guest may have worked on it. It is followed to its end and never booted.
        return Step.ADOPT if seen.has_finalizer else Step.HOLD
    if seen.is_unsupported:
        return Step.REJECT
    if seen.is_late:
        return Step.EXPIRE
    if not seen.has_finalizer:
        return Step.HOLD
    if seen.has_predecessor:
        return Step.AWAIT_PREDECESSOR
    return _unless_hindered(seen, Step.CLAIM)


def _claimed(seen: Observation) -> Step:
    if _may_have_worked(seen):
        return Step.ADOPT
    if seen.is_late:
        return Step.END
    if seen.has_clone:
        # Nobody wrote down that it is whole.
        return Step.DELETE_VM
    if seen.image is not Image.READY:
        return Step.AWAIT_IMAGE
    return Step.AWAIT_RETRY if seen.is_backing_off else Step.CLONE


def _cloned(seen: Observation) -> Step:
    if _may_have_worked(seen):
        return Step.ADOPT
    if seen.is_late:
        return Step.END
    if not seen.has_clone:
        return Step.DROP_RECORD
    return _unless_hindered(seen, Step.START)


def _started(seen: Observation) -> Step:
    if seen.process is Process.ALIVE:
        return (seen.is_late and _quench(seen)) or Step.FOLLOW
    if _never_booted(seen):
        return _again(seen)
    return Step.END


def _again(seen: Observation) -> Step:
    """Go on after a start that did not come about: on the same disk if it was never asked for, else from the beginning."""
    if seen.is_late:
        return Step.END
    if seen.process is Process.NONE and seen.has_clone:
        return _unless_hindered(seen, Step.START)
    # Tart would not start it. What is said of it is said with the disk's end; then all begins anew.
    return Step.REGRET if seen.has_clone else _remove(seen) or Step.REST


def _unless_hindered(seen: Observation, step: Step) -> Step:
    """Return the step, unless the last try is too near or no further VM may run."""
    if seen.is_backing_off:
        return Step.AWAIT_RETRY
    return step if seen.has_slot else Step.AWAIT_SLOT


def _ended(_seen: Observation) -> Step:
    return Step.REPORT


def _reported(seen: Observation) -> Step:
    # The server has acknowledged the end; what we see of the Pod is older than that.
    return _finish(seen)


_PROGRESS = {
    VmState.CLAIMED: _claimed,
    VmState.CLONED: _cloned,
    VmState.STARTED: _started,
    VmState.ENDED: _ended,
    VmState.REPORTED: _reported,
}


def _inherit(seen: Observation) -> Step | None:
    """Take what an older agent made into the ledger, so that it goes the way of everything else."""
    return Step.ADOPT if seen.has_legacy and seen.record is None else None


def _quench(seen: Observation) -> Step | None:
    """Bring a VM to its end: by its guest within the grace, then by force."""
    if seen.process is not Process.ALIVE:
        return None
    if seen.is_out_of_grace:
        return Step.STOP
    return Step.AWAIT_END if seen.was_asked else Step.ASK


def _tell(seen: Observation) -> Step | None:
    """Write down how a VM ended, and have it acknowledged, before anything of it goes."""
    if seen.record is VmState.ENDED:
        return Step.REPORT
    if seen.record is VmState.STARTED and not _never_booted(seen):
        return Step.END
    # A record that is lost makes no difference to those who wait for the end of the job.
    if seen.record in {None, VmState.CLAIMED, VmState.CLONED} and _may_have_worked(seen):
        return Step.ADOPT
    return None


def _remove(seen: Observation) -> Step | None:
    """Remove the VM, then what the guest was given, then the memory of both."""
    if seen.has_clone:
        return Step.DELETE_VM
    if seen.has_data:
        return Step.REMOVE_DATA
    if seen.has_run:
        return Step.FORGET_RUN
    if seen.record is None and not seen.was_lost:
        return None
    if not seen.may_appear:
        return Step.DROP_RECORD
    # The record outlives its Pod until no clone can come any more, so that whatever comes is known as ours.
    return Step.AWAIT_REMAINS if seen.is_gone else None


def _part(seen: Observation) -> Step:
    """Let a finished Pod go that nobody has deleted, and that is held for as long as a clone may still come."""
    return Step.AWAIT_REMAINS if seen.may_appear else _let_go(seen) or Step.REST


def _let_go(seen: Observation) -> Step | None:
    return Step.RELEASE if seen.has_finalizer else None


def _has_trace(seen: Observation) -> bool:
    """Tell whether there was a VM for this Pod although there is no record of it."""
    traces = (seen.was_lost, seen.has_legacy, seen.has_clone, seen.has_data)
    return any(traces) or _may_have_worked(seen)


def _may_have_worked(seen: Observation) -> bool:
    """Tell whether a guest may have come up, whatever the record says."""
    return seen.phase is Phase.RUNNING or seen.has_run or seen.process is not Process.NONE


def _never_booted(seen: Observation) -> bool:
    """Tell whether a VM whose start was written down has certainly never come up."""
    if seen.is_adopted or not seen.is_same_boot or seen.phase is Phase.RUNNING:
        return False
    return seen.process in {Process.NONE, Process.REFUSED}
