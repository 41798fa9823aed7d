"""Validation of workloads: selectors that match their Pod template, counts, and fields that may not change."""

from __future__ import annotations

from collections.abc import Iterator

from bramley.apiserver.apimachinery import causes, metadata
from bramley.apiserver.kinds import amounts, label_selectors, pods
from bramley.apiserver.kinds.definitions import go_struct
from bramley.apiserver.registry.resources import Json
from bramley.base.errors import Cause

_MISMATCH = "`selector` does not match template `labels`"
_IMMUTABLE = "field is immutable"
_STATEFUL_MAY_CHANGE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_COUNTED = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")


def check_deployment(new: Json) -> list[Cause]:
    """Return what is wrong with a Deployment."""
    spec = new["spec"]
    counts = ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    errors = [*_validate_selection(spec, "deployment"), *amounts.not_negative(spec, counts, "spec")]
    errors += _validate_strategy(spec["strategy"])
    deadline = spec["progressDeadlineSeconds"]
    if deadline <= spec.get("minReadySeconds", 0):
        detail = "must be greater than minReadySeconds"
        errors.append(causes.invalid("spec.progressDeadlineSeconds", deadline, detail))
    return errors


def check_replica_set(new: Json) -> list[Cause]:
    """Return what is wrong with a ReplicaSet."""
    spec = new["spec"]
    counts = ("replicas", "minReadySeconds")
    return [*_validate_selection(spec, "deployment"), *amounts.not_negative(spec, counts, "spec")]


def check_daemon_set(new: Json) -> list[Cause]:
    """Return what is wrong with a DaemonSet."""
    spec = new["spec"]
    counts = ("minReadySeconds", "revisionHistoryLimit")
    errors = [*_validate_selection(spec, "daemonset"), *amounts.not_negative(spec, counts, "spec")]
    kinds, kind = ("RollingUpdate", "OnDelete"), spec["updateStrategy"]["type"]
    return errors + causes.not_one_of("spec.updateStrategy.type", kind, kinds)


def check_stateful_set(new: Json) -> list[Cause]:
    """Return what is wrong with a StatefulSet."""
    spec = new["spec"]
    counts = ("replicas", "minReadySeconds", "revisionHistoryLimit")
    errors = [*_validate_selection(spec, "statefulset")]
    errors += amounts.not_negative(spec, counts, "spec")
    policy = spec["podManagementPolicy"]
    if policy not in {"OrderedReady", "Parallel"}:
        detail = "must be 'OrderedReady' or 'Parallel'"
        errors.append(causes.invalid("spec.podManagementPolicy", policy, detail))
    if spec["updateStrategy"]["type"] not in {"RollingUpdate", "OnDelete"}:
        detail = "must be 'RollingUpdate' or 'OnDelete'"
        errors.append(causes.invalid("spec.updateStrategy", spec["updateStrategy"], detail))
    return errors


def check_replication_controller(new: Json) -> list[Cause]:
    """Return what is wrong with a ReplicationController."""
    spec = new["spec"]
    counts = ("replicas", "minReadySeconds")
    errors = [*amounts.not_negative(spec, counts, "spec")]
    if not spec.get("selector"):
        errors.append(causes.required("spec.selector"))
    labels = spec["template"]["metadata"].get("labels")
    if any((labels or {}).get(key) != value for key, value in spec.get("selector", {}).items()):
        errors.append(causes.invalid("spec.template.metadata.labels", labels, _MISMATCH))
    return [*errors, *check_template(spec["template"], "spec.template", restarts=("Always",))]


def check_pod_template(new: Json) -> list[Cause]:
    """Return what is wrong with a PodTemplate."""
    return check_template(new["template"], "template")


def check_selector_change(new: Json, old: Json) -> list[Cause]:
    """Return a cause when an update changes the selector."""
    selector = new["spec"].get("selector")
    if selector == old["spec"].get("selector"):
        return []
    return [causes.invalid("spec.selector", selector, _IMMUTABLE)]


