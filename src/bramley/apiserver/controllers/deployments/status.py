"""What a Deployment says of its rollout: counts, whether it is available, whether it progresses. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from bramley.api.apps import Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet
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
    """Tell whether a rollout that does not get on shall be told."""
    deadline = deployment.spec.progress_deadline_seconds
    return deadline is not None and deadline != MAX_INT32


def find(conditions: Sequence[DeploymentCondition], type: str) -> DeploymentCondition | None:
    """Return the condition of a type."""
    return next((each for each in conditions if each.type == type), None)


def said(
    type: str, status: ConditionStatus, reason: str, message: str, now: datetime
) -> DeploymentCondition:
    """Return a condition that is said now."""
    when = now.replace(microsecond=0)
    return DeploymentCondition(
        type=type,
        status=status,
        reason=reason,
        message=message,
        last_update_time=when,
        last_transition_time=when,
    )


def put(conditions: Conditions, new: DeploymentCondition) -> Conditions:
    """Return the conditions with a new one; the same said again changes nothing, and a status that stays keeps its time."""
    old = find(conditions, new.type)
    if old is not None and (old.status, old.reason) == (new.status, new.reason):
        return conditions
    since = old.last_transition_time if old is not None and old.status == new.status else None
    kept = DeploymentCondition(
        type=new.type,
        status=new.status,
        reason=new.reason,
        message=new.message,
        last_update_time=new.last_update_time,
        last_transition_time=since or new.last_transition_time,
    )
    return [*without(conditions, new.type), kept]


def without(conditions: Conditions, type: str) -> Conditions:
    """Return the conditions of other types."""
    return [each for each in conditions if each.type != type]


def paused(deployment: Deployment, conditions: Conditions, now: datetime) -> Conditions:
    """Return the conditions with what a pause, or its end, says; a deadline does not run meanwhile."""
    if not has_deadline(deployment):
        return conditions
    current = find(conditions, PROGRESSING)
    if current is not None and current.reason == TIMED_OUT:
        return conditions
    was_paused = current is not None and current.reason == PAUSED
    if deployment.spec.paused and not was_paused:
        return put(conditions, said(PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now))
    if not deployment.spec.paused and was_paused:
        return put(conditions, said(PROGRESSING, "Unknown", RESUMED, "Deployment is resumed", now))
    return conditions


def count(
    deployment: Deployment,
    new: ReplicaSet | None,
    olds: Sequence[ReplicaSet],
    *,
    conditions: Conditions,
    now: datetime,
) -> DeploymentStatus:
    """Return the counts, and whether enough Pods are available."""
    everyone = [*olds, *([new] if new is not None else [])]
    available = sum(each.status.available_replicas for each in everyone)
    if available >= deployment.spec.replicas - max_unavailable(deployment):
        message = "Deployment has minimum availability."
        told = said(AVAILABLE, "True", "MinimumReplicasAvailable", message, now)
    else:
        message = "Deployment does not have minimum availability."
        told = said(AVAILABLE, "False", "MinimumReplicasUnavailable", message, now)
    return DeploymentStatus(
        observed_generation=deployment.metadata.generation,
        replicas=sum(each.status.replicas for each in everyone),
        updated_replicas=new.status.replicas if new is not None else 0,
        ready_replicas=sum(each.status.ready_replicas for each in everyone),
        available_replicas=available,
        unavailable_replicas=max(total(everyone) - available, 0),
        conditions=put(conditions, told),
        collision_count=deployment.status.collision_count,
    )


def progress(
    deployment: Deployment, new: ReplicaSet | None, counted: DeploymentStatus, now: datetime
) -> Conditions:
    """Return the conditions with how the rollout gets on."""
    conditions = counted.conditions
    if not has_deadline(deployment):
        return without(conditions, PROGRESSING)
    current = find(conditions, PROGRESSING)
    was_done = current is not None and current.reason == DONE
    if was_done and counted.replicas == counted.updated_replicas:
        return conditions
    who = f'ReplicaSet "{new.name}"' if new is not None else f'Deployment "{deployment.name}"'
    if is_complete(deployment, counted):
        message = f"{who} has successfully progressed."
        return put(conditions, said(PROGRESSING, "True", DONE, message, now))
    if _gets_on(deployment, counted):
        return _got_on(conditions, current, f"{who} is progressing.", now)
    if is_overdue(deployment, current, now):
        message = f"{who} has timed out progressing."
        return put(conditions, said(PROGRESSING, "False", TIMED_OUT, message, now))
    return conditions


def _got_on(
    conditions: Conditions, current: DeploymentCondition | None, message: str, now: datetime
) -> Conditions:
    """Say it anew each time, since the deadline runs from the last time that it was said."""
    told = said(PROGRESSING, "True", UPDATED, message, now)
    if current is not None and current.status == "True":
        told = DeploymentCondition(
            type=told.type,
            status=told.status,
            reason=told.reason,
            message=told.message,
            last_update_time=told.last_update_time,
            last_transition_time=current.last_transition_time,
        )
    return [*without(conditions, PROGRESSING), told]


def is_complete(deployment: Deployment, counted: DeploymentStatus) -> bool:
    """Tell whether only Pods of the present template are there, all of them available."""
    wanted = deployment.spec.replicas
    return (
        counted.updated_replicas == counted.replicas == counted.available_replicas == wanted
        and counted.observed_generation >= deployment.metadata.generation
    )


def _gets_on(deployment: Deployment, now: DeploymentStatus) -> bool:
    before = deployment.status
    return (
        now.updated_replicas > before.updated_replicas
        or now.replicas - now.updated_replicas < before.replicas - before.updated_replicas
        or now.ready_replicas > before.ready_replicas
        or now.available_replicas > before.available_replicas
    )


def is_overdue(deployment: Deployment, current: DeploymentCondition | None, now: datetime) -> bool:
    """Tell whether nothing got on for longer than the deadline."""
    if current is None or current.reason == DONE:
        return False
    if current.reason == TIMED_OUT:
        return True
    left = time_left(deployment, current, now)
    return left is not None and left < timedelta()


def time_left(
    deployment: Deployment, current: DeploymentCondition | None, now: datetime
) -> timedelta | None:
    """Return how long until the deadline; None when it does not run."""
    deadline = deployment.spec.progress_deadline_seconds
    if deadline is None or not has_deadline(deployment) or current is None:
        return None
    if current.reason in {DONE, TIMED_OUT, PAUSED} or current.last_update_time is None:
        return None
    return current.last_update_time + timedelta(seconds=deadline) - now


def failures(
    conditions: Conditions, new: ReplicaSet | None, olds: Sequence[ReplicaSet]
) -> Conditions:
    """Return the conditions with what keeps ReplicaSets from making Pods, that of the newest first."""
    for each in (*([new] if new is not None else ()), *olds):
        failed = next((one for one in each.status.conditions if one.type == FAILURE), None)
        if failed is not None:
            when = failed.last_transition_time
            told = DeploymentCondition(
                type=FAILURE,
                status=failed.status,
                reason=failed.reason,
                message=failed.message,
                last_update_time=when,
                last_transition_time=when,
            )
            return put(conditions, told)
    return without(conditions, FAILURE)
