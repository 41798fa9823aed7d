"""The status of a pool after a decision: counts, conditions, events, and the patch that writes it; pure.

Tickets must be written before Pods are created or marked. Changes that only show something, such as counts, can wait a second
and are then written together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bramley.api import conditions
from bramley.api.meta import Condition, ConditionStatus
from bramley.api.names import conditions as types
from bramley.api.names import events, labels
from bramley.api.runner_pool import RunnerPool
from bramley.api.runner_pool_status import RollProgress, RunnerPoolStatus, Slot
from bramley.api.staging import State
from bramley.runners import roll
from bramley.runners.decision import Decision, Fleet
from bramley.runners.hosts import node_selector
from bramley.runners.judgement import Judgement, Verdict
from bramley.runners.pod_timeouts import FAILURES, Why
from bramley.runners.rollout import Rollout
from bramley.runtime.events import EventType

# Written together with other changes only, or at a bounded rate.
_COSMETIC = frozenset(
    {
        *("observedReplicas", "readyReplicas", "busyReplicas", "staleReplicas"),
        *("rollingReplicas", "stagedHosts", "bootSeconds", "slots", "rollProgress"),
    }
)
# Of these, what people do not wait for: with a roll of one Pod after another, the next write follows anyway.
_RECORDS = frozenset({"rollingReplicas", "stagedHosts", "bootSeconds", "slots", "rollProgress"})
_COUNTS_PERIOD, _RECORDS_PERIOD = timedelta(seconds=1), timedelta(seconds=30)
# During a roll the next ticket shows the counts as well, usually within seconds.
_ROLL_PERIOD = timedelta(seconds=5)
# Written as 0, because kubectl shows nothing for a field that is absent.
_ZEROS = dict.fromkeys(
    ("observedReplicas", "readyReplicas", "busyReplicas", "staleReplicas", "stagedHosts"), 0
)
_MARKERS = frozenset({"podsResourceVersion", "lastReconcile"})
_FAILING_SLOTS = 2
_NAMED_HOSTS = 5
_REJECTIONS = frozenset(each.value for each in Verdict if each.is_rejection)
# Why a Pod is deleted whose image may be the cause; that no host had a place for it says nothing about the image.
_IMAGE_FAILURES = FAILURES - {Why.UNSCHEDULABLE}
# A roll that is stuck must be noticed within this time.
PROGRESS_DEADLINE = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class PoolEvent:
    """An event about the pool."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What the status shows in addition to the decision."""

    now: datetime
    epoch: int = 0
    # The reason and the message of a write to a Pod that failed.
    failed_write: tuple[str, str] | None = None
    # Other pools with the same dispatch label.
    label_conflicts: tuple[str, ...] = ()


def next_status(
    pool: RunnerPool, decision: Decision, fleet: Fleet, facts: Facts
) -> RunnerPoolStatus:
    """Return the status after a decision, without the two fields that change with every write."""
    old, state, rollout = pool.status, decision.state, decision.rollout
    alive = [pod for pod in state.pods if pod.is_alive]
    has_changed = old.observed_image != pool.spec.image
    created = len(decision.plan.create) + len(alive) - len(decision.plan.delete)
    return msgspec.structs.replace(
        old,
        observed_replicas=max(0, created),
        observed_image=pool.spec.image,
        image_rolled_at=_whole(facts.now) if has_changed else old.image_rolled_at,
        observed_generation=pool.metadata.generation,
        selector=f"{labels.RUNNER_POOL}={pool.name}",
        conditions=_conditions(pool, decision, fleet, facts),
        ready_replicas=sum(pod.is_ready for pod in alive),
        busy_replicas=sum(pod.is_claimed for pod in alive),
        stale_replicas=sum(roll.is_stale(pod, rollout.target) for pod in alive),
        rolling_replicas=state.in_flight,
        target_image=rollout.target,
        last_good_image=rollout.last_good,
        previous_good_image=rollout.previous_good,
        rejected_image=rollout.rejected,
        promoted_image=rollout.promoted,
        undone_image=rollout.undone,
        canary_passed_image=rollout.passed,
        roll_phase=rollout.phase,
        roll_started_at=_whole(rollout.started_at),
        roll_progress=_progress(pool, decision, facts.now),
        canaries=list(rollout.canaries),
        target_failures=rollout.failures + _hung(decision),
        boot_seconds=list(rollout.boots),
        staged_hosts=len(decision.states.ready),
        draining=list(decision.plan.tickets),
        slots=list(decision.plan.slots),
        host_failures=list(decision.host_failures),
        controller_epoch=facts.epoch,
    )


