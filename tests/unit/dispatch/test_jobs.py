from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.dispatch.jobs import TERMINAL, Phase, Report, State, merge, next_state

START = datetime(2026, 1, 1, tzinfo=UTC)


def a_report(phase: Phase, **changes: object) -> Report:
    started = phase >= Phase.IN_PROGRESS
    values: dict[str, object] = {
        "job_id": 7,
        "phase": phase,
        "account": "acme",
        "labels": ("tuist-macos",),
        "queued_at": START,
        "runner_name": "runner-1" if started else "",
        "started_at": START + timedelta(seconds=5) if started else None,
        "completed_at": START + timedelta(seconds=9) if phase == Phase.COMPLETED else None,
        "conclusion": "success" if phase == Phase.COMPLETED else "",
    }
    return Report(**(values | changes))  # type: ignore[arg-type]


LIFE = tuple(a_report(phase) for phase in Phase)


def test_every_order_with_repetitions_and_losses_gives_one_end_state() -> None:
    # What the sweep learns from GitHub closes every gap.
    swept = LIFE[-1]
    ends = set()
    for size in range(7):
        for events in itertools.product(LIFE, repeat=size) if size < 5 else sextets(size):
            facts = reduce(merge, (*events, swept))
            state = State.WAITING
            for upto in range(1, len(events) + 2):
                state = next_state(state, reduce(merge, (*events, swept)[:upto]))
            ends.add((facts, state))

    assert ends == {(LIFE[-1], State.COMPLETED)}


def sextets(size: int) -> list[tuple[Report, ...]]:
    return [
        order
        for repeated in itertools.combinations_with_replacement(LIFE, size - len(LIFE))
        for order in set(itertools.permutations((*LIFE, *repeated)))
    ]


reports = st.builds(
    a_report,
    st.sampled_from(Phase),
    runner_name=st.sampled_from(["", "a", "b"]),
    conclusion=st.sampled_from(["", "failure", "success"]),
    started_at=st.sampled_from([None, START, START + timedelta(seconds=1)]),
    branch=st.sampled_from(["", "main"]),
)


@given(st.lists(reports, min_size=1, max_size=6), st.randoms())
def test_merge_does_not_depend_on_the_order(events: list[Report], random: object) -> None:
    shuffled = [*events, *events]
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert reduce(merge, shuffled) == reduce(merge, events)


@given(reports, reports, reports)
def test_merge_is_associative(one: Report, two: Report, three: Report) -> None:
    assert merge(merge(one, two), three) == merge(one, merge(two, three))


@pytest.mark.parametrize("ended", sorted(TERMINAL))
@pytest.mark.parametrize("phase", Phase)
def test_a_job_that_ended_is_never_resurrected(ended: State, phase: Phase) -> None:
    assert next_state(ended, a_report(phase)) == ended


TABLE = [
    (State.WAITING, Phase.WAITING, State.WAITING),
    (State.WAITING, Phase.QUEUED, State.QUEUED),
    (State.QUEUED, Phase.QUEUED, State.QUEUED),
    (State.CLAIMED, Phase.QUEUED, State.CLAIMED),
    (State.RUNNING, Phase.QUEUED, State.RUNNING),
    (State.QUEUED, Phase.IN_PROGRESS, State.RUNNING),
    (State.CLAIMED, Phase.IN_PROGRESS, State.RUNNING),
    (State.QUEUED, Phase.COMPLETED, State.COMPLETED),
    (State.RUNNING, Phase.COMPLETED, State.COMPLETED),
]


@pytest.mark.parametrize(("before", "phase", "after"), TABLE)
def test_states_move_by_this_table(before: State, phase: Phase, after: State) -> None:
    assert next_state(before, a_report(phase)) == after


def test_a_job_cancelled_at_github_is_cancelled() -> None:
    facts = a_report(Phase.COMPLETED, conclusion="cancelled")

    assert next_state(State.QUEUED, facts) == State.CANCELLED
