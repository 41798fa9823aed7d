"""The status of a Deployment: replica counts, availability, and the progress of its rollout. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec

from bramley.api.apps import Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet
from bramley.api.conditions import find, without
from bramley.api.meta import MAX_INT32, ConditionStatus
from bramley.apiserver.controllers.deployments.replica_counts import max_unavailable, total
from bramley.apiserver.controllers.replica_sets.active_pods import FAILURE

AVAILABLE = "Available"
PROGRESSING = "Progressing"
CREATED = "NewReplicaSetCreated"
FOUND = "FoundNewReplicaSet"
UPDATED = "ReplicaSetUpdated"
DONE = "NewReplicaSetAvailable"
TIMED_OUT = "ProgressDeadlineExceeded"
CREATE_FAILED = "ReplicaSetCreateError"
PAUSED = "DeploymentPaused"
RESUMED = "DeploymentResumed"

Conditions = list[DeploymentCondition]


def has_deadline(deployment: Deployment) -> bool:
    """Return whether the rollout has a progress deadline."""
    deadline = deployment.spec.progress_deadline_seconds
    return deadline is not None and deadline != MAX_INT32


def set_condition(
    conditions: Conditions,
    type: str,
    status: ConditionStatus,
    *,
    reason: str,
    message: str,
    now: datetime,
    refresh: bool = False,
) -> Conditions:
    """Return the conditions with a new one last; the same status and reason change nothing unless refreshed."""
    old = find(conditions, type)
    if old is not None and (old.status, old.reason) == (status, reason) and not refresh:
        return conditions
    now = now.replace(microsecond=0)
    since = old.last_transition_time if old is not None and old.status == status else None
    new = DeploymentCondition(
        type=type,
        status=status,
        reason=reason,
        message=message,
        last_update_time=now,
        last_transition_time=since or now,
    )
    return [*without(conditions, type), new]


def with_paused_condition(
    deployment: Deployment, conditions: Conditions, now: datetime
) -> Conditions:
    """Return the conditions after a pause or resume; the deadline does not run while paused."""
    if not has_deadline(deployment):
        return conditions
    current = find(conditions, PROGRESSING)
    if current is not None and current.reason == TIMED_OUT:
        return conditions
    was_paused = current is not None and current.reason == PAUSED
    if deployment.spec.paused == was_paused:
        return conditions
    reason, message = RESUMED, "Deployment is resumed"
    if deployment.spec.paused:
        reason, message = PAUSED, "Deployment is paused"
    return set_condition(
        conditions, PROGRESSING, "Unknown", reason=reason, message=message, now=now
    )


def calculate_status(
    deployment: Deployment,
    new: ReplicaSet | None,
    olds: Sequence[ReplicaSet],
    *,
    conditions: Conditions,
    now: datetime,
) -> DeploymentStatus:
    """Return the replica counts, and whether enough Pods are available."""
    everyone = [*olds, *([new] if new is not None else [])]
    available = sum(each.status.available_replicas for each in everyone)
    enough = available >= deployment.spec.replicas - max_unavailable(deployment)
    conditions = set_condition(
        conditions,
        AVAILABLE,
        "True" if enough else "False",
        reason="MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        message=f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        now=now,
    )
    return DeploymentStatus(
        observed_generation=deployment.metadata.generation,
        replicas=sum(each.status.replicas for each in everyone),
        updated_replicas=new.status.replicas if new is not None else 0,
        ready_replicas=sum(each.status.ready_replicas for each in everyone),
        available_replicas=available,
        unavailable_replicas=max(total(everyone) - available, 0),
        conditions=conditions,
        collision_count=deployment.status.collision_count,
    )


def with_progress_condition(
    deployment: Deployment, new: ReplicaSet | None, counted: DeploymentStatus, now: datetime
) -> Conditions:
    """Return the conditions with the progress of the rollout."""
    conditions = counted.conditions
    if not has_deadline(deployment):
        return without(conditions, PROGRESSING)
    current = find(conditions, PROGRESSING)
    was_done = current is not None and current.reason == DONE
    if was_done and counted.replicas == counted.updated_replicas:
        return conditions
    subject = f'ReplicaSet "{new.name}"' if new is not None else f'Deployment "{deployment.name}"'
    update = partial(set_condition, conditions, PROGRESSING, now=now)
    if is_complete(deployment, counted):
        return update("True", reason=DONE, message=f"{subject} has successfully progressed.")
    if _has_progressed(deployment, counted):
        # Refreshed each time, since the deadline runs from the last update.
        message = f"{subject} is progressing."
        return update("True", reason=UPDATED, message=message, refresh=True)
    if is_overdue(deployment, current, now):
        return update("False", reason=TIMED_OUT, message=f"{subject} has timed out progressing.")
    return conditions


def is_complete(deployment: Deployment, counted: DeploymentStatus) -> bool:
    """Return whether all Pods are of the current template and available."""
    desired = deployment.spec.replicas
    return (
        counted.updated_replicas == counted.replicas == counted.available_replicas == desired
        and counted.observed_generation >= deployment.metadata.generation
    )


def _has_progressed(deployment: Deployment, now: DeploymentStatus) -> bool:
    before = deployment.status
    return (
        now.updated_replicas > before.updated_replicas
        or now.replicas - now.updated_replicas < before.replicas - before.updated_replicas
        or now.ready_replicas > before.ready_replicas
        or now.available_replicas > before.available_replicas
    )


def is_overdue(deployment: Deployment, current: DeploymentCondition | None, now: datetime) -> bool:
    """Return whether there was no progress until the deadline."""
    if current is None or current.reason == DONE:
        return False
    if current.reason == TIMED_OUT:
        return True
    remaining = time_left(deployment, current, now)
    return remaining is not None and remaining < timedelta()


def time_left(
    deployment: Deployment, current: DeploymentCondition | None, now: datetime
) -> timedelta | None:
    """Return the time until the deadline, or None if it does not run."""
    deadline = deployment.spec.progress_deadline_seconds
    if deadline is None or not has_deadline(deployment) or current is None:
        return None
    if current.reason in {DONE, TIMED_OUT, PAUSED} or current.last_update_time is None:
        return None
    return current.last_update_time + timedelta(seconds=deadline) - now


def with_failure_condition(
    conditions: Conditions, new: ReplicaSet | None, olds: Sequence[ReplicaSet]
) -> Conditions:
    """Return the conditions with the first ReplicaFailure of the ReplicaSets, the newest first."""
    for each in (*([new] if new is not None else ()), *olds):
        failed = find(each.status.conditions, FAILURE)
        if failed is None:
            continue
        old = find(conditions, FAILURE)
        if old is not None and (old.status, old.reason) == (failed.status, failed.reason):
            return conditions
        failed_at = failed.last_transition_time
        copy = DeploymentCondition(**msgspec.structs.asdict(failed), last_update_time=failed_at)
        return [*without(conditions, FAILURE), copy]
    return without(conditions, FAILURE)