def _hung(decision: Decision) -> int:
    """Return how many Pods of a new target image are deleted because they do not start or do not respond."""
    target = decision.rollout.target
    if target == decision.rollout.last_good:
        return 0
    deleted = (each.pod for each in decision.plan.delete if each.why in _IMAGE_FAILURES)
    return sum(pod.image == target for pod in deleted)


def _progress(pool: RunnerPool, decision: Decision, now: datetime) -> RollProgress | None:
    """Return the progress of the roll; runners that become stale again for a while, and hosts that are lost, do not count."""
    old, rollout = pool.status, decision.rollout
    if rollout.started_at is None:
        return None
    stale, staged = len(decision.state.stale), len(decision.states.ready)
    before = old.roll_progress
    if before is not None and (old.target_image, old.roll_phase) == (rollout.target, rollout.phase):
        if stale >= before.stale_replicas and staged <= before.staged_hosts:
            return before
        stale, staged = min(stale, before.stale_replicas), max(staged, before.staged_hosts)
    return RollProgress(stale_replicas=stale, staged_hosts=staged, at=now.replace(microsecond=0))


def patch(old: RunnerPoolStatus, new: RunnerPoolStatus) -> dict[str, Any]:
    """Return the fields that differ, as a merge patch; a field that is absent in the new status becomes null."""
    after: dict[str, Any] = {**_ZEROS, **msgspec.to_builtins(new)}
    before: dict[str, Any] = msgspec.to_builtins(old)
    if old.observed_generation:
        before = {**_ZEROS, **before}
    keys = sorted({*before, *after} - _MARKERS)
    return {key: after.get(key) for key in keys if before.get(key) != after.get(key)}


def is_urgent(old: RunnerPoolStatus, new: RunnerPoolStatus, changes: Mapping[str, Any]) -> bool:
    """Return whether the changes must be written now: more than counts and messages, or slots that were filled or freed."""
    if set(changes) - _COSMETIC - {"conditions"}:
        return True
    # Two controllers with different messages would otherwise replace each other's without a pause.
    if "conditions" in changes and _verdicts(old.conditions) != _verdicts(new.conditions):
        return True
    return "slots" in changes and _use(old.slots) != _use(new.slots)


def longest_delay(
    old: RunnerPoolStatus, new: RunnerPoolStatus, changes: Mapping[str, Any]
) -> timedelta:
    """Return how long the changes may wait for others."""
    if is_urgent(old, new, changes):
        return timedelta()
    if not set(changes) - _RECORDS:
        return _RECORDS_PERIOD
    return _COUNTS_PERIOD if new.roll_started_at is None else _ROLL_PERIOD


def _verdicts(conditions: Iterable[Condition]) -> list[tuple[str, str, str]]:
    return [(each.type, each.status, each.reason) for each in conditions]


def _use(slots: Iterable[Slot]) -> list[tuple[int, bool, int]]:
    return [(slot.counter, slot.active, slot.failures) for slot in slots]


def pool_events(pool: RunnerPool, decision: Decision) -> list[PoolEvent]:
    """Return the events of a decision: what happened to the roll, and which Pods are replaced and why."""
    found = list(_roll_events(pool, decision))
    for each in decision.plan.delete:
        where = f" on {each.pod.node}" if each.pod.node else ""
        text = f"Deleting idle Pod {each.pod.name}{where}"
        if each.pod.waiting:
            text += f", which waited with {each.pod.waiting}: {each.pod.message}"
        type: EventType = "Warning" if each.why in FAILURES else "Normal"
        found.append(PoolEvent(type, each.why.value, text))
    return found


def _roll_events(pool: RunnerPool, decision: Decision) -> Iterable[PoolEvent]:
    rollout, before = decision.rollout, pool.status
    judgement = rollout.judgement
    if judgement is not None and judgement.verdict is Verdict.GOOD:
        text = f"Image {rollout.target} passed its trial: {judgement.message}"
        yield PoolEvent("Normal", events.CANARY_GOOD, text)
    elif judgement is not None:
        text = _rejection(pool, rollout, judgement)
        yield PoolEvent("Warning", events.IMAGE_REJECTED, text)
    is_new = before.target_image not in {"", rollout.target} and judgement is None
    if is_new:
        text = f"Rolling from {before.target_image} to {rollout.target}"
        yield PoolEvent("Normal", events.ROLL_STARTED, text)
    if rollout.duration is not None:
        seconds = f"{rollout.duration.total_seconds():.0f} s"
        text = f"All Pods have image {rollout.target}, after {seconds}"
        yield PoolEvent("Normal", events.ROLL_COMPLETED, text)


