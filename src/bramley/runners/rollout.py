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
from bramley.api.runner_pool_status import CanaryClock, RollPhase, RunnerPoolStatus, Slot
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
    undone: str
    passed: str
    phase: RollPhase
    started_at: datetime | None
    canaries: tuple[CanaryClock, ...]
    failures: int
    boots: tuple[int, ...]
    # Set by the pass that ends a trial or a roll, for events and metrics.
    judgement: Judgement | None = None
    duration: timedelta | None = None
    again_at: datetime | None = None
    # How many more canaries than configured the judgement needs, and what it waits for.
    more_canaries: int = 0
    waits_for: str = ""

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


def is_observed(pool: RunnerPool) -> bool:
    """Return whether the controller has acted on the last change of the spec, and on an image that was promoted or undone."""
    status, image = pool.status, pool.spec.image
    if status.observed_generation < pool.metadata.generation:
        return False
    # A change of an annotation does not change the generation.
    if pool.metadata.annotations.get(names.annotations.ROLLOUT_PROMOTE) == image:
        return status.promoted_image == image
    undo = pool.metadata.annotations.get(names.annotations.ROLLOUT_UNDO)
    return undo != image or status.undone_image == image


def advance(observed: Observed) -> Rollout:
    """Return the next state of the roll."""
    rollout = _with_target(observed)
    rollout = _with_failures(rollout, observed)
    rollout = _judged(rollout, observed)
    rollout = _with_phase(rollout, observed)
    return _with_boots(rollout, observed)


def _initial(status: RunnerPoolStatus) -> Rollout:
    return Rollout(
        target=status.target_image,
        last_good=status.last_good_image,
        previous_good=status.previous_good_image,
        rejected=status.rejected_image,
        promoted=status.promoted_image,
        undone=status.undone_image,
        passed=status.canary_passed_image,
        phase=status.roll_phase,
        started_at=status.roll_started_at,
        canaries=tuple(status.canaries),
        failures=status.target_failures,
        boots=tuple(status.boot_seconds),
    )


def _with_target(observed: Observed) -> Rollout:
    pool, rollout = observed.pool, _initial(observed.pool.status)
    image, notes = pool.spec.image, pool.metadata.annotations
    if rollout.rejected != image:
        rollout = replace(rollout, rejected="")
    undo = notes.get(names.annotations.ROLLOUT_UNDO)
    if rollout.undone != undo:
        rollout = replace(rollout, undone="")
    if notes.get(names.annotations.ROLLOUT_PROMOTE) == image:
        rollout = replace(rollout, promoted=image, rejected="")
    elif undo == image != rollout.undone:
        # Once: an annotation that is left over must not reject the image when its owner sets it again.
        rollout = _undone(replace(rollout, undone=image), image)
    rollout = replace(rollout, last_good=rollout.last_good or _inferred_good(observed))
    is_rejected = rollout.rejected == image and bool(rollout.last_good)
    target = rollout.last_good if is_rejected else image
    if target == rollout.target:
        return rollout
    # A new target starts from nothing; what is known about an earlier one says nothing about it.
    return replace(rollout, target=target, canaries=(), failures=0)


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


def _with_failures(rollout: Rollout, observed: Observed) -> Rollout:
    """Count the Pods of a new target that have ended without a job since the last time."""
    if rollout.target == rollout.last_good:
        return replace(rollout, failures=0)
    ended = [p for p in observed.pods if p.image == rollout.target and p.is_failure_of_image]
    # A slot that is still active ended only now; afterwards it is not counted again.
    slots = (_slot_of(pod, observed.pool.status.slots) for pod in ended)
    failed = sum(slot is not None and slot.active for slot in slots)
    return replace(rollout, failures=rollout.failures + failed)


