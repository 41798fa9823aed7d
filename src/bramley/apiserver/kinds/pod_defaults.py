"""Defaults of Pods: those of the API, and of the admission plugins that every cluster has."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from bramley.api import quantities
from bramley.apiserver.registry.resources import Json

_SPEC: Json = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
# Defaults of Pods that Pod templates do not have.
_POD: Json = {"enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority"}
_CONTAINER: Json = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_PROBE: Json = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_REFERENCES: dict[str, Json] = {
    "fieldRef": {"apiVersion": "v1"},
    "resourceFieldRef": {"divisor": "0"},
}
_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_COMPUTE = ("cpu", "memory")
_TIMES: Json = {"lastProbeTime": None, "lastTransitionTime": None}


def complete(new: Json) -> None:
    """Give a new Pod its first status."""
    new["status"] = {"phase": "Pending", "qosClass": qos_class(new.get("spec", {}))}
    if new.get("spec", {}).get("schedulingGates"):
        new["status"]["conditions"] = [_gated(new["metadata"]["creationTimestamp"])]


def default(new: Json, *, outage_toleration: timedelta) -> None:
    """Set the defaults of a Pod's spec."""
    spec = template_spec(new.get("spec", {}))
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for field, value in _POD.items():
        spec.setdefault(field, value)
    if not spec.get("priorityClassName"):
        spec.setdefault("priority", 0)
    for field in _CONTAINERS:
        for container in spec.get(field, ()):
            _request_limits(container)
    spec["tolerations"] = [
        *spec.get("tolerations", []),
        *_added_tolerations(spec, outage_toleration),
    ]
    new["spec"] = spec
    if "status" in new:
        new["status"] = _shown_status(new["status"])


def template_spec(spec_in: Json) -> Json:
    """Return the spec of a Pod or Pod template with its defaults."""
    spec = {**_SPEC, **spec_in}
    spec.setdefault("securityContext", {})
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for field in _CONTAINERS:
        if field in spec:
            spec[field] = [_container(each) for each in spec[field]]
    if "volumes" in spec:
        spec["volumes"] = [_volume(each) for each in spec["volumes"]]
    return spec


def _gated(since: str) -> Json:
    return {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": since,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


def _shown_status(status: Json) -> Json:
    """Return a status with the times that are shown also when they are not set, and with the address in `podIPs`, too."""
    address = status.get("podIP")
    if address and not status.get("podIPs"):
        status = {**status, "podIPs": [{"ip": address}]}
    if status.get("conditions"):
        status = {**status, "conditions": [{**_TIMES, **each} for each in status["conditions"]]}
    return status


def qos_class(spec: Json) -> str:
    """Return the QoS class of a Pod: BestEffort, Burstable or Guaranteed."""
    amounts = [_amounts(each) for field in _CONTAINERS[:2] for each in spec.get(field, [])]
    if not any(requests or limits for requests, limits in amounts):
        return "BestEffort"
    equal = all(len(limits) == len(_COMPUTE) and requests == limits for requests, limits in amounts)
    return "Guaranteed" if equal else "Burstable"


def _amounts(container: Json) -> tuple[Json, Json]:
    resources = container.get("resources", {})
    limits = _nonzero(resources.get("limits", {}))
    return {**limits, **_nonzero(resources.get("requests", {}))}, limits


def _nonzero(amounts: Json) -> Json:
    return {
        name: amounts[name]
        for name in _COMPUTE
        if name in amounts and quantities.parse(amounts[name]).value
    }


def _container(container_in: Json) -> Json:
    container = {**_CONTAINER, **container_in}
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
    container.setdefault("resources", {})
    if "ports" in container:
        container["ports"] = [
            {**port, "protocol": port.get("protocol", "TCP")} for port in container["ports"]
        ]
    if "env" in container:
        container["env"] = [_variable(each) for each in container["env"]]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            container[probe] = _probe(container[probe])
    return container


def _request_limits(container: Json) -> None:
    resources = container["resources"]
    if resources.get("limits"):
        requests = {**resources["limits"], **resources.get("requests", {})}
        container["resources"] = {**resources, "requests": requests}


def _pull_policy(image: str) -> str:
    name = image.rpartition("/")[2]
    tag = name.partition(":")[2] if "@" not in name else name
    return "Always" if tag in {"", "latest"} else "IfNotPresent"


def _variable(env: Json) -> Json:
    return {**env, "valueFrom": _referring(env["valueFrom"])} if "valueFrom" in env else env


def _referring(source: Json) -> Json:
    """Return a value source with the defaults of its field or resource reference."""
    filled = {name: {**_REFERENCES[name], **source[name]} for name in _REFERENCES if name in source}
    return {**source, **filled} if filled else source


def _probe(probe_in: Json) -> Json:
    probe = {**_PROBE, **probe_in}
    if "httpGet" in probe:
        probe["httpGet"] = {"path": "/", "scheme": "HTTP", **probe["httpGet"]}
    return probe


def _volume(volume_in: Json) -> Json:
    volume = dict(volume_in)
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if source in volume:
            volume[source] = {"defaultMode": 0o644, **volume[source]}
    if "hostPath" in volume:
        volume["hostPath"] = {"type": "", **volume["hostPath"]}
    if not volume.keys() - {"name"}:
        volume["emptyDir"] = {}
    if "items" in volume.get("downwardAPI", {}):
        volume["downwardAPI"]["items"] = _downward(volume["downwardAPI"]["items"])
    if "sources" in volume.get("projected", {}):
        sources = [_projection(each) for each in volume["projected"]["sources"]]
        volume["projected"] = {**volume["projected"], "sources": sources}
    return volume


def _projection(source: Json) -> Json:
    if "items" in source.get("downwardAPI", {}):
        items = _downward(source["downwardAPI"]["items"])
        source = {**source, "downwardAPI": {**source["downwardAPI"], "items": items}}
    if "serviceAccountToken" not in source:
        return source
    return {
        **source,
        "serviceAccountToken": {"expirationSeconds": 3600, **source["serviceAccountToken"]},
    }


def _downward(items: list[Json]) -> list[Json]:
    return [_referring(each) for each in items]


def _added_tolerations(spec: Json, outage: timedelta) -> Iterator[Json]:
    existing = spec.get("tolerations", [])
    for key in _TOLERATED:
        if not any(_tolerates(each, key) for each in existing):
            yield {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": int(outage.total_seconds()),
            }


def _tolerates(toleration: Json, key: str) -> bool:
    everything = not toleration.get("key") and toleration.get("operator") == "Exists"
    return (everything or toleration.get("key") == key) and toleration.get(
        "effect", "NoExecute"
    ) == "NoExecute"
