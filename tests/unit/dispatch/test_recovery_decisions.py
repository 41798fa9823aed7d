"""What the recovery does with a claim or a job, by what the API server and the forge answer."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from bramley.dispatch.forge import RunnerState
from bramley.dispatch.jobs import Phase, Report, State
from bramley.dispatch.recovery_decisions import (
    Action,
    ApplyReport,
    EndClaim,
    Observation,
    PodState,
    RecordOnline,
    RecoveryKind,
    Release,
    Requeue,
    SeenClaim,
    SeenJob,
    Wait,
    job_action,
    next_step,
)
from bramley.dispatch.store.records import Claim
from tests.unit.dispatch.job_builders import a_claim, a_job, at

ALIVE, ENDED, GONE = PodState.ALIVE, PodState.ENDED, PodState.GONE
OFFLINE, IDLE, BUSY = RunnerState.OFFLINE, RunnerState.IDLE, RunnerState.BUSY
NO_RUNNER = RunnerState.GONE
MINTED = a_claim(online_at=None)
ONLINE = a_claim()
STAMPED = a_claim(minted_at=None, jit=None, runner_id=None, online_at=None)
CLAIMED = replace(STAMPED, stamped_at=None, runner_name="")
JOB = a_job(State.CLAIMED)
QUEUED = JOB.facts
OURS = replace(QUEUED, phase=Phase.IN_PROGRESS, runner_name="runner-1")
OTHERS = replace(OURS, runner_name="runner-2")
ENDED_JOB = replace(OURS, phase=Phase.COMPLETED, conclusion="success")
# Just after the five minutes that a runner has to come online.
LATE = at(3 + 301)


@dataclass(frozen=True)
class Truth:
    """What the witnesses answer when they are queried."""

    pod: PodState
    runner: RunnerState = NO_RUNNER
    report: Report | None = QUEUED
    can_remove: bool = True


def decide(
    claim: Claim, truth: Truth, now: datetime = LATE
) -> tuple[tuple[Observation, ...], Action]:
    """Return what was observed until the decision, and the decision."""
    seen, observed = SeenClaim(claim=claim, job=JOB, now=now), []
    while isinstance(step := next_step(seen), Observation):
        assert step not in observed
        observed.append(step)
        answers: dict[Observation, dict[str, Any]] = {
            Observation.POD: {"pod": truth.pod},
            Observation.RUNNER: {"runner": truth.runner, "runner_id": 71},
            Observation.REMOVAL: {"is_removed": truth.can_remove},
            Observation.JOB: {"report": truth.report, "has_job": truth.report is not None},
        }
        seen = replace(seen, **answers[step])
    return tuple(observed), step


POD, RUNNER, REMOVAL, THE_JOB = Observation
NEVER_ONLINE = Release("runner never online", RecoveryKind.STALE_CLAIM)
POD_LOST = Release("pod gone", RecoveryKind.ORPHAN_REQUEUED)
POD_LOST_EARLY = Release("pod gone", RecoveryKind.POD_MISSING_CLAIM)
MISSED_END = EndClaim("completed", RecoveryKind.ORPHAN_COMPLETED, ENDED_JOB)
ELSEWHERE = EndClaim("runs elsewhere", RecoveryKind.COMPLETED_CLAIM, OTHERS)
ALL = (POD, RUNNER, REMOVAL, THE_JOB)

REAPED = [
    # The Pod runs, and its runner did not come online in five minutes.
    (MINTED, Truth(ALIVE, OFFLINE), ALL, NEVER_ONLINE),
    (MINTED, Truth(ALIVE), (POD, RUNNER, THE_JOB), NEVER_ONLINE),
    (STAMPED, Truth(ALIVE, OFFLINE), (POD, RUNNER, REMOVAL), NEVER_ONLINE),
    # The VM ended before it started the job.
    (MINTED, Truth(GONE, OFFLINE), ALL, POD_LOST),
    (MINTED, Truth(ENDED, OFFLINE), ALL, POD_LOST),
    (ONLINE, Truth(ENDED), (POD, RUNNER, THE_JOB), POD_LOST),
    (STAMPED, Truth(GONE), (POD, RUNNER), POD_LOST_EARLY),
    # No runner was ever requested for it, so the forge has nothing to testify.
    (CLAIMED, Truth(GONE), (POD,), POD_LOST_EARLY),
    # The job ended, or another runner has it.
    (ONLINE, Truth(GONE, report=ENDED_JOB), (POD, RUNNER, THE_JOB), MISSED_END),
    (MINTED, Truth(ALIVE, OFFLINE, ENDED_JOB), ALL, MISSED_END),
    (MINTED, Truth(GONE, report=OTHERS), (POD, RUNNER, THE_JOB), ELSEWHERE),
]


@pytest.mark.parametrize(("claim", "truth", "observed", "action"), REAPED)
def test_claim_is_reaped_after_these_observations(
    claim: Claim, truth: Truth, observed: tuple[Observation, ...], action: Action
) -> None:
    assert decide(claim, truth) == (observed, action)


KEPT = [
    (MINTED, Truth(PodState.UNKNOWN), "the API server is unavailable"),
    (ONLINE, Truth(ALIVE), "the Pod runs"),
    (ONLINE, Truth(GONE, BUSY), "the runner is online"),
    (MINTED, Truth(GONE, IDLE), "the runner is online"),
    (MINTED, Truth(GONE, OFFLINE, can_remove=False), "the runner is online"),
    (
        ONLINE,
        Truth(GONE, report=OURS),
        "the job is in progress on the lost runner until GitHub fails it",
    ),
]


@pytest.mark.parametrize(("claim", "truth", "why"), KEPT)
def test_claim_is_kept(claim: Claim, truth: Truth, why: str) -> None:
    assert decide(claim, truth)[1] == Wait(why)


@pytest.mark.parametrize("truth", [Truth(ALIVE, IDLE), Truth(ALIVE, OFFLINE, can_remove=False)])
def test_runner_that_is_online_late_is_recorded(truth: Truth) -> None:
    assert decide(MINTED, truth)[1] == RecordOnline()


@pytest.mark.parametrize(
    ("claim", "pod", "last", "first"),
    [
        (MINTED, ALIVE, at(3 + 300), LATE),
        (STAMPED, ALIVE, at(1 + 300), at(1 + 301)),
        # A hand-out may be about to register the runner, also for a Pod that is gone.
        (STAMPED, GONE, at(2 + 30), at(2 + 31)),
        (CLAIMED, GONE, at(1 + 30), at(1 + 31)),
    ],
)
def test_claim_is_reaped_only_after_its_time(
    claim: Claim, pod: PodState, last: datetime, first: datetime
) -> None:
    assert isinstance(decide(claim, Truth(pod), last)[1], Wait)
    assert isinstance(decide(claim, Truth(pod), first)[1], Release)


def test_no_claim_is_reaped_without_both_witnesses() -> None:
    reports = (QUEUED, OURS, OTHERS, ENDED_JOB, None)
    truths = itertools.product(PodState, RunnerState, reports, (False, True))
    times = [at(3), at(40), LATE, at(100_000)]
    for values, claim, now in itertools.product(truths, (MINTED, ONLINE, STAMPED), times):
        truth = Truth(*values)
        observed, action = decide(claim, truth, now)
        if isinstance(action, Release | EndClaim):
            is_unregistered = truth.runner == NO_RUNNER or (
                Observation.REMOVAL in observed and truth.can_remove
            )
            assert {POD, RUNNER} <= set(observed)
            assert truth.pod != PodState.UNKNOWN
            assert is_unregistered
        if isinstance(action, Release) and claim.minted_at is not None:
            assert THE_JOB in observed
            assert truth.report == QUEUED


@pytest.mark.parametrize(
    ("pod", "age", "is_ended"),
    [
        (GONE, timedelta(days=1), False),
        (GONE, timedelta(days=1, seconds=1), True),
        (ALIVE, timedelta(days=2), False),
    ],
)
def test_denied_repository_ends_a_claim_without_pod_after_a_day(
    pod: PodState, age: timedelta, is_ended: bool
) -> None:
    seen = SeenClaim(claim=MINTED, job=JOB, now=at(1) + age, pod=pod, is_denied=True)

    assert isinstance(next_step(seen), EndClaim) == is_ended


@pytest.mark.parametrize(
    ("pod", "action"),
    [
        (GONE, EndClaim("pod gone", RecoveryKind.COMPLETED_CLAIM)),
        (ENDED, Wait("the Pod exists")),
        (PodState.UNKNOWN, Wait("the API server is unavailable")),
    ],
)
def test_finished_claim_ends_with_its_pod(pod: PodState, action: Action) -> None:
    assert decide(a_claim(finished_at=at(9)), Truth(pod)) == ((POD,), action)


@pytest.mark.parametrize(
    ("pod", "runner", "seconds", "observed"),
    [
        (ALIVE, IDLE, 301, (POD, RUNNER, REMOVAL)),
        (ALIVE, OFFLINE, 301, (POD, RUNNER, REMOVAL)),
        (ALIVE, BUSY, 301, (POD, RUNNER)),
        (ALIVE, NO_RUNNER, 301, (POD, RUNNER)),
        (ALIVE, IDLE, 300, (POD,)),
        (ENDED, IDLE, 301, (POD,)),
    ],
)
def test_runner_that_outlived_its_job_is_removed_unless_it_is_busy(
    pod: PodState, runner: RunnerState, seconds: int, observed: tuple[Observation, ...]
) -> None:
    claim = a_claim(finished_at=at(9))

    for can_remove in (True, False):
        found = decide(claim, Truth(pod, runner, can_remove=can_remove), now=at(9 + seconds))

        assert found == (observed, Wait("the Pod exists"))


def test_runner_that_outlived_its_job_is_left_alone_while_its_repository_is_denied() -> None:
    seen = SeenClaim(
        claim=a_claim(finished_at=at(9)), job=JOB, now=at(310), pod=ALIVE, is_denied=True
    )

    assert next_step(seen) == Wait("the Pod exists")


HOUR = 3600
JOBS = [
    # state, is claimed, report, age in seconds, is denied, expected
    (State.COMPLETED, False, None, 2 * HOUR, False, Wait),
    (State.CLAIMED, False, QUEUED, 400, False, Requeue),
    (State.CLAIMED, True, QUEUED, 400, False, ApplyReport),
    (State.CLAIMED, True, None, 2 * HOUR, False, Wait),
    (State.CLAIMED, False, None, 2 * HOUR, False, ApplyReport),
    (State.QUEUED, False, None, HOUR, False, Wait),
    (State.QUEUED, False, None, HOUR + 1, False, ApplyReport),
    (State.QUEUED, False, None, 2 * HOUR, True, Wait),
    (State.QUEUED, False, None, 25 * HOUR, True, ApplyReport),
    (State.RUNNING, False, OURS, 400, False, ApplyReport),
]


@pytest.mark.parametrize(("state", "is_claimed", "report", "age", "is_denied", "expected"), JOBS)
def test_job_is_compared_with_the_forge(
    *,
    state: State,
    is_claimed: bool,
    report: Report | None,
    age: int,
    is_denied: bool,
    expected: type,
) -> None:
    seen = SeenJob(
        job=a_job(state), is_claimed=is_claimed, report=report, now=at(age), is_denied=is_denied
    )

    assert isinstance(job_action(seen), expected)