def _rejection(pool: RunnerPool, rollout: Rollout, judgement: Judgement) -> str:
    return (
        f"Image {pool.spec.image} is rejected: {judgement.message}. The pool stays on "
        f"{rollout.last_good} until spec.image changes or the image is promoted"
    )


def _conditions(
    pool: RunnerPool, decision: Decision, fleet: Fleet, facts: Facts
) -> list[Condition]:
    found = list(pool.status.conditions)
    for new in (
        _available(decision),
        _rolled_out(pool, decision, fleet, facts.now),
        _capacity_short(pool, decision, fleet),
        _staging_blocked(pool, decision),
        _pods_failing(decision, facts.failed_write),
        _label_conflict(pool, facts.label_conflicts),
    ):
        # A condition that was never true need not be shown as false.
        if new.status == "True" or conditions.find(found, new.type) or new.type in _ALWAYS:
            # The generation is in observedGeneration; here it would rewrite every condition with every change of the spec.
            found = conditions.put(found, new, now=facts.now)
    return conditions.without(found, types.SUPPORTED)


_ALWAYS = (types.AVAILABLE, types.ROLLED_OUT)


def _condition(type: str, status: bool, reason: str, message: str = "") -> Condition:  # noqa: FBT001 - reads as the status of the condition
    value: ConditionStatus = "True" if status else "False"
    return Condition(type=type, status=value, reason=reason, message=message)


def _available(decision: Decision) -> Condition:
    state = decision.state
    ready = sum(pod.is_alive and pod.is_ready for pod in state.pods)
    least = max(0, state.replicas - state.cap)
    is_met = ready >= least
    reason = "MinimumReplicasAvailable" if is_met else "MinimumReplicasUnavailable"
    # No numbers of Pods: a message that changes with each Pod would be written with each.
    text = f"at least {least} of {state.replicas} runners are ready" if is_met else ""
    text = text or f"fewer than {least} of {state.replicas} runners are ready"
    return _condition(types.AVAILABLE, is_met, reason, text)


def _rolled_out(pool: RunnerPool, decision: Decision, fleet: Fleet, now: datetime) -> Condition:
    rollout = decision.rollout
    if rollout.phase == "Rejected":
        return _rejected(pool, decision)
    if rollout.phase in {"Idle", ""}:
        text = f"every runner has image {rollout.target}"
        return _condition(types.ROLLED_OUT, True, "RollCompleted", text)
    trial = "waiting until the canaries of the new image are good"
    texts = {
        "Staging": "waiting until a host with an idle runner has the image",
        "Canary": f"{trial}: {rollout.waits_for}" if rollout.waits_for else trial,
        "Rolling": "replacing runners of other images",
        "Paused": f"paused; remove the annotation or run bramley rollout resume pool/{pool.name}",
    }
    text = texts[rollout.phase]
    if _is_stalled(pool, decision, fleet, now):
        text = f"no progress for 15 minutes: {text}{_cause(decision)}; see bramley explain pool/{pool.name}"
        return _condition(types.ROLLED_OUT, False, types.PROGRESS_DEADLINE_EXCEEDED, text)
    return _condition(types.ROLLED_OUT, False, rollout.phase, text)


def _is_stalled(pool: RunnerPool, decision: Decision, fleet: Fleet, now: datetime) -> bool:
    """Return whether a roll makes no progress; a pull and a job take as long as they take."""
    state, target = decision.state, decision.rollout.target
    progress = _progress(pool, decision, now)
    if progress is None or now - progress.at < PROGRESS_DEADLINE:
        return False
    if decision.rollout.phase == "Paused":
        return False
    reports = (host.staged(target) for host in fleet.hosts if host.is_usable)
    stages = any(each is not None and each.state is State.PULLING for each in reports)
    pulls = any(
        pod.is_alive and pod.image == target and pod.waiting == events.PULLING_IMAGE
        for pod in state.pods
    )
    waits_for_jobs = bool(state.stale) and not state.is_in_progress and not state.booting
    return not (stages or pulls or waits_for_jobs)


def _cause(decision: Decision) -> str:
    """Return the Pod that a roll without progress waits for."""
    state = decision.state
    for pod, what in (
        *((each, "is not ready") for each in state.booting),
        *((each, "is drained and has not ended") for each in state.drained),
    ):
        where = f" on {pod.node}" if pod.node else ""
        return f"; Pod {pod.name}{where} {what}"
    return ""


