"""What is known of one Pod and its VM at one moment: frozen, small, and everything that `deciding.decide` may look at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bramley.agent.ledger.records import VmState


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
