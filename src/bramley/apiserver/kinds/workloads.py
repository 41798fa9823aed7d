"""What a real server fills into the kinds that make Pods: Deployments, ReplicaSets and their kin."""

from __future__ import annotations

from bramley.apiserver.kinds import pod_defaults
from bramley.apiserver.registry.resources import Json

_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_ALWAYS_SHOWN = (
    "currentNumberScheduled",
    "desiredNumberScheduled",
    "numberMisscheduled",
    "numberReady",
)
_QUARTER = "25%"
# Shown also when nobody set them.
_TIMES: Json = {"lastUpdateTime": None, "lastTransitionTime": None}


def complete_deployment(new: Json) -> None:
    """Give a new Deployment its first status."""
    new["status"] = {}


def complete_replicas(new: Json) -> None:
    """Give a new ReplicaSet or ReplicationController its first status."""
    new["status"] = {"replicas": 0}


def complete_stateful_set(new: Json) -> None:
    """Give a new StatefulSet its first status."""
    new["status"] = {"replicas": 0, "availableReplicas": 0}


def complete_daemon_set(new: Json) -> None:
    """Give a new DaemonSet its first status, and count its templates where old clients look for that."""
    new["status"] = dict.fromkeys(_ALWAYS_SHOWN, 0)
    _note_template(new, 1)


def default_deployment(new: Json) -> None:
    """Fill what a Deployment's spec leaves out."""
    spec = _with_template(new)
    spec.setdefault("replicas", 1)
    strategy = dict(spec.get("strategy", {}))
    strategy["type"] = strategy.get("type") or "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        given = strategy.get("rollingUpdate", {})
        strategy["rollingUpdate"] = {"maxUnavailable": _QUARTER, "maxSurge": _QUARTER, **given}
    spec["strategy"] = strategy
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    new["spec"] = spec
    status = new.get("status", {})
    if status.get("conditions"):
        conditions = [{**_TIMES, **each} for each in status["conditions"]]
        new["status"] = {**status, "conditions": conditions}


def default_replica_set(new: Json) -> None:
    """Fill what a ReplicaSet's spec leaves out."""
    spec = _with_template(new)
    spec.setdefault("replicas", 1)
    new["spec"] = spec
    _show_status(new, {"replicas": 0})


def default_replication_controller(new: Json) -> None:
    """Fill what a ReplicationController leaves out; its template's labels stand in for its own and its selector."""
    spec = _with_template(new)
    spec.setdefault("replicas", 1)
    labels = spec["template"]["metadata"].get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = labels
        if not new["metadata"].get("labels"):
            new["metadata"]["labels"] = labels
    new["spec"] = spec
    _show_status(new, {"replicas": 0})


def default_stateful_set(new: Json) -> None:
    """Fill what a StatefulSet's spec leaves out."""
    spec = _with_template(new)
    for field, value in (
        ("podManagementPolicy", "OrderedReady"),
        ("replicas", 1),
        ("revisionHistoryLimit", 10),
        ("serviceName", ""),
    ):
        spec.setdefault(field, value)
    strategy = {"type": "RollingUpdate", **spec.get("updateStrategy", {})}
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {"partition": 0, **strategy.get("rollingUpdate", {})}
    spec["updateStrategy"] = strategy
    retained = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    kept = spec.get("persistentVolumeClaimRetentionPolicy", {})
    spec["persistentVolumeClaimRetentionPolicy"] = {**retained, **kept}
    if "volumeClaimTemplates" in spec:
        spec["volumeClaimTemplates"] = [_claim(each) for each in spec["volumeClaimTemplates"]]
    new["spec"] = spec
    _show_status(new, {"replicas": 0, "availableReplicas": 0})


def default_daemon_set(new: Json) -> None:
    """Fill what a DaemonSet's spec leaves out."""
    spec = _with_template(new)
    strategy = {"type": "RollingUpdate", **spec.get("updateStrategy", {})}
    if strategy["type"] == "RollingUpdate":
        given = strategy.get("rollingUpdate", {})
        strategy["rollingUpdate"] = {"maxUnavailable": 1, "maxSurge": 0, **given}
    spec["updateStrategy"] = strategy
    spec.setdefault("revisionHistoryLimit", 10)
    new["spec"] = spec
    _show_status(new, dict.fromkeys(_ALWAYS_SHOWN, 0))


def keep_daemon_set(new: Json, old: Json) -> None:
    """Count the templates of a DaemonSet; what a client says about it is not believed."""
    count = int(old["metadata"].get("annotations", {}).get(_TEMPLATE_GENERATION, "1"))
    same = template(new.get("spec", {})) == template(old["spec"])
    _note_template(new, count if same else count + 1)


def default_pod_template(new: Json) -> None:
    """Fill what a PodTemplate leaves out."""
    new["template"] = template(new)


def template(holder: Json) -> Json:
    """Return the template for Pods that something holds, filled in."""
    given = holder.get("template", {})
    return {
        **given,
        "metadata": given.get("metadata", {}),
        "spec": pod_defaults.template_spec(given.get("spec", {})),
    }


def _with_template(new: Json) -> Json:
    spec = dict(new.get("spec", {}))
    spec["template"] = template(spec)
    return spec


def _show_status(new: Json, least: Json) -> None:
    new["status"] = {**least, **new.get("status", {})}


def _note_template(new: Json, count: int) -> None:
    meta = new["metadata"]
    meta["annotations"] = {**meta.get("annotations", {}), _TEMPLATE_GENERATION: str(count)}


def _claim(given: Json) -> Json:
    return {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "metadata": given.get("metadata", {}),
        "spec": {"volumeMode": "Filesystem", **given.get("spec", {})},
        "status": {"phase": "Pending", **given.get("status", {})},
    }
