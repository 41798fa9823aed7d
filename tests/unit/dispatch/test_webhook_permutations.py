"""Every order of a job's webhooks, repeated and lost, ends in the state that the forge knows, once the sweep has run.

The webhooks go through the inbox, its worker and the SQLite store.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from bramley.base.secret import Secret
from bramley.dispatch.inbox_worker import InboxWorker
from bramley.dispatch.jobs import TERMINAL, Phase, Report, State
from bramley.dispatch.pool_matching import Route
from bramley.dispatch.recovery import Settings
from bramley.dispatch.store.records import Timeline
from tests import virtual_time
from tests.unit.dispatch.recovery_world import MINUTE, POOL, SECOND, World, a_pod, a_world

EVENT = "workflow_job"
# A job whose queued event arrived was claimed by the Pod that polls after each event.
END_STATES = {
    Phase.WAITING: {State.WAITING},
    Phase.QUEUED: {State.QUEUED, State.CLAIMED},
    Phase.IN_PROGRESS: {State.RUNNING},
    Phase.COMPLETED: {State.COMPLETED},
}
EVERY_TRUTH = [(truth, True, 6) for truth in Phase] + [
    (Phase.IN_PROGRESS, False, 5),
    (Phase.COMPLETED, False, 5),
]
UNBOUNDED = Settings(jobs_per_pass=1000, repositories_per_pass=10_000)


@dataclass(frozen=True)
class Case:
    """A job, its webhooks in the order of their arrival, and how far it really came."""

    job_id: int
    arrivals: tuple[Phase, ...]
    truth: Phase
    is_ours: bool  # whether the runner that the Pod holds runs the job

    def report(self, phase: Phase) -> Report:
        start = virtual_time.EPOCH
        return Report(
            job_id=self.job_id,
            phase=phase,
            account=f"account-{self.job_id}",
            repository="acme/app",
            labels=("tuist-macos",),
            run_id=self.job_id,
            queued_at=start,
            runner_name=self.executor if phase >= Phase.IN_PROGRESS else "",
            started_at=start + SECOND if phase >= Phase.IN_PROGRESS else None,
            completed_at=start + 2 * SECOND if phase == Phase.COMPLETED else None,
            conclusion="success" if phase == Phase.COMPLETED else "",
        )

    def body(self, phase: Phase, number: int) -> bytes:
        report = self.report(phase)
        job = {
            "id": report.job_id,
            "run_id": report.job_id,
            "labels": report.labels,
            "runner_name": report.runner_name or None,
            "conclusion": report.conclusion or None,
            "created_at": report.queued_at,
            "started_at": report.started_at or report.queued_at,
            "completed_at": report.completed_at,
        }
        repository = {"full_name": report.repository, "owner": {"login": report.account}}
        return msgspec.json.encode(
            {
                "action": phase.name.lower(),
                "workflow_job": job,
                "repository": repository,
                "number": number,
            }
        )

    @property
    def executor(self) -> str:
        return f"gh-{self.job_id}" if self.is_ours else f"foreign-{self.job_id}"


def cases(truth: Phase, *, is_ours: bool, longest: int = 6) -> Iterator[Case]:
    """Return all sequences of the events up to the truth: every order, repetition and loss of up to six arrivals."""
    phases = [phase for phase in Phase if phase <= truth]
    sequences = itertools.chain.from_iterable(
        itertools.product(phases, repeat=length) for length in range(longest + 1)
    )
    for number, arrivals in enumerate(sequences, 1):
        yield Case(number, arrivals, truth, is_ours)


@dataclass
class Refusals:
    """The deliveries that the inbox worker refused."""

    outcomes: list[str] = field(default_factory=list)

    def delivered(self, report: Report, route: Route, state: State) -> None:
        pass

    def refused(self, outcome: str) -> None:
        self.outcomes.append(outcome)


async def deliver(world: World, worker: InboxWorker, case: Case) -> None:
    """Send the events; a Pod polls after each, and gets a runner if the job is queued."""
    is_claimed = False
    for number, phase in enumerate(case.arrivals):
        guid = f"{case.job_id}-{number}"
        # The number makes a repeated event another content, which is therefore applied.
        assert await world.store.receive(guid, EVENT, case.body(phase, number), world.now)
        assert await worker.process_pending() == 1
        if is_claimed or Phase.QUEUED not in case.arrivals[: number + 1]:
            continue
        claim = await world.store.claim(a_pod(case.job_id), POOL, world.now)
        if claim is not None:
            is_claimed = True
            assert claim.job_id == case.job_id
            name = f"gh-{case.job_id}"
            assert await world.store.stamp(claim.handle, name, world.now)
            assert await world.store.mint(claim.handle, name, Secret("jit"), case.job_id, world.now)
    if case.arrivals:
        # The same content under another GUID is stored once.
        copy = case.body(case.arrivals[0], 0)
        assert not await world.store.receive(f"{case.job_id}-copy", EVENT, copy, world.now)


def end_of(case: Case, timeline: Timeline) -> tuple[object, ...]:
    """Return everything that must not depend on the order of the events."""
    execution = timeline.execution
    facts = replace(
        timeline.job.facts, job_id=0, account="", repository="", runner_name="", run_id=0
    )
    executed = (execution.started_at, execution.ended_at, execution.conclusion) if execution else ()
    return facts, timeline.job.facts.runner_name in ("", case.executor), executed


def check_claims(case: Case, timeline: Timeline) -> None:
    job, claims, execution = timeline.job, timeline.claims, timeline.execution
    unfinished = [claim for claim in claims if claim.finished_at is None]
    assert len(claims) <= 1
    assert not (job.state in TERMINAL and unfinished)
    assert job.state != State.CLAIMED or unfinished
    if execution is not None:
        assert execution.runner_name == case.executor
        assert execution.handle == (claims[0].handle if claims and case.is_ours else None)
        assert (execution.ended_at is not None) == (job.state == State.COMPLETED)
        assert not (claims and case.is_ours) or claims[0].online_at is not None
    assert (execution is not None) == (job.facts.phase >= Phase.IN_PROGRESS)


@pytest.mark.parametrize(("truth", "is_ours", "longest"), EVERY_TRUTH)
async def test_every_order_of_webhooks_ends_in_the_truth(
    tmp_path: Path, truth: Phase, is_ours: bool, longest: int
) -> None:
    every = list(cases(truth, is_ours=is_ours, longest=longest))
    refusals = Refusals()
    async with a_world(tmp_path, UNBOUNDED) as world:
        worker = InboxWorker(world.store, world.route, world.recovery.clock, refusals)
        for case in every:
            await deliver(world, worker, case)
        world.forge.jobs = {case.job_id: case.report(truth) for case in every}

        await world.pass_time(6 * MINUTE)
        for _ in range(len(every) // UNBOUNDED.jobs_per_pass + 1):
            await world.recovery.sweep_jobs()

        # The first one lost all of its events: it is found while it needs a runner or has one.
        known = every if truth in (Phase.QUEUED, Phase.IN_PROGRESS) else every[1:]
        timelines = [await world.store.timeline(case.job_id) for case in known]
    for case, timeline in zip(known, timelines, strict=True):
        check_claims(case, timeline)
    assert refusals.outcomes == []
    assert {timeline.job.state for timeline in timelines} == END_STATES[truth]
    assert len({end_of(*pair) for pair in zip(known, timelines, strict=True)}) == 1


async def test_a_job_without_any_webhook_is_found_by_the_sweep(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.queue(1)
        world.report(2)
        world.report(3, Phase.COMPLETED)

        await world.pass_time(timedelta(minutes=1))
        await world.recovery.sweep_jobs()

        assert await world.job_state(2) == State.QUEUED
        assert world.recovered == ["missed_job"]
        assert [
            job.id for job in await world.store.stale_jobs(list(State), world.now + MINUTE)
        ] == [1, 2]
