"""Workloads: the group apps, ReplicationControllers and PodTemplates; their validation is in `workload_validation`."""

from __future__ import annotations

from functools import partial

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.kinds import amounts, pod_defaults, workload_validation
from bramley.apiserver.kinds.definitions import immutable, initial_status, kind, set_defaults
from bramley.apiserver.registry.resources import Json, ScalePaths, SelectableField, Strategy
from bramley.base.errors import Cause

APPS = "apps"
_SCALE = ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector", is_custom=False)
_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_ALWAYS_SHOWN = (
    "currentNumberScheduled",
    "desiredNumberScheduled",
    "numberMisscheduled",
    "numberReady",
)
_QUARTER = "25%"
_STATEFUL_SET: Json = {
    "podManagementPolicy": "OrderedReady",
    "replicas": 1,
    "revisionHistoryLimit": 10,
    "serviceName": "",
}
# Shown also when they are not set.
_TIMES: Json = {"lastUpdateTime": None, "lastTransitionTime": None}


def complete_daemon_set(new: Json) -> None:
    """Give a new DaemonSet its first status and its template generation."""
    new["status"] = dict.fromkeys(_ALWAYS_SHOWN, 0)
    _set_template_generation(new, 1)


def default_deployment(new: Json) -> None:
    """Set the defaults of a Deployment's spec."""
    spec = _spec_with_template(new)
    spec.setdefault("replicas", 1)
    strategy = dict(spec.get("strategy", {}))
    strategy["type"] = strategy.get("type") or "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.get("rollingUpdate", {})
        strategy["rollingUpdate"] = {"maxUnavailable": _QUARTER, "maxSurge": _QUARTER, **rolling}
    spec["strategy"] = strategy
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    new["spec"] = spec
    status = new.get("status", {})
    if status.get("conditions"):
        conditions = [{**_TIMES, **each} for each in status["conditions"]]
        new["status"] = {**status, "conditions": conditions}


def default_replica_set(new: Json) -> None:
    """Set the defaults of a ReplicaSet's spec."""
    spec = _spec_with_template(new)
    spec.setdefault("replicas", 1)
    new["spec"] = spec
    _default_status(new, {"replicas": 0})


def default_replication_controller(new: Json) -> None:
    """Set the defaults of a ReplicationController; labels and selector default to its template's labels."""
    spec = _spec_with_template(new)
    spec.setdefault("replicas", 1)
    labels = spec["template"]["metadata"].get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = labels
        if not new["metadata"].get("labels"):
            new["metadata"]["labels"] = labels
    new["spec"] = spec
    _default_status(new, {"replicas": 0})


def default_stateful_set(new: Json) -> None:
    """Set the defaults of a StatefulSet's spec."""
    spec = _spec_with_template(new)
    for field, value in _STATEFUL_SET.items():
        spec.setdefault(field, value)
    strategy = {"type": "RollingUpdate", **spec.get("updateStrategy", {})}
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {"partition": 0, **strategy.get("rollingUpdate", {})}
    spec["updateStrategy"] = strategy
    retained = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    retention = spec.get("persistentVolumeClaimRetentionPolicy", {})
    spec["persistentVolumeClaimRetentionPolicy"] = {**retained, **retention}
    if "volumeClaimTemplates" in spec:
        spec["volumeClaimTemplates"] = [_claim(each) for each in spec["volumeClaimTemplates"]]
    new["spec"] = spec
    _default_status(new, {"replicas": 0, "availableReplicas": 0})


def default_daemon_set(new: Json) -> None:
    """Set the defaults of a DaemonSet's spec."""
    spec = _spec_with_template(new)
    strategy = {"type": "RollingUpdate", **spec.get("updateStrategy", {})}
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.get("rollingUpdate", {})
        strategy["rollingUpdate"] = {"maxUnavailable": 1, "maxSurge": 0, **rolling}
    spec["updateStrategy"] = strategy
    spec.setdefault("revisionHistoryLimit", 10)
    new["spec"] = spec
    _default_status(new, dict.fromkeys(_ALWAYS_SHOWN, 0))