def _slot_of(pod: RunnerPod, slots: Sequence[Slot]) -> Slot | None:
    """Return the slot whose last Pod this is."""
    slot = slots[pod.slot] if 0 <= pod.slot < len(slots) else None
    return slot if slot is not None and slot.counter == pod.counter else None


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
    found = (p for p in observed.pods if p.image == rollout.target and not p.is_deleting)
    pods = sorted(found, key=lambda pod: pod.name)
    clocks = _clocks(rollout, pods, now)
    replicas = max(1, observed.pool.spec.replicas)
    most = roll.cap(spec.max_concurrent_percent, observed.pool.spec.replicas)
    trial = Trial(
        pods=pods,
        count=min(spec.canary.count, most, replicas),
        replicas=replicas,
        timeout=timedelta(seconds=spec.canary.timeout_seconds),
        gate=spec.gate,
        clocks={each.pod: each.started_at for each in clocks},
        failures=rollout.failures,
        boots=rollout.boots,
        signals=observed.signals,
        now=now,
    )
    result = judgement.judge_canaries(trial)
    rollout = replace(
        rollout,
        canaries=clocks,
        again_at=result.again_at,
        more_canaries=int(result.needs_canary),
        waits_for=result.message,
    )
    return rollout, result


def _clocks(rollout: Rollout, pods: Sequence[RunnerPod], now: datetime) -> tuple[CanaryClock, ...]:
    """Return since when each canary boots: since its pull has ended, because a pull takes as long as it takes.

    A clock that has started does not stop: a pull that fails and is tried again takes its time.
    """
    known = {each.pod: each for each in rollout.canaries}
    booting = (
        p for p in pods if p.is_alive and (p.name in known or p.is_ready or not p.is_pulling)
    )
    start = now.replace(microsecond=0)
    return tuple(known.get(p.name, CanaryClock(pod=p.name, started_at=start)) for p in booting)


def _with_verdict(rollout: Rollout, observed: Observed, result: Judgement) -> Rollout:
    if result.verdict is Verdict.GOOD:
        return replace(
            rollout,
            passed=rollout.target,
            canaries=(),
            failures=0,
            judgement=result,
            again_at=None,
            waits_for="",
        )
    if not result.verdict.is_rejection:
        return rollout
    return replace(
        rollout,
        target=rollout.last_good,
        rejected=observed.pool.spec.image,
        passed="",
        canaries=(),
        failures=0,
        judgement=result,
        again_at=None,
        waits_for="",
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
    is_between = roll.is_between_pods(
        observed.pods, rollout.target, rollout.last_good, replicas=pool.spec.replicas
    )
    is_converged = state.is_complete and not is_between
    has_ready = any(pod.is_alive and pod.is_ready for pod in observed.pods)
    if is_converged and has_ready and not rollout.is_tried_by(pool):
        rollout = _completed(rollout)
    if is_converged and not (rollout.started_at and rollout.is_tried_by(pool)):
        duration = None if rollout.started_at is None else now - rollout.started_at
        rollout = replace(rollout, started_at=None, duration=duration)
    else:
        rollout = replace(rollout, started_at=rollout.started_at or now)
    return replace(rollout, phase=_phase(rollout, observed, is_converged=is_converged))


def _completed(rollout: Rollout) -> Rollout:
    if rollout.target == rollout.last_good:
        return rollout
    return replace(
        rollout,
        previous_good=rollout.last_good,
        last_good=rollout.target,
        passed="",
        promoted="",
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


def _with_boots(rollout: Rollout, observed: Observed) -> Rollout:
    """Record the boots of the last good image, each Pod's once, and as many as the gate compares with."""
    pool, is_new = observed.pool, rollout.last_good != observed.pool.status.last_good_image
    boots = []
    for pod in observed.pods:
        slot = _slot_of(pod, pool.status.slots)
        known = slot.boot_seconds if slot is not None else None
        measured = pod.boot_seconds if known is None else known
        # For an image that has just become the last good one, also what was measured before.
        is_recorded = not is_new and (slot is None or known is not None)
        is_counted = pod.is_alive and pod.image == rollout.last_good and not is_recorded
        if is_counted and measured is not None and pod.ready_changed_at is not None:
            boots.append((pod.ready_changed_at, measured))
    # No canary may take longer: the Pod was not Ready in between, before the controller saw it.
    longest = pool.spec.rollout.canary.timeout_seconds
    new = [seconds for _, seconds in sorted(boots) if seconds <= longest]
    kept = (*(() if is_new else rollout.boots), *new)
    return replace(rollout, boots=kept[-pool.spec.rollout.gate.minimum_sample :])
