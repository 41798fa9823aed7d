from __future__ import annotations

import random
import statistics
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from bramley.api.runner_pool import Gate
from bramley.runners import judgement
from bramley.runners.judgement import JobCounts, Judgement, RollSignals, Trial, Verdict
from bramley.runners.pods import RunnerPod
from tests.unit.runners.builders import (
    NEW,
    NOW,
    OLD,
    a_booting_pod,
    a_failed_pod,
    a_pod,
    an_ended_pod,
    seconds,
)

BOOTS = [28, 29, 30, 30, 31, 35]
POLLED = RollSignals(first_polls={"canary": NOW - seconds(5)})
NOT_POLLED = RollSignals()
A_MINUTE_AGO = NOW - seconds(60)


def a_canary(boot: float = 30, ready_for: float = 60, **changes: Any) -> RunnerPod:
    """Return a canary that has been Ready for this long after a boot of this duration."""
    ready_at = NOW - seconds(ready_for)
    name = changes.pop("name", "canary")
    return a_pod(
        name, NEW, started_at=ready_at - seconds(boot), ready_changed_at=ready_at, **changes
    )


def a_trial(*pods: RunnerPod, started_at: datetime | None = A_MINUTE_AGO, **changes: Any) -> Trial:
    """Return a trial whose canaries boot since a time; without one the image is pulled for them."""
    clocks = {} if started_at is None else {pod.name: started_at for pod in pods}
    defaults: dict[str, Any] = {
        "count": 1,
        "replicas": 10,
        "timeout": seconds(600),
        "gate": Gate(),
        "clocks": clocks,
        "failures": 0,
        "boots": BOOTS,
        "signals": None,
        "now": NOW,
    }
    return Trial(pods=pods, **{**defaults, **changes})


def verdict(*pods: RunnerPod, **changes: Any) -> Verdict:
    return judgement.judge_canaries(a_trial(*pods, **changes)).verdict


@pytest.mark.parametrize(
    ("trial", "expected"),
    [
        pytest.param(a_trial(a_canary()), Verdict.GOOD, id="ready"),
        pytest.param(a_trial(a_canary(ready_for=5)), Verdict.PENDING, id="ready only just now"),
        pytest.param(a_trial(a_canary(), signals=POLLED), Verdict.GOOD, id="polled"),
        pytest.param(
            a_trial(a_canary(ready_for=1), signals=POLLED), Verdict.GOOD, id="polled at once"
        ),
        pytest.param(a_trial(a_canary(), signals=NOT_POLLED), Verdict.PENDING, id="not polled yet"),
        pytest.param(a_trial(a_booting_pod()), Verdict.PENDING, id="boots"),
        pytest.param(a_trial(), Verdict.PENDING, id="no canary yet"),
        pytest.param(
            a_trial(a_canary(is_claimed=True), signals=NOT_POLLED), Verdict.GOOD, id="has a job"
        ),
        pytest.param(a_trial(an_ended_pod("canary", NEW)), Verdict.GOOD, id="finished a job"),
        pytest.param(a_trial(a_canary(), count=2), Verdict.PENDING, id="one of two"),
        pytest.param(a_trial(failures=1), Verdict.PENDING, id="one exit"),
        pytest.param(a_trial(failures=2), Verdict.EXITED, id="two exits"),
        pytest.param(a_trial(a_canary(), failures=2), Verdict.EXITED, id="two exits, one ready"),
        pytest.param(
            a_trial(a_booting_pod(), started_at=NOW - seconds(599)), Verdict.PENDING, id="in time"
        ),
        pytest.param(
            a_trial(a_booting_pod(), started_at=NOW - seconds(600)), Verdict.NOT_READY, id="late"
        ),
        pytest.param(
            a_trial(a_booting_pod(), started_at=None, now=NOW + seconds(90_000)),
            Verdict.PENDING,
            id="pulls for a day",
        ),
        pytest.param(
            a_trial(a_canary(), signals=NOT_POLLED, started_at=NOW - seconds(600)),
            Verdict.NOT_POLLING,
            id="never polls",
        ),
        pytest.param(a_trial(a_canary(59)), Verdict.GOOD, id="within the limit"),
        pytest.param(
            a_trial(a_canary(150), boots=[28, 30]), Verdict.GOOD, id="too few boots to compare"
        ),
        pytest.param(
            a_trial(a_canary(150), gate=Gate(boot_slowdown_percent=0)), Verdict.GOOD, id="gate off"
        ),
        pytest.param(
            a_trial(a_canary(150), replicas=1), Verdict.BOOT_SLOW, id="slow, and the only Pod"
        ),
        pytest.param(
            a_trial(a_canary(150), a_canary(140, name="b")), Verdict.BOOT_SLOW, id="two slow boots"
        ),
        pytest.param(
            a_trial(a_canary(90), a_canary(28, name="b")), Verdict.GOOD, id="one of two is slow"
        ),
        pytest.param(
            a_trial(a_canary(70), boots=[30, 30, 30, 30, 75]),
            Verdict.GOOD,
            id="not slower than the slowest boot",
        ),
        pytest.param(
            a_trial(a_canary(70), a_canary(70, name="b"), boots=[30] * 18 + [75, 3600]),
            Verdict.GOOD,
            id="not slower than the slowest boot but one",
        ),
        pytest.param(
            a_trial(a_canary(150), a_canary(150, name="b"), boots=[30] * 19 + [3600]),
            Verdict.BOOT_SLOW,
            id="one outlier does not hide a slow image",
        ),
        pytest.param(
            a_trial(a_canary(46), a_canary(46, name="b"), gate=Gate(boot_slowdown_percent=50)),
            Verdict.BOOT_SLOW,
            id="the percentage is that of the gate",
        ),
    ],
)
def test_verdict_over_canaries(trial: Trial, expected: Verdict) -> None:
    assert judgement.judge_canaries(trial).verdict is expected


