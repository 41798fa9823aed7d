"""The rows of workloads: Deployments, sets, Jobs, disruption budgets and autoscalers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from bramley.apiserver.tables import cells
from bramley.apiserver.tables.cells import (
    NONE,
    UNKNOWN,
    UNSET,
    Cell,
    Json,
    Row,
    age,
    computed,
    containers,
    count,
    find,
    is_condition_true,
    is_terminating,
    labels,
    name,
    number,
    row,
    selector,
    selector_text,
    text_at,
)

_SHOWN = 2
_FIELDS = {
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}


def reference(scaler: Json) -> str:
    """Return the kind and name of what is scaled."""
    target = find(scaler, "spec.scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def targets(scaler: Json) -> str:
    """Return the first metrics, each as the current over the target value."""
    specs = find(scaler, "spec.metrics") or []
    states = find(scaler, "status.currentMetrics") or []
    if not specs:
        return NONE
    shown = [
        _target(spec, states[index] if index < len(states) else {})
        for index, spec in enumerate(specs[:_SHOWN])
    ]
    text = ", ".join(shown)
    return f"{text} + {len(specs) - _SHOWN} more..." if len(specs) > _SHOWN else text


def _target(spec: Json, state: Json) -> str:
    field = _FIELDS.get(spec.get("type", ""))
    if field is None:
        return "<unknown type>"
    metric, current = spec.get(field) or {}, (state.get(field) or {}).get("current")
    target = metric.get("target") or {}
    if field in {"resource", "containerResource"}:
        return f"{metric.get('name', '')}: {_resource_target(target, current)}"
    if field == "pods":
        return f"{_amount(current, 'averageValue', '0')}/{target.get('averageValue', '0')}"
    if "averageValue" in target:
        return f"{_amount(current, 'averageValue', UNKNOWN)}/{target['averageValue']} (avg)"
    return f"{_amount(current, 'value', '0')}/{target.get('value', '0')}"


def _resource_target(target: Json, current: Json | None) -> str:
    if "averageValue" in target:
        return f"{_amount(current, 'averageValue', '0')}/{target['averageValue']}"
    used = (current or {}).get("averageUtilization")
    return f"{_percent(used, UNKNOWN)}/{_percent(target.get('averageUtilization'), '<auto>')}"


def _amount(current: Json | None, field: str, absent: str) -> str:
    return UNKNOWN if current is None else str(current.get(field, absent))


def _percent(value: int | None, absent: str) -> str:
    return absent if value is None else f"{value}%"


_TEMPLATE = "spec.template.spec.containers"
_CRON_TEMPLATE = "spec.jobTemplate.spec.template.spec.containers"
# The first of these conditions that is true is a Job's status; "Terminating" comes between the two.
_JOB_ENDS = ("Complete", "Failed")
_JOB_STATES = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def _of(count_path: str, total_path: str) -> Cell:
    return computed(lambda shown: f"{find(shown, count_path) or 0}/{find(shown, total_path) or 0}")


def _template(path: str = _TEMPLATE) -> tuple[Cell, Cell]:
    return containers(path, "name"), containers(path, "image")


def _job_status(job: Json) -> str:
    for type in _JOB_ENDS:
        if is_condition_true(job, type):
            return type
    if is_terminating(job):
        return "Terminating"
    return next((each for each in _JOB_STATES if is_condition_true(job, each)), "Running")


def _job_completions(job: Json) -> str:
    succeeded = find(job, "status.succeeded") or 0
    completions = find(job, "spec.completions")
    if completions is not None:
        return f"{succeeded}/{completions}"
    parallelism = find(job, "spec.parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(job: Json, now: datetime) -> str:
    started = cells.parse_time(find(job, "status.startTime"))
    if started is None:
        return ""
    ended = cells.parse_time(find(job, "status.completionTime")) or now
    return cells.human_duration((ended - started).total_seconds())


def _suspended(job: Json) -> str:
    value = find(job, "spec.suspend")
    return UNSET if value is None else str(bool(value))


def _last_schedule(job: Json, now: datetime) -> str:
    last = find(job, "status.lastScheduleTime")
    return cells.time_since(last, now) if last else NONE


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


ROWS: Mapping[str, Row] = {
    "deployments.apps": row(
        name,
        _of("status.readyReplicas", "spec.replicas"),
        number("status.updatedReplicas"),
        number("status.availableReplicas"),
        age,
        *_template(),
        computed(lambda shown: selector_text(find(shown, "spec.selector"))),
    ),
    "replicasets.apps": _replicas(selector("spec.selector")),
    "replicationcontrollers": _replicas(labels("spec.selector")),
    "statefulsets.apps": row(name, _of("status.readyReplicas", "spec.replicas"), age, *_template()),
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
        computed(_job_status),
        computed(_job_completions),
        _job_duration,
        age,
        *_template(),
        selector("spec.selector"),
    ),
    "cronjobs.batch": row(
        name,
        "spec.schedule",
        text_at("spec.timeZone", NONE),
        computed(_suspended),
        count("status.active"),
        _last_schedule,
        age,
        *_template(_CRON_TEMPLATE),
        selector("spec.jobTemplate.spec.selector"),
    ),
    "controllerrevisions.apps": row(name, computed(_controller), number("revision"), age),
    "podtemplates": row(
        name, *_template("template.spec.containers"), labels("template.metadata.labels")
    ),
    "poddisruptionbudgets.policy": row(
        name,
        text_at("spec.minAvailable", "N/A"),
        text_at("spec.maxUnavailable", "N/A"),
        number("status.disruptionsAllowed"),
        age,
    ),
    "horizontalpodautoscalers.autoscaling": row(
        name,
        computed(reference),
        computed(targets),
        text_at("spec.minReplicas", UNSET),
        number("spec.maxReplicas"),
        number("status.currentReplicas"),
        age,
    ),
}
