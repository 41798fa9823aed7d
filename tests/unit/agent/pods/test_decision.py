"""The state machine: its whole table, and the invariants of every combination."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.agent.ledger import VmState
from bramley.agent.pods.decision import Image, Observation, Phase, Process, Step, decide
from tests.unit import example_counts
from tests.unit.agent.pods.combinations import CORE, EFFECTS, FLAGS, after, every_core, plausible
from tests.unit.agent.pods.situations import SITUATIONS

DONE = (Phase.SUCCEEDED, Phase.FAILED)
OPEN = (Phase.PENDING, Phase.RUNNING)
OVER = (Process.ENDED, Process.REFUSED)
NOT_READY = (Image.UNKNOWN, Image.PULLING, Image.FAILED)

# The whole table: the first row that matches gives the step. A fact that a row does not name may have any value.
TABLE: tuple[tuple[Mapping[str, Any], Step], ...] = (
    # A deletion precedes everything, also the phase: first the exit, then the remains, then the Pod itself.
    ({"is_deleting": True, "process": Process.ALIVE}, Step.SHUT_DOWN_GUEST),
    ({"is_deleting": True, "phase": OPEN, "record": VmState.ENDED}, Step.REPORT_EXIT),
    ({"is_deleting": True, "phase": Phase.RUNNING, "record": VmState.STARTED}, Step.RECORD_EXIT),
    (
        {
            "is_deleting": True,
            "phase": Phase.PENDING,
            "record": VmState.STARTED,
            "process": Process.ENDED,
        },
        Step.RECORD_EXIT,
    ),
    (
        {
            "is_deleting": True,
            "phase": OPEN,
            "record": (None, VmState.CLAIMED, VmState.CLONED),
            "process": OVER,
        },
        Step.ADOPT,
    ),
    (
        {
            "is_deleting": True,
            "phase": Phase.RUNNING,
            "record": (None, VmState.CLAIMED, VmState.CLONED),
        },
        Step.ADOPT,
    ),
    ({"is_deleting": True, "has_clone": True}, Step.DELETE_VM),
    ({"is_deleting": True, "process": OVER}, Step.REMOVE_RUN),
    ({"is_deleting": True, "record": tuple(VmState)}, Step.REMOVE_RECORD),
    ({"is_deleting": True, "has_finalizer": True}, Step.REMOVE_FINALIZER),
    ({"is_deleting": True}, Step.FINISH_DELETION),
    # A finished Pod is cleaned up and never started again.
    ({"phase": DONE, "process": Process.ALIVE}, Step.SHUT_DOWN_GUEST),
    ({"phase": DONE, "has_clone": True}, Step.DELETE_VM),
    ({"phase": DONE, "process": OVER}, Step.REMOVE_RUN),
    ({"phase": DONE, "record": tuple(VmState)}, Step.REMOVE_RECORD),
    ({"phase": DONE, "has_finalizer": True}, Step.REMOVE_FINALIZER),
    ({"phase": DONE}, Step.IDLE),
    # A Pod without a record gets its finalizer first; remains of a VM are adopted, never booted.
    ({"record": None, "has_finalizer": False}, Step.ADD_FINALIZER),
    ({"record": None, "phase": Phase.RUNNING}, Step.ADOPT),
    ({"record": None, "has_clone": True}, Step.ADOPT),
    ({"record": None, "process": (Process.ALIVE, *OVER)}, Step.ADOPT),
    ({"record": None}, Step.CLAIM),
    # Creation of a VM.
    ({"record": (VmState.CLAIMED, VmState.CLONED), "process": (Process.ALIVE, *OVER)}, Step.ADOPT),
    ({"record": (VmState.CLAIMED, VmState.CLONED), "phase": Phase.RUNNING}, Step.ADOPT),
    ({"record": VmState.CLAIMED, "has_clone": True}, Step.DELETE_VM),
    ({"record": VmState.CLAIMED, "image": Image.READY}, Step.CLONE),
    ({"record": VmState.CLAIMED, "image": NOT_READY}, Step.AWAIT_IMAGE),
    ({"record": VmState.CLONED, "has_clone": False}, Step.REMOVE_RECORD),
    ({"record": VmState.CLONED}, Step.START),
    # A VM and its exit.
    ({"record": VmState.STARTED, "process": Process.ALIVE}, Step.MONITOR),
    ({"record": VmState.STARTED, "phase": Phase.RUNNING}, Step.RECORD_EXIT),
    ({"record": VmState.STARTED, "process": Process.ENDED}, Step.RECORD_EXIT),
    (
        {"record": VmState.STARTED, "process": Process.REFUSED, "has_clone": True},
        Step.DISCARD_FAILED_START,
    ),
    ({"record": VmState.STARTED, "process": Process.REFUSED}, Step.REMOVE_RUN),
    ({"record": VmState.STARTED, "has_clone": True}, Step.START),
    ({"record": VmState.STARTED}, Step.REMOVE_RECORD),
    ({"record": VmState.ENDED}, Step.REPORT_EXIT),
    # The server knows the end already, only our view of the Pod does not.
    ({"record": VmState.REPORTED, "process": Process.ALIVE}, Step.SHUT_DOWN_GUEST),
    ({"record": VmState.REPORTED, "has_clone": True}, Step.DELETE_VM),
    ({"record": VmState.REPORTED, "process": OVER}, Step.REMOVE_RUN),
    ({"record": VmState.REPORTED}, Step.REMOVE_RECORD),
)


def fits(seen: Observation, row: Mapping[str, Any]) -> bool:
    def holds(name: str, expected: Any) -> bool:
        value = getattr(seen, name)
        return value in expected if isinstance(expected, tuple) else value is expected

    return all(holds(name, expected) for name, expected in row.items())


def row_for(seen: Observation) -> int:
    return next(index for index, (row, _) in enumerate(TABLE) if fits(seen, row))


def test_every_combination_has_the_decision_of_the_table() -> None:
    wrong = [
        (seen, decide(seen), TABLE[row_for(seen)][1])
        for seen in map(plausible, every_core())
        if decide(seen) is not TABLE[row_for(seen)][1]
    ]

    assert not wrong


def test_every_row_of_the_table_is_used() -> None:
    used = {row_for(seen) for seen in map(plausible, every_core())}

    assert used == set(range(len(TABLE)))


def observations() -> st.SearchStrategy[Observation]:
    core = {name: st.sampled_from(values) for name, values in CORE.items()}
    return st.builds(Observation, **core, **{name: st.booleans() for name in FLAGS}).map(plausible)


def with_every_flag() -> Iterator[Observation]:
    """Yield all core combinations with each flag alone turned from its default; under `fast` every seventh one."""
    some = itertools.islice(every_core(), 0, None, 1 if example_counts.share() == 1 else 7)
    for seen in map(plausible, some):
        yield seen
        for flag in FLAGS:
            turned: Mapping[str, Any] = {flag: not getattr(Observation(), flag)}
            yield plausible(dataclasses.replace(seen, **turned))


MAKES = {Step.ADD_FINALIZER, Step.CLAIM, Step.CLONE, Step.START}


def check(seen: Observation) -> None:
    step = decide(seen)

    if seen.is_gone or seen.is_deleting or seen.phase.is_finished:
        assert step not in MAKES | {Step.REJECT, Step.EXPIRE, Step.MONITOR}
    if step is Step.START:
        check_start(seen)
    if step in {Step.CLAIM, Step.CLONE}:
        assert seen.has_finalizer or seen.record is not None
        assert seen.process is Process.NONE
        assert not seen.has_clone
    check_removal(seen, step)


def check_start(seen: Observation) -> None:
    """Check that a disk boots only if it is complete and has never booted."""
    assert seen.has_clone
    assert seen.has_slot
    assert not seen.is_abandoned
    assert seen.process is Process.NONE
    assert seen.phase is Phase.PENDING
    if seen.record is VmState.STARTED:
        assert seen.is_same_boot
        assert not seen.is_adopted
    else:
        assert seen.record is VmState.CLONED


def check_removal(seen: Observation, step: Step) -> None:
    """Check the order of removal: status before VM, VM before record, all before the Pod."""
    is_published = seen.is_gone or seen.phase.is_finished or seen.record is VmState.REPORTED
    if step is Step.DELETE_VM and not is_published:
        assert seen.record is not VmState.ENDED
        if seen.record is VmState.STARTED and not seen.is_abandoned:
            assert seen.process in {Process.NONE, Process.REFUSED}
            assert seen.is_same_boot
    if step in {Step.DELETE_VM, Step.REMOVE_DATA, Step.REMOVE_RUN, Step.REMOVE_RECORD}:
        assert seen.process is not Process.ALIVE
    if step in {Step.REMOVE_RECORD, Step.REMOVE_FINALIZER, Step.FINISH_DELETION}:
        assert not (seen.has_clone or seen.has_run) or seen.record is VmState.CLONED
    if step in {Step.REMOVE_FINALIZER, Step.FINISH_DELETION}:
        assert not seen.has_data
        assert seen.process is not Process.ALIVE
        assert seen.record is None or seen.clone_may_appear
        # Only a deleted Pod loses its finalizer before a late clone is cleaned up.
        assert seen.is_deleting or not seen.clone_may_appear
    if step is Step.FINISH_DELETION:
        assert seen.is_deleting
        assert not seen.has_finalizer


def test_invariants_hold_in_every_combination_with_each_flag() -> None:
    for seen in with_every_flag():
        check(seen)


@given(observations())
def test_invariants_hold_for_any_observation(seen: Observation) -> None:
    check(seen)


def steps_until_rest(seen: Observation) -> list[Step]:
    steps: list[Step] = []
    while len(steps) < 30:
        step = decide(seen)
        steps.append(step)
        if step not in EFFECTS:
            return steps
        # The grace period of a guest ends, and no step fails for ever.
        seen = dataclasses.replace(after(seen, step), is_backing_off=False)
        if step is Step.SHUT_DOWN_GUEST:
            seen = dataclasses.replace(seen, grace_is_over=True)
    raise AssertionError(f"no end: {steps}")


@given(observations())
def test_steps_terminate(seen: Observation) -> None:
    steps_until_rest(seen)


@given(observations())
def test_deleted_pod_is_gone_in_the_end(seen: Observation) -> None:
    deleted = dataclasses.replace(seen, is_gone=False, is_deleting=True)
    if deleted.shutdown_requested:
        deleted = dataclasses.replace(deleted, grace_is_over=True)

    steps = steps_until_rest(deleted)

    assert steps[-1] is Step.FINISH_DELETION
    if deleted.has_finalizer:
        assert Step.REMOVE_FINALIZER in steps


@given(observations())
def test_remains_of_a_lost_pod_are_removed(seen: Observation) -> None:
    gone = dataclasses.replace(seen, is_gone=True, grace_is_over=True)

    steps = steps_until_rest(gone)

    assert steps[-1] is (Step.AWAIT_LATE_CLONE if plausible(gone).clone_may_appear else Step.IDLE)


@pytest.mark.parametrize(
    ("seen", "expected"), [pytest.param(seen, step, id=name) for name, seen, step in SITUATIONS]
)
def test_situation_has_the_expected_decision(seen: Mapping[str, Any], expected: Step) -> None:
    assert decide(Observation(**seen)) is expected