def test_slow_boot_needs_one_more_canary_before_the_image_is_rejected() -> None:
    result = judgement.judge_canaries(a_trial(a_canary(150)))

    assert result.verdict is Verdict.PENDING
    assert result.needs_canary
    assert "booted in 150 s" in result.message
    assert result.message.endswith(
        "1 of 2 canaries are ready, 1 more to be placed on a host that has the image"
    )


def test_slow_boot_waits_for_the_second_canary_as_long_as_its_host_pulls() -> None:
    pulling = a_booting_pod("b", waiting="PullingImage")
    trial = a_trial(a_canary(150), started_at=NOW - seconds(6000))

    alone = judgement.judge_canaries(trial)
    second = judgement.judge_canaries(replace(trial, pods=(*trial.pods, pulling)))
    hangs = verdict(a_canary(150), a_booting_pod("b"), started_at=NOW - seconds(600))

    assert (alone.verdict, second.verdict) == (Verdict.PENDING, Verdict.PENDING)
    assert hangs is Verdict.NOT_READY


def test_time_of_a_canary_does_not_run_for_one_that_is_not_placed_yet() -> None:
    ready, pulling = a_canary(), a_booting_pod("b", waiting="PullingImage")
    clocks = {"canary": NOW - seconds(6000)}

    unplaced = judgement.judge_canaries(a_trial(ready, count=2, clocks=clocks))
    pulled = judgement.judge_canaries(a_trial(ready, pulling, count=2, clocks=clocks))

    assert (unplaced.verdict, pulled.verdict) == (Verdict.PENDING, Verdict.PENDING)
    assert unplaced.message == (
        "1 of 2 canaries are ready, 1 more to be placed on a host that has the image"
    )
    assert pulled.message == "1 of 2 canaries are ready"


def test_each_canary_has_its_own_time() -> None:
    clocks = {"canary": NOW - seconds(6000), "b": NOW - seconds(599)}
    trial = a_trial(a_canary(), a_booting_pod("b"), count=2, clocks=clocks)

    pending = judgement.judge_canaries(trial)
    late = judgement.judge_canaries(replace(trial, now=NOW + seconds(1)))

    assert (pending.verdict, pending.again_at) == (Verdict.PENDING, NOW + seconds(1))
    assert late.verdict is Verdict.NOT_READY
    assert late.message.startswith("Pod b on host-b did not become ready within 600 s")


@pytest.mark.parametrize("started_at", [NOW - seconds(60), NOW - seconds(6000)])
def test_no_verdict_before_dispatch_was_asked_for_polls(started_at: datetime) -> None:
    """After a restart of the controller nothing is known; that is no reason to accept or to reject an image."""
    awaited = RollSignals(is_awaited=True)

    assert verdict(a_canary(), signals=awaited, started_at=started_at) is Verdict.PENDING
    assert verdict(a_booting_pod(), signals=awaited, started_at=started_at) is Verdict.PENDING
    assert verdict(failures=2, signals=awaited) is Verdict.EXITED


def test_second_canary_that_boots_as_usual_clears_the_first() -> None:
    assert verdict(a_canary(80), a_canary(30, name="b")) is Verdict.GOOD


@pytest.mark.parametrize("signals", [None, NOT_POLLED])
@pytest.mark.parametrize("started_at", [None, NOW - seconds(60)])
def test_pending_canaries_are_never_judged_again_in_the_past(
    signals: RollSignals | None, started_at: datetime | None
) -> None:
    """A moment in the past would make the controller repeat the decision without a pause."""
    pods = (a_canary(), a_booting_pod("b"))
    result = judgement.judge_canaries(
        a_trial(*pods, count=2, signals=signals, started_at=started_at)
    )

    assert result.verdict is Verdict.PENDING
    assert result.again_at is None or result.again_at > NOW