def check_stateful_set_change(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with an update of a StatefulSet."""
    before, after = old["spec"], new["spec"]
    touched = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    if touched <= set(_STATEFUL_MAY_CHANGE):
        return []
    *names, last = [f"'{each}'" for each in _STATEFUL_MAY_CHANGE]
    detail = f"updates to statefulset spec for fields other than {', '.join(names)} and {last} are forbidden"
    return [causes.forbidden("spec", detail)]


def check_counts(new: Json, _old: Json) -> list[Cause]:
    """Return what is wrong with the counts in the status of a ReplicaSet or ReplicationController."""
    status = new.get("status", {})
    counts = ("replicas", *_COUNTED, "observedGeneration")
    errors = [*amounts.not_negative(status, counts, "status")]
    detail = "cannot be greater than status.replicas"
    errors += [
        causes.invalid(f"status.{name}", status[name], detail)
        for name in _COUNTED
        if status.get(name, 0) > status.get("replicas", 0)
    ]
    ready, available = status.get("readyReplicas", 0), status.get("availableReplicas", 0)
    if available > ready:
        detail = "cannot be greater than readyReplicas"
        errors.append(causes.invalid("status.availableReplicas", available, detail))
    return errors


def check_template(template: Json, field: str, *, restarts: tuple[str, ...] = ()) -> list[Cause]:
    """Return what is wrong with a Pod template; `restarts` are the restart policies that it may have."""
    meta, spec = template["metadata"], template["spec"]
    errors = metadata.check_labels(meta.get("labels", {}), f"{field}.metadata.labels")
    errors += pods.check_spec(spec, f"{field}.spec")
    if restarts:
        policy = spec["restartPolicy"]
        errors += causes.not_one_of(f"{field}.spec.restartPolicy", policy, restarts)
    return errors


def _validate_selection(spec: Json, word: str) -> Iterator[Cause]:
    """Yield what is wrong with a selector and the template that it must match."""
    field, selector, template = "spec.selector", spec.get("selector"), spec["template"]
    labels = template["metadata"].get("labels")
    wrong = label_selectors.check(selector or {}, field)
    yield from wrong
    if wrong:
        yield causes.invalid(field, selector, "invalid label selector")
    if selector is None:
        yield causes.required(field)
    elif label_selectors.is_empty(selector):
        detail = f"empty selector is invalid for {word}"
        yield causes.invalid(field, selector, detail)
    if not wrong and not label_selectors.matches(selector, labels or {}):
        yield causes.invalid("spec.template.metadata.labels", labels, _MISMATCH)
    yield from check_template(template, "spec.template", restarts=("Always",))


def _validate_strategy(strategy: Json) -> Iterator[Cause]:
    field, kind, rolling = "spec.strategy", strategy["type"], strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            detail = "may not be specified when strategy `type` is 'Recreate'"
            yield causes.forbidden(f"{field}.rollingUpdate", detail)
    elif kind == "RollingUpdate":
        yield from _validate_rolling(rolling or {}, f"{field}.rollingUpdate")
    else:
        shown = go_struct(Type=kind, RollingUpdate=rolling)
        wrong = causes.unsupported(field, "", ("Recreate", "RollingUpdate"))
        yield Cause(wrong.field, wrong.reason, wrong.message.replace('""', shown, 1))


def _validate_rolling(rolling: Json, field: str) -> Iterator[Cause]:
    surge, missing = rolling["maxSurge"], rolling["maxUnavailable"]
    yield from amounts.check_count_or_percent(missing, f"{field}.maxUnavailable")
    yield from amounts.check_count_or_percent(surge, f"{field}.maxSurge")
    if missing in {0, "0%"} and surge in {0, "0%"}:
        detail = "may not be 0 when `maxSurge` is 0"
        yield causes.invalid(f"{field}.maxUnavailable", missing, detail)
    yield from amounts.check_percent_limit(missing, f"{field}.maxUnavailable")
