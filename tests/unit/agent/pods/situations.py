"""Known situations of a Pod and the step that each requires."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bramley.agent.ledger import VmState
from bramley.agent.pods.decision import Phase, Process, Step

RUN = {"has_clone": True, "has_run": True, "has_data": True}

SITUATIONS: tuple[tuple[str, Mapping[str, Any], Step], ...] = (
    ("a new Pod is held before anything is made", {}, Step.ADD_FINALIZER),
    (
        "the 504 Pods: finished, deleted, held by our finalizer",
        {"is_deleting": True, "phase": Phase.SUCCEEDED, "has_finalizer": True},
        Step.REMOVE_FINALIZER,
    ),
    (
        "a deleted Pod without a record may have left user data",
        {"is_deleting": True, "has_finalizer": True, "has_data": True},
        Step.REMOVE_DATA,
    ),
    (
        "a deleted Pod without a record may have left a VM",
        {"is_deleting": True, "has_finalizer": True, "has_clone": True, "has_data": True},
        Step.DELETE_VM,
    ),
    (
        "the guest of a deleted Pod is shut down first",
        {"is_deleting": True, "record": VmState.STARTED, "process": Process.ALIVE},
        Step.SHUT_DOWN_GUEST,
    ),
    (
        "its guest has time to end",
        {
            "is_deleting": True,
            "record": VmState.STARTED,
            "process": Process.ALIVE,
            "shutdown_requested": True,
        },
        Step.AWAIT_SHUTDOWN,
    ),
    (
        "then it is stopped",
        {
            "is_deleting": True,
            "record": VmState.STARTED,
            "process": Process.ALIVE,
            "shutdown_requested": True,
            "grace_is_over": True,
        },
        Step.STOP_VM,
    ),
    (
        "a VM that ran while the host was rebooted never boots again",
        {
            "record": VmState.STARTED,
            "has_finalizer": True,
            "has_clone": True,
            "is_same_boot": False,
        },
        Step.RECORD_EXIT,
    ),
    (
        "a clone that was never started may be, also after a reboot",
        {"record": VmState.CLONED, "has_finalizer": True, "has_clone": True, "is_same_boot": False},
        Step.START,
    ),
    (
        "a VM of an older agent is taken into the ledger",
        {"has_finalizer": True, "has_legacy_vm": True},
        Step.ADOPT,
    ),
    (
        "an older agent's VM of a deleted Pod too, so that it can be removed",
        {"has_finalizer": True, "has_legacy_vm": True, "is_deleting": True},
        Step.ADOPT,
    ),
    (
        "an adopted VM that runs no more is never started",
        {"record": VmState.STARTED, "is_adopted": True, "has_finalizer": True, "has_clone": True},
        Step.RECORD_EXIT,
    ),
    (
        "a Pod whose record is unreadable may have had a VM",
        {"has_finalizer": True, "record_is_lost": True},
        Step.ADOPT,
    ),
    ("an unsupported Pod is rejected untouched", {"is_unsupported": True}, Step.REJECT),
    (
        "an unsupported Pod that is deleted goes",
        {"is_unsupported": True, "is_deleting": True},
        Step.FINISH_DELETION,
    ),
    (
        "a Pod that becomes unsupported while its VM runs is left alone",
        {"is_unsupported": True, "record": VmState.STARTED, "process": Process.ALIVE},
        Step.MONITOR,
    ),
    ("no VM on a slot that is taken", {"has_finalizer": True, "has_slot": False}, Step.AWAIT_SLOT),
    (
        "a clone waits for its slot",
        {"record": VmState.CLONED, "has_clone": True, "has_slot": False},
        Step.AWAIT_SLOT,
    ),
    (
        "what a Pod of the same name left goes first",
        {"has_finalizer": True, "has_predecessor": True},
        Step.AWAIT_PREDECESSOR,
    ),
    (
        "a failed try is not repeated at once",
        {"has_finalizer": True, "is_backing_off": True},
        Step.AWAIT_RETRY,
    ),
    (
        "a deletion does not wait for the next try",
        {"is_deleting": True, "has_finalizer": True, "is_backing_off": True},
        Step.REMOVE_FINALIZER,
    ),
    (
        "a Pod beyond its deadline gets no VM",
        {"has_finalizer": True, "is_past_deadline": True},
        Step.EXPIRE,
    ),
    (
        "the guest of a VM beyond its deadline is shut down",
        {"record": VmState.STARTED, "process": Process.ALIVE, "is_past_deadline": True},
        Step.SHUT_DOWN_GUEST,
    ),
    (
        "the record outlives a deleted Pod while a clone may still come",
        {
            "is_deleting": True,
            "has_finalizer": True,
            "record": VmState.CLAIMED,
            "clone_may_appear": True,
        },
        Step.REMOVE_FINALIZER,
    ),
    (
        "a finished Pod that is not deleted keeps its finalizer for so long",
        {
            "phase": Phase.FAILED,
            "has_finalizer": True,
            "record": VmState.REPORTED,
            "clone_may_appear": True,
        },
        Step.AWAIT_LATE_CLONE,
    ),
    (
        "and is kept until none can come any more",
        {"is_gone": True, "record": VmState.CLAIMED, "clone_may_appear": True},
        Step.AWAIT_LATE_CLONE,
    ),
    (
        "killed between the record and the run: the disk has never booted",
        {"record": VmState.STARTED, "has_clone": True},
        Step.START,
    ),
    (
        "a refused start is thrown away with its disk",
        {"record": VmState.STARTED, "has_clone": True, "has_run": True, "process": Process.REFUSED},
        Step.DISCARD_FAILED_START,
    ),
    (
        "a VM without an address for too long is given up",
        {"record": VmState.STARTED, "process": Process.ALIVE, "boot_timed_out": True, **RUN},
        Step.ABANDON_BOOT,
    ),
    (
        "unless it is adopted: a guest may have used it",
        {
            "record": VmState.STARTED,
            "process": Process.ALIVE,
            "boot_timed_out": True,
            "is_adopted": True,
            **RUN,
        },
        Step.MONITOR,
    ),
    (
        "or its Pod runs",
        {
            "record": VmState.STARTED,
            "process": Process.ALIVE,
            "boot_timed_out": True,
            "phase": Phase.RUNNING,
            **RUN,
        },
        Step.MONITOR,
    ),
    (
        "a VM that is given up is powered off",
        {
            "record": VmState.STARTED,
            "process": Process.ALIVE,
            "is_abandoned": True,
            "boot_timed_out": True,
            **RUN,
        },
        Step.STOP_VM,
    ),
    (
        "unless it may have got an address since an earlier agent gave it up",
        {"record": VmState.STARTED, "process": Process.ALIVE, "is_abandoned": True, **RUN},
        Step.MONITOR,
    ),
    (
        "and deleted, not reported as an exit",
        {"record": VmState.STARTED, "process": Process.ENDED, "is_abandoned": True, **RUN},
        Step.DELETE_VM,
    ),
    (
        "and its disk never boots again, also without its run",
        {"record": VmState.STARTED, "is_abandoned": True, "has_clone": True},
        Step.DELETE_VM,
    ),
    (
        "also after a reboot",
        {
            "record": VmState.STARTED,
            "is_abandoned": True,
            "is_same_boot": False,
            "process": Process.ENDED,
            **RUN,
        },
        Step.DELETE_VM,
    ),
    (
        "then its record goes, and the Pod begins again",
        {"record": VmState.STARTED, "is_abandoned": True},
        Step.REMOVE_RECORD,
    ),
    (
        "a VM that is given up has an exit if its Pod is deleted",
        {"record": VmState.STARTED, "is_abandoned": True, "is_deleting": True},
        Step.RECORD_EXIT,
    ),
    (
        "or its active deadline has passed",
        {
            "record": VmState.STARTED,
            "is_abandoned": True,
            "is_past_deadline": True,
            "process": Process.ENDED,
            **RUN,
        },
        Step.RECORD_EXIT,
    ),
)