def keep_daemon_set(new: Json, old: Json) -> None:
    """Set the template generation of a DaemonSet; a value from the client is ignored."""
    count = int(old["metadata"].get("annotations", {}).get(_TEMPLATE_GENERATION, "1"))
    same = pod_template(new.get("spec", {})) == pod_template(old["spec"])
    _set_template_generation(new, count if same else count + 1)


def pod_template(holder: Json) -> Json:
    """Return the Pod template of a spec with its defaults."""
    template = holder.get("template", {})
    return {
        **template,
        "metadata": template.get("metadata", {}),
        "spec": pod_defaults.template_spec(template.get("spec", {})),
    }


def _spec_with_template(new: Json) -> Json:
    spec = dict(new.get("spec", {}))
    spec["template"] = pod_template(spec)
    return spec


def _default_status(new: Json, least: Json) -> None:
    new["status"] = {**least, **new.get("status", {})}


def _set_template_generation(new: Json, count: int) -> None:
    meta = new["metadata"]
    meta["annotations"] = {**meta.get("annotations", {}), _TEMPLATE_GENERATION: str(count)}


def _claim(claim: Json) -> Json:
    return {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "metadata": claim.get("metadata", {}),
        "spec": {"volumeMode": "Filesystem", **claim.get("spec", {})},
        "status": {"phase": "Pending", **claim.get("status", {})},
    }


def check_revision(new: Json) -> list[Cause]:
    """Return what is wrong with a ControllerRevision."""
    errors = [] if "data" in new else [causes.required("data", "data is mandatory")]
    if new.get("revision", 0) < 0:
        errors.append(causes.invalid("revision", new["revision"], amounts.NOT_NEGATIVE))
    return errors


_workload = partial(kind, group=APPS, categories=("all",), has_status=True)
KINDS = (
    kind(
        "ControllerRevision",
        group=APPS,
        strategy=Strategy(
            default=set_defaults(revision=0),
            validate=check_revision,
            validate_update=immutable("data"),
        ),
    ),
    _workload(
        "DaemonSet",
        short_names=("ds",),
        strategy=Strategy(
            prepare_for_create=complete_daemon_set,
            default=default_daemon_set,
            prepare_for_update=keep_daemon_set,
            validate=workload_validation.check_daemon_set,
            validate_update=workload_validation.check_selector_change,
            counts_generation=True,
        ),
    ),
    _workload(
        "Deployment",
        short_names=("deploy",),
        scale=_SCALE,
        strategy=Strategy(
            prepare_for_create=initial_status(),
            default=default_deployment,
            validate=workload_validation.check_deployment,
            validate_update=workload_validation.check_selector_change,
            counts_generation=True,
            counts_annotations=True,
        ),
    ),
    _workload(
        "ReplicaSet",
        short_names=("rs",),
        scale=_SCALE,
        strategy=Strategy(
            prepare_for_create=initial_status(replicas=0),
            default=default_replica_set,
            validate=workload_validation.check_replica_set,
            validate_update=workload_validation.check_selector_change,
            validate_status=workload_validation.check_counts,
            counts_generation=True,
        ),
    ),
    _workload(
        "StatefulSet",
        short_names=("sts",),
        scale=_SCALE,
        strategy=Strategy(
            prepare_for_create=initial_status(replicas=0, availableReplicas=0),
            default=default_stateful_set,
            validate=workload_validation.check_stateful_set,
            validate_update=workload_validation.check_stateful_set_change,
            counts_generation=True,
        ),
    ),
    kind(
        "PodTemplate",
        strategy=Strategy(
            default=lambda new: new.update(template=pod_template(new)),
            validate=workload_validation.check_pod_template,
            counts_generation=True,
            returns_deleted=True,
        ),
    ),
    kind(
        "ReplicationController",
        short_names=("rc",),
        categories=("all",),
        has_status=True,
        scale=_SCALE,
        selectable=(SelectableField("status.replicas", ("status", "replicas"), "0"),),
        strategy=Strategy(
            prepare_for_create=initial_status(replicas=0),
            default=default_replication_controller,
            validate=workload_validation.check_replication_controller,
            validate_status=workload_validation.check_counts,
            counts_generation=True,
            orphans_by_default=True,
        ),
    ),
)
