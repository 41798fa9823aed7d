"""The target image of a pool and the phase of its roll, from spec, annotations, status and Pods; pure.

    Idle ──new image──▶ Staging ──a host has it──▶ Canary ──good──▶ Rolling ──no stale Pod──▶ Idle
                                                      └──bad──▶ Rejected: back to the last good image

A rejected image is not tried again until `spec.image` changes or it is promoted. Images that were good before are not tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bramley.api import names
from bramley.api.runner_pool import RunnerPool
from bramley.api.runner_pool_status import RollPhase, RunnerPoolStatus
from bramley.runners import judgement, roll
from bramley.runners.judgement import Judgement, RollSignals, Trial, Verdict
from bramley.runners.pods import RunnerPod


@dataclass(frozen=True, slots=True)
class Rollout:
    """The state of a roll; the fields are those of the status."""

    target: str
    last_good: str
    previous_good: str
    rejected: str
    promoted: str
    passed: str
    phase: RollPhase
    started_at: datetime | None
    canary_started_at: datetime | None
    failures: int
    boots: tuple[int, ...]
    boots_recorded_at: datetime | None
    # Set by the pass that ends a trial or a roll, for events and metrics.
    judgement: Judgement | None = None
    duration: timedelta | None = None
    again_at: datetime | None = None
    # How many more canaries than configured the judgement needs.
    more_canaries: int = 0

    @property
    def is_trial(self) -> bool:
        """Return whether the target image is new and not judged yet."""
        is_new = bool(self.last_good) and not roll.is_same_image(self.target, self.last_good)
        return is_new and self.target not in (self.passed, self.promoted)

    def is_tried_by(self, pool: RunnerPool) -> bool:
        """Return whether the target image must pass its trial first."""
        return self.is_trial and bool(pool.spec.rollout.canary.count)


@dataclass(frozen=True, slots=True)
class Observed:
    """What a roll depends on; `available_hosts` returns how many hosts could replace a Pod by an image without a pull."""

    pool: RunnerPool
    pods: Sequence[RunnerPod]
    available_hosts: Callable[[str], int]
    signals: RollSignals | None
    now: datetime


def is_paused(pool: RunnerPool) -> bool:
    """Return whether people have paused the roll."""
    return pool.metadata.annotations.get(names.annotations.ROLLOUT_PAUSED, "").lower() == "true"


def target_of(pool: RunnerPool) -> str:
    """Return the image that a pool converges to; `spec.image` before the controller has decided."""
    return pool.status.target_image or pool.spec.image


def advance(observed: Observed) -> Rollout:
    """Return the next state of the roll."""
    rollout = _with_target(observed)
    rollout = _with_boots(rollout, observed)
    rollout = _with_failures(rollout, observed)
    rollout = _judged(rollout, observed)
    return _with_phase(rollout, observed)


def _initial(status: RunnerPoolStatus) -> Rollout:
    return Rollout(
        target=status.target_image,
        last_good=status.last_good_image,
        previous_good=status.previous_good_image,
        rejected=status.rejected_image,
        promoted=status.promoted_image,
        passed=status.canary_passed_image,
        phase=status.roll_phase,
        started_at=status.roll_started_at,
        canary_started_at=status.canary_started_at,
        failures=status.target_failures,
        boots=tuple(status.boot_seconds),
        boots_recorded_at=status.boots_recorded_at,
    )


def _with_target(observed: Observed) -> Rollout:
    pool, rollout = observed.pool, _initial(observed.pool.status)
    image, notes = pool.spec.image, pool.metadata.annotations
    if rollout.rejected != image:
        rollout = replace(rollout, rejected="")
    if notes.get(names.annotations.ROLLOUT_PROMOTE) == image:
        rollout = replace(rollout, promoted=image, rejected="")
    elif notes.get(names.annotations.ROLLOUT_UNDO) == image:
        rollout = _undone(rollout, image)
    rollout = replace(rollout, last_good=rollout.last_good or _inferred_good(observed))
    is_rejected = rollout.rejected == image and bool(rollout.last_good)
    target = rollout.last_good if is_rejected else image
    if target == rollout.target:
        return rollout
    # A new target starts from nothing; what is known about an earlier one says nothing about it.
    return replace(rollout, target=target, canary_started_at=None, failures=0)


def _undone(rollout: Rollout, image: str) -> Rollout:
    if rollout.rejected == image:
        return rollout
    good, previous = rollout.last_good, rollout.previous_good
    if good == image:
        # The roll was completed: return to the image before it, if there is one.
        good, previous = previous, ""
    if not good:
        return rollout
    undone = Judgement(Verdict.UNDONE, "it was undone")
    if good != rollout.last_good:
        # The boots that were recorded are those of the image that is undone.
        rollout = replace(rollout, boots=(), boots_recorded_at=None)
    return replace(
        rollout,
        last_good=good,
        previous_good=previous,
        rejected=image,
        promoted="",
        passed="",
        judgement=undone,
    )


def _inferred_good(observed: Observed) -> str:
    """Return the image of most working Pods, for a pool whose status does not have one yet."""
    working = [pod for pod in observed.pods if pod.is_alive and (pod.is_ready or pod.is_claimed)]
    stale = [pod.image for pod in working if roll.is_stale(pod, observed.pool.spec.image)]
    images = stale or [pod.image for pod in working]
    return Counter(sorted(images)).most_common(1)[0][0] if images else ""


def _with_boots(rollout: Rollout, observed: Observed) -> Rollout:
    """Record the boots of the last good image since the last time, as many as the gate compares with."""
    since = rollout.boots_recorded_at
    boots = [
        (pod.ready_changed_at, round(pod.boot.total_seconds()))
        for pod in observed.pods
        if pod.is_alive
        and pod.image == rollout.last_good
        and pod.boot is not None
        and pod.ready_changed_at is not None
        and (since is None or pod.ready_changed_at > since)
    ]
    if not boots:
        return rollout
    boots.sort()
    kept = (*rollout.boots, *(seconds for _, seconds in boots))
    sample = observed.pool.spec.rollout.gate.minimum_sample
    return replace(rollout, boots=kept[-sample:], boots_recorded_at=boots[-1][0])


def _with_failures(rollout: Rollout, observed: Observed) -> Rollout:
    """Count the Pods of a new target that have ended without a job since the last time."""
    if rollout.target == rollout.last_good:
        return replace(rollout, failures=0)
    slots = observed.pool.status.slots
    # A slot that is still active ended only now; afterwards it is not counted again.
    failed = sum(
        pod.image == rollout.target
        and pod.is_failure_of_image
        and 0 <= pod.slot < len(slots)
        and slots[pod.slot].counter == pod.counter
        and slots[pod.slot].active
        for pod in observed.pods
    )
    return replace(rollout, failures=rollout.failures + failed)


def _judged(rollout: Rollout, observed: Observed) -> Rollout:
    pool = observed.pool
    if not rollout.last_good or rollout.target == rollout.last_good:
        return rollout
    if rollout.target == rollout.promoted:
        return rollout
    if rollout.is_tried_by(pool):
        rollout, result = _judge_canaries(rollout, observed)
    else:
        alive = [pod for pod in observed.pods if pod.is_alive and pod.image == rollout.target]
        ready = sum(pod.is_ready for pod in alive)
        result = judgement.judge_waves(rollout.failures, ready)
    if not result.verdict.is_rejection:
        jobs = judgement.judge_jobs(
            observed.signals,
            image=rollout.target,
            last_good=rollout.last_good,
            gate=pool.spec.rollout.gate,
        )
        result = jobs if jobs.verdict.is_rejection else result
    return _with_verdict(rollout, observed, result)


def _judge_canaries(rollout: Rollout, observed: Observed) -> tuple[Rollout, Judgement]:
    spec, now = observed.pool.spec.rollout, observed.now
    pods = [pod for pod in observed.pods if pod.image == rollout.target and not pod.is_deleting]
    alive = [pod for pod in pods if pod.is_alive]
    # The clock starts when the last pull has ended, because a pull takes as long as it takes.
    is_pulling = not alive or any(_is_in_first_pull(pod, rollout) for pod in alive)
    started_at = None if is_pulling else rollout.canary_started_at or now
    replicas = max(1, observed.pool.spec.replicas)
    most = roll.cap(spec.max_concurrent_percent, observed.pool.spec.replicas)
    trial = Trial(
        pods=pods,
        count=min(spec.canary.count, most, replicas),
        replicas=replicas,
        timeout=timedelta(seconds=spec.canary.timeout_seconds),
        gate=spec.gate,
        started_at=started_at,
        failures=rollout.failures,
        boots=rollout.boots,
        signals=observed.signals,
        now=now,
    )
    result = judgement.judge_canaries(trial)
    rollout = replace(
        rollout,
        canary_started_at=started_at,
        again_at=result.again_at,
        more_canaries=int(result.needs_canary),
    )
    return rollout, result


def _is_in_first_pull(pod: RunnerPod, rollout: Rollout) -> bool:
    """Return whether the image is pulled for a canary; not for one whose pull has failed and is tried again."""
    if not pod.is_pulling or pod.is_ready:
        return False
    since = rollout.canary_started_at
    return since is None or pod.created_at is None or pod.created_at >= since


def _with_verdict(rollout: Rollout, observed: Observed, result: Judgement) -> Rollout:
    if result.verdict is Verdict.GOOD:
        return replace(
            rollout,
            passed=rollout.target,
            canary_started_at=None,
            failures=0,
            judgement=result,
            again_at=None,
        )
    if not result.verdict.is_rejection:
        return rollout
    return replace(
        rollout,
        target=rollout.last_good,
        rejected=observed.pool.spec.image,
        passed="",
        canary_started_at=None,
        failures=0,
        judgement=result,
        again_at=None,
    )


def _with_phase(rollout: Rollout, observed: Observed) -> Rollout:
    pool, now = observed.pool, observed.now
    state = roll.RollState(
        percent=pool.spec.rollout.max_concurrent_percent,
        replicas=pool.spec.replicas,
        target=rollout.target,
        pods=observed.pods,
        slots=pool.status.slots,
    )
    is_converged = state.is_complete and not _is_between_pods(rollout, observed)
    has_ready = any(pod.is_alive and pod.is_ready for pod in observed.pods)
    if is_converged and has_ready and not rollout.is_tried_by(pool):
        rollout = _completed(rollout)
    if is_converged and not (rollout.started_at and rollout.is_tried_by(pool)):
        duration = None if rollout.started_at is None else now - rollout.started_at
        rollout = replace(rollout, started_at=None, duration=duration)
    else:
        rollout = replace(rollout, started_at=rollout.started_at or now)
    return replace(rollout, phase=_phase(rollout, observed, is_converged=is_converged))


def _is_between_pods(rollout: Rollout, observed: Observed) -> bool:
    """Return whether the last Pod of an old image has just ended and its successor is not there yet."""
    if not rollout.last_good or roll.is_same_image(rollout.target, rollout.last_good):
        return False
    return observed.pool.spec.replicas > 0 and not any(pod.is_alive for pod in observed.pods)


def _completed(rollout: Rollout) -> Rollout:
    if rollout.target == rollout.last_good:
        return rollout
    return replace(
        rollout,
        previous_good=rollout.last_good,
        last_good=rollout.target,
        passed="",
        promoted="",
        boots=(),
        boots_recorded_at=None,
        failures=0,
    )


def _phase(rollout: Rollout, observed: Observed, *, is_converged: bool) -> RollPhase:
    pool = observed.pool
    if rollout.rejected == pool.spec.image and rollout.last_good:
        return "Rejected"
    is_empty = not any(pod.is_alive for pod in observed.pods)
    if is_converged and (is_empty or not rollout.is_tried_by(pool)):
        return "Idle"
    if is_paused(pool):
        return "Paused"
    if not rollout.is_tried_by(pool):
        return "Rolling"
    has_canary = any(pod.is_alive and pod.image == rollout.target for pod in observed.pods)
    if not has_canary and not observed.available_hosts(rollout.target):
        return "Staging"
    return "Canary"
