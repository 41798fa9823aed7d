"""Whether a new image is good: the verdict over its canaries and, later, over its jobs; pure.

A canary is good once it is Ready and, if dispatch reports polls, has polled. The image is rejected if canaries end before they
get a job, do not become good in time, boot much slower than the last good image, or if more of its jobs fail.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from bramley.api.runner_pool import Gate
from bramley.runners.pods import RunnerPod

# Without reports of polls, a canary must stay Ready for this long: longer than a guest takes from its address to its first poll,
# before which an image that gets an address may end.
SETTLE = timedelta(seconds=30)
# One VM may end for a reason that is not its image's; two in a row hardly do.
EXITS_TO_REJECT = 2
# During the waves more VMs run, and so more of them end by chance.
FAILURES_TO_REJECT = 3
# With fewer boots of the last good image, its usual boot time is not known.
LEAST_BOOTS = 3
# One slow boot may be chance: then one more canary is measured before the image is rejected.
BOOTS_TO_REJECT = 2
# From so many boots on, the slowest one is an outlier: a VM that lost its address for a while looks like a slow boot.
_BOOTS_WITH_OUTLIER = 10


class Verdict(StrEnum):
    """The verdict over an image; all but the first two reject it, and are the reasons that users see."""

    PENDING = "Pending"
    GOOD = "CanaryGood"
    EXITED = "CanaryExited"
    NOT_READY = "CanaryNotReady"
    NOT_POLLING = "CanaryNotPolling"
    BOOT_SLOW = "CanaryBootSlow"
    PODS_FAIL = "PodsFail"
    JOBS_FAIL = "JobsFail"
    # Not judged: people returned to the last good image.
    UNDONE = "Undone"

    @property
    def is_rejection(self) -> bool:
        """Return whether the image is rejected."""
        return self not in {Verdict.PENDING, Verdict.GOOD}


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, its explanation, and when to judge again if time alone may change it."""

    verdict: Verdict
    message: str = ""
    again_at: datetime | None = None
    # Whether the verdict needs one more canary than the pool is configured with.
    needs_canary: bool = False


@dataclass(frozen=True, slots=True)
class JobCounts:
    """The jobs of one image."""

    finished: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class RollSignals:
    """What dispatch reports about a roll: the first poll of each Pod, and the jobs of each image."""

    first_polls: Mapping[str, datetime] = field(default_factory=dict)
    jobs: Mapping[str, JobCounts] = field(default_factory=dict)
    # Whether the first request to dispatch has not ended yet, so that nothing is known; this is not the same as signals that are missing.
    is_awaited: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """What the canaries are judged by."""

    pods: Sequence[RunnerPod]
    count: int
    # How many Pods the pool can have.
    replicas: int
    timeout: timedelta
    gate: Gate
    # Since when canaries boot, by name; without those for which the image is pulled.
    clocks: Mapping[str, datetime]
    # How many Pods of the image have failed.
    failures: int
    boots: Sequence[int]
    signals: RollSignals | None
    now: datetime


def judge_canaries(trial: Trial) -> Judgement:
    """Return the verdict over the Pods of a new image."""
    if trial.failures >= EXITS_TO_REJECT:
        return Judgement(Verdict.EXITED, _exits(trial))
    if trial.signals is not None and trial.signals.is_awaited:
        return Judgement(Verdict.PENDING, "waiting for the first report of dispatch about polls")
    good = [pod for pod in trial.pods if _is_good(pod, trial)]
    result = Judgement(Verdict.PENDING)
    if len(good) >= trial.count:
        result = _judge_boots(good, trial)
    return _judge_time(result, good, trial) if result.verdict is Verdict.PENDING else result


def judge_waves(failures: int, ready: int) -> Judgement:
    """Return the verdict over an image whose canaries were good, by its Pods that failed and those that are Ready."""
    if failures >= FAILURES_TO_REJECT and failures > ready:
        text = (
            f"{failures} Pods of the image ended without a job or hung, and only {ready} are Ready"
        )
        return Judgement(Verdict.PODS_FAIL, text)
    return Judgement(Verdict.PENDING)


def judge_jobs(signals: RollSignals | None, *, image: str, last_good: str, gate: Gate) -> Judgement:
    """Return the verdict by the share of failed jobs, as soon as both images have had enough jobs."""
    points = gate.job_failure_points
    if signals is None or points is None:
        return Judgement(Verdict.PENDING)
    new, old = signals.jobs.get(image, JobCounts()), signals.jobs.get(last_good, JobCounts())
    if min(new.finished, old.finished) < gate.minimum_sample:
        return Judgement(Verdict.PENDING)
    new_percent, old_percent = (100 * each.failed / each.finished for each in (new, old))
    if new_percent - old_percent <= points:
        return Judgement(Verdict.PENDING)
    text = (
        f"{new_percent:.0f} % of {new.finished} jobs failed, with the last good image "
        f"{old_percent:.0f} % of {old.finished}"
    )
    return Judgement(Verdict.JOBS_FAIL, text)


