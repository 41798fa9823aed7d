"""Every combination of the facts that a decision depends on, and the effect of each step on them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bramley.agent.ledger import VmState
from bramley.agent.pods.decision import Image, Observation, Phase, Process, Step

# The seven facts that the state machine depends on.
CORE: Mapping[str, tuple[Any, ...]] = {
    "is_deleting": (False, True),
    "phase": tuple(Phase),
    "has_finalizer": (False, True),
    "record": (None, *VmState),
    "process": tuple(Process),
    "has_clone": (False, True),
    "image": tuple(Image),
}
FLAGS = tuple(
    each.name
    for each in dataclasses.fields(Observation)
    if each.name not in CORE and each.type == "bool"
)


USED = {VmState.STARTED, VmState.ENDED, VmState.REPORTED}


def every_core() -> Iterator[Observation]:
    for values in itertools.product(*CORE.values()):
        yield Observation(**dict(zip(CORE, values, strict=True)))


def _same(_seen: Observation) -> dict[str, Any]:
    return {}


# The observation after a step that succeeded; steps that wait are not here.
EFFECTS: Mapping[Step, Callable[[Observation], dict[str, Any]]] = {
    Step.REJECT: lambda _: {"phase": Phase.FAILED},
    Step.EXPIRE: lambda _: {"phase": Phase.FAILED},
    Step.ADD_FINALIZER: lambda _: {"has_finalizer": True},
    Step.ADOPT: lambda seen: {
        "record": VmState.STARTED,
        "is_adopted": True,
        "is_same_boot": True,
        "has_legacy_vm": False,
        "record_is_lost": False,
        # Where there is nothing yet, a clone without a record may be running.
        "clone_may_appear": not (seen.has_clone or seen.has_legacy_vm or seen.has_run),
        "has_clone": seen.has_clone or seen.has_legacy_vm,
    },
    Step.CLAIM: lambda _: {"record": VmState.CLAIMED, "is_same_boot": True, "is_adopted": False},
    Step.CLONE: lambda _: {"record": VmState.CLONED, "has_clone": True, "clone_may_appear": False},
    Step.START: lambda _: {
        "record": VmState.STARTED,
        "is_same_boot": True,
        "has_data": True,
        "has_run": True,
        "process": Process.ALIVE,
    },
    Step.DISCARD_FAILED_START: lambda _: {"has_clone": False},
    Step.ABANDON_BOOT: lambda _: {"is_abandoned": True, "is_backing_off": True},
    Step.SHUT_DOWN_GUEST: lambda _: {"shutdown_requested": True},
    Step.STOP_VM: lambda _: {"process": Process.ENDED},
    Step.RECORD_EXIT: lambda _: {"record": VmState.ENDED},
    Step.REPORT_EXIT: lambda _: {"record": VmState.REPORTED, "phase": Phase.SUCCEEDED},
    Step.DELETE_VM: lambda _: {"has_clone": False},
    Step.REMOVE_DATA: lambda _: {"has_data": False},
    Step.REMOVE_RUN: lambda _: {"has_run": False, "process": Process.NONE},
    Step.REMOVE_RECORD: lambda _: {
        "record": None,
        "record_is_lost": False,
        "is_adopted": False,
        "is_abandoned": False,
        "boot_timed_out": False,
        "is_same_boot": True,
        # Without the run's folder its exit is unknown.
        "process": Process.NONE,
    },
    Step.REMOVE_FINALIZER: lambda _: {"has_finalizer": False},
}


def after(seen: Observation, step: Step) -> Observation:
    return dataclasses.replace(seen, **EFFECTS.get(step, _same)(seen))


def _may_appear(seen: Observation) -> bool:
    """Return whether a clone may be running: a complete one is not, and a Pod without a record has none."""
    if seen.record is None:
        return seen.record_is_lost and seen.is_gone
    return seen.record is not VmState.CLONED


def plausible(seen: Observation) -> Observation:
    """Return a possible observation: a run that ended has a folder, only a started VM is abandoned, and a record exists or not."""
    return dataclasses.replace(
        seen,
        has_run=seen.has_run or seen.process in {Process.ENDED, Process.REFUSED},
        clone_may_appear=seen.clone_may_appear and _may_appear(seen),
        record_is_lost=seen.record_is_lost and seen.record is None,
        is_adopted=seen.is_adopted and seen.record is not None,
        is_abandoned=seen.is_abandoned and seen.record in USED,
        is_same_boot=seen.is_same_boot or seen.record is None,
    )
