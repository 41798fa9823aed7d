from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from bramley.dispatch import job_explanation
from bramley.dispatch.job_explanation import ForgeBlock, JobFacts, Reason, explain
from bramley.dispatch.jobs import State
from bramley.dispatch.store.records import QueuePosition, Timeline
from tests.unit.dispatch.job_builders import a_claim, a_job, a_timeline, an_execution, at

LIMITED = ForgeBlock(at(60), "secondary rate limit", is_rate_limit=True)
REFUSED = ForgeBlock(at(60), "status 403")
QUEUED = a_timeline(a_job())
BEFORE_JIT = a_timeline(a_job(State.CLAIMED), a_claim(minted_at=None, online_at=None))


def position(ahead: int, queued: int, of_account: int, in_pool: int) -> QueuePosition:
    return QueuePosition(
        ahead_of_account=ahead,
        queued_in_pool=queued,
        active_of_account=of_account,
        active_in_pool=in_pool,
    )


FIRST = position(0, 1, 0, 0)


def facts(timeline: Timeline = QUEUED, **changes: Any) -> JobFacts:
    values: dict[str, Any] = {
        "now": at(10),
        "timeline": timeline,
        "position": FIRST,
        "idle_pods": 1,
    }
    return JobFacts(**(values | changes))


def ended(state: State) -> Timeline:
    return a_timeline(a_job(state), a_claim(), execution=an_execution())


# A reason, the facts, and a part of the sentence.
TABLE: list[tuple[Reason, JobFacts, str]] = [
    (
        Reason.NO_MATCHING_POOL,
        facts(a_timeline(a_job(pool=""))),
        "the nearest label is macos. Change runs-on",
    ),
    (Reason.NO_MATCHING_POOL, facts(pool_exists=False), "pool macos, which this job belongs to"),
    (
        Reason.LIMIT_REACHED,
        facts(account_limit=2, position=position(0, 1, 2, 2)),
        "account acme has 2 jobs on runners and a limit of 2",
    ),
    (Reason.LIMIT_REACHED, facts(account_limit=0), "a limit of 0"),
    (
        Reason.GITHUB_RATE_LIMIT,
        facts(block=LIMITED),
        "secondary rate limit. Runners are registered again in 50 s",
    ),
    (Reason.GITHUB_RATE_LIMIT, facts(BEFORE_JIT, block=LIMITED), "in 50 s"),
    (Reason.GITHUB_REFUSED, facts(block=REFUSED), "status 403. Check the App's installation"),
    (
        Reason.NO_IDLE_RUNNER,
        facts(idle_pods=0, position=position(0, 3, 1, 5)),
        "no idle runner, 5 jobs on runners and 3 jobs queued; no runner is starting",
    ),
    (
        Reason.NO_IDLE_RUNNER,
        facts(idle_pods=0, starting_pods=2, next_pod_at=at(50)),
        "2 starting runners, the next one due in about 40 s",
    ),
    (
        Reason.NO_IDLE_RUNNER,
        facts(idle_pods=0, starting_pods=1, next_pod_at=at(10)),
        "1 starting runner, the next one due at any moment",
    ),
    (Reason.NO_IDLE_RUNNER, facts(idle_pods=0, starting_pods=1), "due at an unknown time"),
    (
        Reason.ROLL_IN_PROGRESS,
        facts(idle_pods=0, starting_pods=1, next_pod_at=at(250), roll_phase="Rolling"),
        "due in about 4 min. See: bramley rollout status pool/macos",
    ),
    (Reason.NO_IDLE_RUNNER, facts(idle_pods=0, roll_phase="Paused"), "explain pool/macos"),
    (
        Reason.OTHER_JOBS_FIRST,
        facts(position=position(2, 6, 0, 0)),
        "2 jobs of the same account and 3 jobs of other accounts are queued in pool macos; it has 1 idle runner",
    ),
    (Reason.OTHER_JOBS_FIRST, facts(position=position(0, 2, 0, 0)), "1 job of other accounts"),
    (Reason.HANDING_OUT, facts(), "the next one that polls gets this job"),
    (Reason.HANDING_OUT, facts(roll_phase="Rolling"), "the next one that polls"),
    (Reason.HANDING_OUT, facts(block=ForgeBlock(at(10), "over")), "the next one that polls"),
    (Reason.HANDING_OUT, facts(account_limit=1), "the next one that polls"),
    (Reason.HANDING_OUT, facts(BEFORE_JIT), "reserved for Pod macos-runner-1 on mac-1"),
    (
        Reason.WAITING_FOR_RUNNER,
        facts(a_timeline(a_job(State.CLAIMED), a_claim(online_at=None)), block=LIMITED),
        "runner runner-1 in Pod macos-runner-1 on mac-1 has its configuration and is not online yet, for 7 s",
    ),
    (
        Reason.WAITING_FOR_RUNNER,
        facts(a_timeline(a_job(State.CLAIMED), a_claim())),
        "is online, and GitHub has not reported the start",
    ),
    (Reason.RUNNING, facts(ended(State.RUNNING)), "on runner runner-1 in Pod macos-runner-1 on"),
    (Reason.RUNNING, facts(a_timeline(a_job(State.RUNNING))), "runs on runner runner-1 for 5 s"),
    (Reason.WAITING, facts(a_timeline(a_job(State.WAITING))), "GitHub holds the job back"),
    (Reason.COMPLETED, facts(ended(State.COMPLETED)), "on mac-1 with success."),
    (Reason.CANCELLED, facts(a_timeline(a_job(State.CANCELLED))), "the job was cancelled."),
]


@pytest.mark.parametrize(("reason", "known", "part"), TABLE)
def test_each_situation_has_its_reason_and_sentence(
    reason: Reason, known: JobFacts, part: str
) -> None:
    found = explain(known)

    assert (found.reason, found.job_id, found.state) == (reason, 7, known.timeline.job.state)
    assert part in found.message


def test_the_table_has_every_reason_and_state() -> None:
    assert {reason for reason, _, _ in TABLE} == set(Reason)
    assert {known.timeline.job.state for _, known, _ in TABLE} == set(State)


def test_the_details_are_the_facts_of_the_sentence() -> None:
    found = explain(facts(idle_pods=0, starting_pods=1, next_pod_at=at(20)))

    assert msgspec.to_builtins(found.details) == {
        "pool": "macos",
        "ahead_of_account": 0,
        "queued_in_pool": 1,
        "active_in_pool": 0,
        "idle_runners": 0,
        "starting_runners": 1,
        "next_runner_at": "2026-01-01T12:00:20Z",
    }


BOOT = timedelta(seconds=30)


@pytest.mark.parametrize(
    ("starting", "boot", "due"),
    [
        ([at(5), at(0)], BOOT, at(30)),
        ([at(-60)], BOOT, at(10)),
        ([], BOOT, None),
        ([at(0)], None, None),
    ],
)
def test_the_next_runner_is_due_after_a_typical_boot(
    starting: list[Any], boot: timedelta | None, due: Any
) -> None:
    assert job_explanation.next_pod_due(starting, boot, at(10)) == due


@pytest.mark.parametrize(("measured", "seconds"), [([], 45), ([3], 3), ([4, 90, 3, 5], 4.5)])
def test_a_typical_boot_is_what_the_pool_measured(measured: list[int], seconds: float) -> None:
    default = timedelta(seconds=45)

    assert job_explanation.typical_boot(measured, default) == timedelta(seconds=seconds)