def _is_good(pod: RunnerPod, trial: Trial) -> bool:
    # A Pod with a job has polled, whether it still runs or has ended.
    if pod.is_claimed:
        return True
    if not pod.is_alive or not pod.is_ready:
        return False
    if trial.signals is not None:
        return pod.name in trial.signals.first_polls
    settled_at = _settled_at(pod)
    return settled_at is not None and settled_at <= trial.now


def _settled_at(pod: RunnerPod) -> datetime | None:
    return None if pod.ready_changed_at is None else pod.ready_changed_at + SETTLE


def _judge_boots(good: Sequence[RunnerPod], trial: Trial) -> Judgement:
    boots = [pod.boot.total_seconds() for pod in good if pod.boot is not None]
    percent = trial.gate.boot_slowdown_percent
    if not percent or not boots or len(trial.boots) < LEAST_BOOTS:
        return Judgement(Verdict.GOOD, f"{len(good)} canaries are ready")
    # Of two canaries the faster one: a single slow boot is chance.
    usual, measured = statistics.median(trial.boots), statistics.median_low(boots)
    limit = max(usual * (1 + percent / 100), 1.0)
    text = (
        f"canaries booted in {measured:.0f} s, the last good image in {usual:.0f} s "
        f"(median of {len(trial.boots)}, limit {limit:.0f} s)"
    )
    # Not slower than the slow boots of the last good image either: boots vary.
    if measured <= max(limit, _slowest_boot(trial.boots)):
        return Judgement(Verdict.GOOD, text)
    if len(boots) < min(BOOTS_TO_REJECT, trial.replicas):
        return Judgement(Verdict.PENDING, text, needs_canary=True)
    return Judgement(Verdict.BOOT_SLOW, text)


def _slowest_boot(boots: Sequence[int]) -> int:
    """Return the slowest boot of the last good image; of many, the slowest but one."""
    return sorted(boots)[-2 if len(boots) >= _BOOTS_WITH_OUTLIER else -1]


def _judge_time(pending: Judgement, good: Sequence[RunnerPod], trial: Trial) -> Judgement:
    """Return the verdict over the canaries that are not good: each has its own time, and one that does not exist has none."""
    waiting = [pod for pod in trial.pods if pod.is_alive and pod not in good]
    deadlines = {pod.name: _deadline(pod, trial) for pod in waiting}
    for pod in waiting:
        deadline = deadlines[pod.name]
        if deadline is not None and deadline <= trial.now:
            return _judge_late(pod, trial)
    settles = [_settled_at(pod) for pod in waiting if pod.is_ready]
    # Only what is yet to come: a moment in the past would be checked again at once and without end.
    moments = (*deadlines.values(), *settles)
    upcoming = [each for each in moments if each is not None and each > trial.now]
    needed = trial.count + pending.needs_canary
    text = f"{len(good)} of {needed} canaries are ready"
    missing = needed - len(good) - len(waiting)
    if missing > 0:
        text = f"{text}, {missing} more to be placed on a host that has the image"
    text = f"{pending.message}; {text}" if pending.message else text
    return replace(pending, message=text, again_at=min(upcoming, default=None))


def _deadline(pod: RunnerPod, trial: Trial) -> datetime | None:
    started_at = trial.clocks.get(pod.name)
    return None if started_at is None else started_at + trial.timeout


def _judge_late(pod: RunnerPod, trial: Trial) -> Judgement:
    seconds = f"{trial.timeout.total_seconds():.0f} s"
    if pod.is_ready and trial.signals is not None:
        text = f"Pod {pod.name} is Ready and has not polled within {seconds}"
        return Judgement(Verdict.NOT_POLLING, text)
    where = f" on {pod.node}" if pod.node else ""
    text = f"Pod {pod.name}{where} did not become ready within {seconds}"
    if pod.waiting:
        text = f"{text}; it waits: {pod.waiting} {pod.message}".rstrip()
    return Judgement(Verdict.NOT_READY, text[:500])


def _exits(trial: Trial) -> str:
    ended = next((pod for pod in trial.pods if pod.is_failure), None)
    text = f"{trial.failures} canaries ended without a job"
    if ended is None:
        return text
    code = "" if ended.exit_code is None else f" with code {ended.exit_code}"
    return f"{text}; Pod {ended.name} on {ended.node or 'no host'} ended{code} ({ended.reason})"