def _rejected(pool: RunnerPool, decision: Decision) -> Condition:
    judgement = decision.rollout.judgement
    if judgement is not None and judgement.verdict.is_rejection:
        text = _rejection(pool, decision.rollout, judgement)
        return _condition(types.ROLLED_OUT, False, judgement.verdict.value, text)
    current = conditions.find(pool.status.conditions, types.ROLLED_OUT)
    if current is not None and current.reason in _REJECTIONS:
        return _condition(types.ROLLED_OUT, False, current.reason, current.message)
    return _condition(types.ROLLED_OUT, False, "Rejected", f"image {pool.spec.image} is rejected")


def _capacity_short(pool: RunnerPool, decision: Decision, fleet: Fleet) -> Condition:
    name = pool.spec.fleet_selector
    if decision.state.replicas <= decision.share:
        if decision.plan.missing and not any(decision.places.free.values()):
            text = f"{decision.plan.missing} runners wait for slots of fleet {name} that other pools use"
            return _condition(types.CAPACITY_SHORT, True, "SlotsTaken", text)
        return _condition(types.CAPACITY_SHORT, False, "EnoughSlots")
    unusable = [f"{host.name} ({host.unusable})" for host in fleet.hosts if not host.is_usable]
    if not fleet.hosts:
        required = ", ".join(f"{key}={value}" for key, value in node_selector(name).items())
        text = f"fleet {name} has no hosts: no Node has the labels {required}"
        return _condition(types.CAPACITY_SHORT, True, "NoHosts", text)
    text = (
        f"{decision.state.replicas} runners are desired, and the pool's share of the "
        f"{decision.places.capacity} slots of fleet {name} is {decision.share}"
    )
    if unusable:
        text += f"; not usable: {_named(unusable)}"
    return _condition(types.CAPACITY_SHORT, True, "SlotsTaken", text)


def _staging_blocked(pool: RunnerPool, decision: Decision) -> Condition:
    states, target = decision.states, decision.rollout.target
    # Also while the pool goes back to the last good image.
    is_rolling = decision.rollout.phase not in {"Idle", "Paused"} and not decision.state.is_complete
    failed = states.failed or {}
    if is_rolling and failed:
        host, message = min(failed.items())
        text = f"{_named(sorted(failed))} could not pull {target}; {host}: {message}"
        return _condition(types.STAGING_BLOCKED, True, "PullFailed", text)
    is_required = pool.spec.rollout.staging.mode == "Required"
    if is_rolling and is_required and states.no_room:
        text = f"no room for {target} on {_named(sorted(states.no_room))}; free disk space there"
        return _condition(types.STAGING_BLOCKED, True, "NoRoom", text)
    return _condition(types.STAGING_BLOCKED, False, "NotBlocked")


def _pods_failing(decision: Decision, failed_write: tuple[str, str] | None) -> Condition:
    if failed_write is not None:
        reason, message = failed_write
        return _condition(types.PODS_FAILING, True, reason, message[:1000])
    failing = [slot for slot in decision.plan.slots if slot.failures >= _FAILING_SLOTS]
    stuck = [p for p in decision.state.pods if p.is_alive and p.waiting == events.CREATE_FAILED]
    if not failing and not stuck:
        return _condition(types.PODS_FAILING, False, "PodsStart")
    if stuck:
        text = f"Pod {stuck[0].name} on {stuck[0].node}: {stuck[0].message}"
        return _condition(types.PODS_FAILING, True, events.CREATE_FAILED, text[:1000])
    text = "the last Pods of some slots ended before they got a job; they are retried with backoff"
    return _condition(types.PODS_FAILING, True, "PodsEnd", text)


def _label_conflict(pool: RunnerPool, others: Sequence[str]) -> Condition:
    if not others:
        return _condition(types.LABEL_CONFLICT, False, "Unique")
    text = (
        f"spec.dispatchLabel {pool.spec.dispatch_label} is also that of {_named(list(others))}; "
        "jobs with it cannot be assigned to a pool"
    )
    return _condition(types.LABEL_CONFLICT, True, "SameLabel", text)


def _named(names: list[str]) -> str:
    more = len(names) - _NAMED_HOSTS
    shown = ", ".join(names[:_NAMED_HOSTS])
    return f"{shown} and {more} more" if more > 0 else shown


def _whole(when: datetime | None) -> datetime | None:
    return None if when is None else when.replace(microsecond=0)
