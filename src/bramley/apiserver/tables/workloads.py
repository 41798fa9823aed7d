"""The rows of what makes Pods: Deployments, sets, Jobs, their budgets and their scales."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from bramley.apiserver.tables import durations, scaling
from bramley.apiserver.tables.fields import (
    NONE,
    UNSET,
    Cell,
    Json,
    Row,
    age,
    at,
    containers,
    count,
    find,
    holds,
    is_going,
    labels,
    made,
    name,
    number,
    row,
    said,
    selector,
    selector_text,
)

_TEMPLATE = "spec.template.spec.containers"
_CRON_TEMPLATE = "spec.jobTemplate.spec.template.spec.containers"
# The first of these that holds is a Job's status; that it is going away stands between them.
_JOB_ENDS = (("Complete", "Complete"), ("Failed", "Failed"))
_JOB_STATES = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def _of(part: str, whole: str) -> Cell:
    return made(lambda shown: f"{find(shown, part) or 0}/{find(shown, whole) or 0}")


def _template(path: str = _TEMPLATE) -> tuple[Cell, Cell]:
    return containers(path, "name"), containers(path, "image")


def _job_status(job: Json) -> str:
    for type, told in _JOB_ENDS:
        if holds(job, type):
            return told
    if is_going(job):
        return "Terminating"
    return next((each for each in _JOB_STATES if holds(job, each)), "Running")


def _job_completions(job: Json) -> str:
    done = find(job, "status.succeeded") or 0
    wanted = find(job, "spec.completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    at_once = find(job, "spec.parallelism") or 0
    return f"{done}/1 of {at_once}" if at_once > 1 else f"{done}/1"


def _job_duration(job: Json, now: datetime) -> str:
    started = durations.parsed(find(job, "status.startTime"))
    if started is None:
        return ""
    ended = durations.parsed(find(job, "status.completionTime")) or now
    return durations.human((ended - started).total_seconds())


def _suspended(job: Json) -> str:
    value = find(job, "spec.suspend")
    return UNSET if value is None else str(bool(value))


def _last_schedule(job: Json, now: datetime) -> str:
    last = find(job, "status.lastScheduleTime")
    return durations.since(last, now) if last else NONE


def _controller(revision: Json) -> str:
    owners = revision["metadata"].get("ownerReferences") or ()
    owner = next((each for each in owners if each.get("controller")), None)
    if owner is None:
        return NONE
    group, _, _version = owner["apiVersion"].rpartition("/")
    kind = f"{owner['kind']}.{group}" if group else owner["kind"]
    return f"{kind.lower()}/{owner['name']}"


def _replicas(selected: Cell) -> Row:
    return row(
        name,
        number("spec.replicas"),
        number("status.replicas"),
        number("status.readyReplicas"),
        age,
        *_template(),
        selected,
    )


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "deployments.apps": row(
            name,
            _of("status.readyReplicas", "spec.replicas"),
            number("status.updatedReplicas"),
            number("status.availableReplicas"),
            age,
            *_template(),
            made(lambda shown: selector_text(find(shown, "spec.selector"))),
        ),
        "replicasets.apps": _replicas(selector("spec.selector")),
        "replicationcontrollers": _replicas(labels("spec.selector")),
        "statefulsets.apps": row(
            name, _of("status.readyReplicas", "spec.replicas"), age, *_template()
        ),
        "daemonsets.apps": row(
            name,
            number("status.desiredNumberScheduled"),
            number("status.currentNumberScheduled"),
            number("status.numberReady"),
            number("status.updatedNumberScheduled"),
            number("status.numberAvailable"),
            labels("spec.template.spec.nodeSelector"),
            age,
            *_template(),
            selector("spec.selector"),
        ),
        "jobs.batch": row(
            name,
            made(_job_status),
            made(_job_completions),
            _job_duration,
            age,
            *_template(),
            selector("spec.selector"),
        ),
        "cronjobs.batch": row(
            name,
            at("spec.schedule"),
            said("spec.timeZone", NONE),
            made(_suspended),
            count("status.active"),
            _last_schedule,
            age,
            *_template(_CRON_TEMPLATE),
            selector("spec.jobTemplate.spec.selector"),
        ),
        "controllerrevisions.apps": row(name, made(_controller), number("revision"), age),
        "podtemplates": row(
            name, *_template("template.spec.containers"), labels("template.metadata.labels")
        ),
        "poddisruptionbudgets.policy": row(
            name,
            said("spec.minAvailable", "N/A"),
            said("spec.maxUnavailable", "N/A"),
            number("status.disruptionsAllowed"),
            age,
        ),
        "horizontalpodautoscalers.autoscaling": row(
            name,
            made(scaling.reference),
            made(scaling.targets),
            said("spec.minReplicas", UNSET),
            number("spec.maxReplicas"),
            number("status.currentReplicas"),
            age,
        ),
    }
)