def test_canary_is_judged_again_when_it_has_settled() -> None:
    result = judgement.judge_canaries(a_trial(a_canary(ready_for=5)))

    assert result.again_at == NOW - seconds(5) + judgement.SETTLE


def test_rejections_name_pod_host_and_cause() -> None:
    ended = judgement.judge_canaries(a_trial(a_failed_pod("x", node="mac-3"), failures=2))
    waiting = a_booting_pod("y", node="mac-4", waiting="TartCreateFailed", message="404 Not Found")
    late = judgement.judge_canaries(a_trial(waiting, started_at=NOW - seconds(600)))

    assert (
        ended.message == "2 canaries ended without a job; Pod x on mac-3 ended with code 1 (Error)"
    )
    assert late.message == (
        "Pod y on mac-4 did not become ready within 600 s; it waits: TartCreateFailed 404 Not Found"
    )


@pytest.mark.parametrize(
    ("failures", "ready", "expected"),
    [
        (2, 0, Verdict.PENDING),
        (3, 0, Verdict.PODS_FAIL),
        (3, 3, Verdict.PENDING),
        (4, 3, Verdict.PODS_FAIL),
        (10, 50, Verdict.PENDING),
    ],
)
def test_pods_that_fail_during_the_waves(failures: int, ready: int, expected: Verdict) -> None:
    assert judgement.judge_waves(failures, ready).verdict is expected


def jobs(new: tuple[int, int], old: tuple[int, int], gate: Gate) -> Judgement:
    signals = RollSignals(jobs={NEW: JobCounts(*new), OLD: JobCounts(*old)})
    return judgement.judge_jobs(signals, image=NEW, last_good=OLD, gate=gate)


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ((20, 5), (100, 5), Verdict.JOBS_FAIL),
        ((20, 3), (100, 5), Verdict.PENDING),
        ((20, 4), (100, 5), Verdict.JOBS_FAIL),
        ((19, 19), (100, 5), Verdict.PENDING),
        ((20, 20), (19, 0), Verdict.PENDING),
        ((20, 0), (100, 50), Verdict.PENDING),
    ],
)
def test_failed_jobs_are_compared_in_percentage_points_with_enough_jobs_on_both_sides(
    new: tuple[int, int], old: tuple[int, int], expected: Verdict
) -> None:
    assert jobs(new, old, Gate(job_failure_points=10)).verdict is expected


def test_failed_jobs_are_not_compared_unless_configured() -> None:
    gate = Gate(job_failure_points=10)

    assert jobs((50, 50), (50, 0), Gate()).verdict is Verdict.PENDING
    assert judgement.judge_jobs(None, image=NEW, last_good=OLD, gate=gate).verdict is (
        Verdict.PENDING
    )


def judged_trial(rng: random.Random, *, slowdown: float, sigma: float, sample: int) -> Verdict:
    """Return the verdict over an image whose VMs boot slower by a factor, one canary after another."""

    def boot() -> float:
        return round(30 * rng.lognormvariate(0, sigma))

    trial = a_trial(boots=[int(boot()) for _ in range(sample)])
    for number in range(3):
        canary = a_canary(slowdown * boot(), name=f"c{number}")
        trial = replace(trial, pods=(*trial.pods, canary))
        result = judgement.judge_canaries(trial)
        if result.verdict is not Verdict.PENDING:
            return result.verdict
    raise AssertionError("more than three canaries")


def share_rejected(*, slowdown: float, sigma: float, sample: int = 20) -> float:
    rng = random.Random(f"{slowdown}/{sigma}/{sample}")
    trials = [judged_trial(rng, slowdown=slowdown, sigma=sigma, sample=sample) for _ in range(2000)]
    return statistics.fmean(each is Verdict.BOOT_SLOW for each in trials)


@pytest.mark.parametrize("sigma", [0.25, 0.35])
@pytest.mark.parametrize("sample", [20, 3])
def test_noisy_good_image_is_rejected_in_at_most_one_of_a_hundred_rolls(
    sigma: float, sample: int
) -> None:
    assert share_rejected(slowdown=1, sigma=sigma, sample=sample) <= 0.01


@pytest.mark.parametrize("sigma", [0.25, 0.35])
@pytest.mark.parametrize("sample", [20, 3])
def test_image_that_boots_five_times_slower_is_rejected(sigma: float, sample: int) -> None:
    assert share_rejected(slowdown=5, sigma=sigma, sample=sample) >= 0.95
