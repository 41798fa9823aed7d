"""The rows of the built-in kinds except Pods and workloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from bramley.apiserver.tables.cells import (
    NONE,
    UNKNOWN,
    UNSET,
    Cell,
    Json,
    Row,
    age,
    at,
    computed,
    condition,
    count,
    find,
    is_condition_true,
    is_terminating,
    joined,
    labels,
    name,
    number,
    row,
    selector,
    shortened,
    text_at,
    time_since,
)

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE = "kubernetes.io/role"
_SHOWN = 3
_WITHOUT_BALANCER = frozenset({"ClusterIP", "NodePort"})
_CLASS = "volume.beta.kubernetes.io/storage-class"
_DEFAULTS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_ADMISSION = "admissionregistration.k8s.io"


def _status(node: Json) -> str:
    ready = "Ready" if is_condition_true(node, "Ready") else "NotReady"
    status = ready if condition(node, "Ready") else "Unknown"
    return f"{status},SchedulingDisabled" if find(node, "spec.unschedulable") else status


def _roles(node: Json) -> str:
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get(_ROLE, ""))
    return ",".join(sorted(roles - {""})) or NONE


def _address(node: Json, type: str) -> str:
    addresses = find(node, "status.addresses") or ()
    return next((each["address"] for each in addresses if each.get("type") == type), NONE)


_NODE = row(
    name,
    computed(_status),
    computed(_roles),
    age,
    "status.nodeInfo.kubeletVersion",
    computed(lambda node: _address(node, "InternalIP")),
    computed(lambda node: _address(node, "ExternalIP")),
    at("status.nodeInfo.osImage", UNKNOWN),
    at("status.nodeInfo.kernelVersion", UNKNOWN),
    at("status.nodeInfo.containerRuntimeVersion", UNKNOWN),
)


def _event(event: Json, now: datetime) -> list[Any]:
    """Return the cells of an event in the form of the core group, in which both groups are stored."""
    first = time_since(event.get("firstTimestamp") or event.get("eventTime"), now)
    series = event.get("series")
    last = time_since(event["lastTimestamp"], now) if event.get("lastTimestamp") else first
    return [
        time_since(series.get("lastObservedTime"), now) if series else last,
        event.get("type", ""),
        event.get("reason", ""),
        _target(event.get("involvedObject") or {}),
        find(event, "involvedObject.fieldPath") or "",
        _source(event),
        (event.get("message") or "").strip(),
        first,
        series.get("count", 0) if series else event.get("count") or 1,
        event["metadata"].get("name", ""),
    ]


def _target(involved: Json) -> str:
    kind = str(involved.get("kind", "")).lower()
    return f"{kind}/{involved['name']}" if involved.get("name") else kind


def _source(event: Json) -> str:
    component = find(event, "source.component") or event.get("reportingComponent") or ""
    instance = find(event, "source.host") or event.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


def _quota(quota: Json, *, of_limits: bool) -> str:
    hard, used = (find(quota, f"status.{each}") or {} for each in ("hard", "used"))
    return ", ".join(
        f"{resource}: {used.get(resource, '0')}/{amount}"
        for resource, amount in sorted(hard.items())
        if resource.startswith("limits.") == of_limits
    )


def _cluster_ip(service: Json) -> str:
    addresses = find(service, "spec.clusterIPs") or [find(service, "spec.clusterIP")]
    return addresses[0] or NONE


def _external_ip(service: Json) -> str:
    type = find(service, "spec.type")
    external_ips = find(service, "spec.externalIPs") or []
    if type in _WITHOUT_BALANCER:
        return ",".join(external_ips) or NONE
    if type == "LoadBalancer":
        return ",".join([*_balancers(service), *external_ips]) or "<pending>"
    if type == "ExternalName":
        return find(service, "spec.externalName") or ""
    return UNKNOWN


def _balancers(service: Json) -> list[str]:
    ingresses = find(service, "status.loadBalancer.ingress") or ()
    addresses = {each.get("ip") or each.get("hostname") or "" for each in ingresses}
    return sorted(addresses - {""})


def _service_ports(service: Json) -> str:
    return ",".join(_service_port(each) for each in find(service, "spec.ports") or ()) or NONE


def _service_port(port: Json) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node_port}/{port.get('protocol', 'TCP')}"


def _addresses(endpoints: Json) -> Iterable[str]:
    for subset in endpoints.get("subsets") or ():
        addresses = [each["ip"] for each in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        if not ports:
            yield from addresses
        for port in ports:
            yield from (_host_port(address, port["port"]) for address in addresses)


def _host_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _endpoints(endpoints: Json) -> str:
    return shortened(_addresses(endpoints), _SHOWN) if endpoints.get("subsets") else NONE


def _slice_ports(body: Json) -> str:
    ports = [str(each.get("port", each.get("name", "*"))) for each in body.get("ports") or ()]
    return shortened(ports, _SHOWN) or UNSET


def _slice_endpoints(body: Json) -> str:
    addresses = [each for end in body.get("endpoints") or () for each in end.get("addresses") or ()]
    return shortened(addresses, _SHOWN) or UNSET


def _hosts(ingress: Json) -> str:
    rules = find(ingress, "spec.rules") or []
    hosts: list[str] = []
    for rule in rules:
        if len(hosts) == _SHOWN:
            return f"{','.join(hosts)} + {len(rules) - _SHOWN} more..."
        hosts += [rule["host"]] if rule.get("host") else []
    return ",".join(hosts) or "*"


def _parameters(ingress_class: Json) -> str:
    parameters = find(ingress_class, "spec.parameters")
    if parameters is None:
        return NONE
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") is not None else ""
    return f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"


def _modes(path: str) -> Cell:
    def cell(body: Json, _now: datetime) -> str:
        modes = find(body, path) or ()
        return ",".join(short for mode, short in _MODES.items() if mode in modes)

    return cell


def _phase(body: Json) -> str:
    return "Terminating" if is_terminating(body) else find(body, "status.phase") or ""


def _class(body: Json) -> str:
    annotations = body["metadata"].get("annotations") or {}
    return annotations.get(_CLASS) or find(body, "spec.storageClassName") or ""


def _claim(volume: Json) -> str:
    claim = find(volume, "spec.claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _if_bound(cell: Cell) -> Cell:
    return lambda claim, now: cell(claim, now) if find(claim, "spec.volumeName") else ""


def _class_name(storage_class: Json) -> str:
    annotations = storage_class["metadata"].get("annotations") or {}
    is_default = any(annotations.get(each) == "true" for each in _DEFAULTS)
    return str(storage_class["metadata"].get("name", "")) + (" (default)" if is_default else "")


def _audiences(driver: Json) -> str:
    requests = find(driver, "spec.tokenRequests")
    return UNSET if requests is None else ",".join(each.get("audience", "") for each in requests)


def _role(binding: Json) -> str:
    reference = binding.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def _subjects(kind: str) -> Cell:
    def cell(binding: Json, _now: datetime) -> str:
        subjects = [each for each in binding.get("subjects") or () if each.get("kind") == kind]
        return ", ".join(_subject(each) for each in subjects)

    return cell


def _subject(subject: Json) -> str:
    is_account = subject["kind"] == "ServiceAccount"
    return f"{subject.get('namespace', '')}/{subject['name']}" if is_account else subject["name"]


_BINDING = row(
    name, computed(_role), age, _subjects("User"), _subjects("Group"), _subjects("ServiceAccount")
)


def _parameter_kind(policy: Json) -> str:
    kind = find(policy, "spec.paramKind")
    return UNSET if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"


def _parameter(binding: Json) -> str:
    reference = find(binding, "spec.paramRef") or {}
    if reference.get("name"):
        return f"{reference.get('namespace') or '*'}/{reference['name']}"
    selector = reference.get("selector")
    return UNSET if selector is None else _go_selector(selector)


def _go_selector(selector: Json) -> str:
    """Return a selector as Go's generated String method prints it."""
    labels = sorted((selector.get("matchLabels") or {}).items())
    texts = "".join(f"{key}: {value}," for key, value in labels)
    others = "".join(
        f"LabelSelectorRequirement{{Key:{each['key']},Operator:{each['operator']},"
        f"Values:[{' '.join(each.get('values') or ())}],}},"
        for each in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{texts}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{others}}},}}"
    )


_WEBHOOKS = row(name, count("webhooks"), age)

ROWS: Mapping[str, Row] = {
    "nodes": _NODE,
    "events": _event,
    "events.events.k8s.io": _event,
    "configmaps": row(name, count("data", "binaryData"), age),
    "secrets": row(name, "type", count("data"), age),
    "serviceaccounts": row(name, count("secrets"), age),
    "namespaces": row(name, "status.phase", age),
    "leases.coordination.k8s.io": row(name, "spec.holderIdentity", age),
    "priorityclasses.scheduling.k8s.io": row(
        name, number("value"), at("globalDefault", absent=False), age, "preemptionPolicy"
    ),
    "runtimeclasses.node.k8s.io": row(name, "handler", age),
    "resourcequotas": row(
        name,
        computed(lambda quota: _quota(quota, of_limits=False)),
        computed(lambda quota: _quota(quota, of_limits=True)),
        age,
    ),
    "services": row(
        name,
        "spec.type",
        computed(_cluster_ip),
        computed(_external_ip),
        computed(_service_ports),
        age,
        labels("spec.selector"),
    ),
    "endpoints": row(name, computed(_endpoints), age),
    "endpointslices.discovery.k8s.io": row(
        name, "addressType", computed(_slice_ports), computed(_slice_endpoints), age
    ),
    "ingresses.networking.k8s.io": row(
        name,
        at("spec.ingressClassName", NONE),
        computed(_hosts),
        computed(lambda body: ",".join(_balancers(body))),
        computed(lambda body: "80, 443" if find(body, "spec.tls") else "80"),
        age,
    ),
    "ingressclasses.networking.k8s.io": row(name, "spec.controller", computed(_parameters), age),
    "networkpolicies.networking.k8s.io": row(name, selector("spec.podSelector"), age),
    "persistentvolumes": row(
        name,
        at("spec.capacity.storage", "0"),
        _modes("spec.accessModes"),
        "spec.persistentVolumeReclaimPolicy",
        computed(_phase),
        computed(_claim),
        computed(_class),
        text_at("spec.volumeAttributesClassName", UNSET),
        "status.reason",
        age,
        text_at("spec.volumeMode", UNSET),
    ),
    "persistentvolumeclaims": row(
        name,
        computed(_phase),
        "spec.volumeName",
        _if_bound(at("status.capacity.storage", "0")),
        _if_bound(_modes("status.accessModes")),
        computed(_class),
        text_at("spec.volumeAttributesClassName", UNSET),
        age,
        text_at("spec.volumeMode", UNSET),
    ),
    "storageclasses.storage.k8s.io": row(
        computed(_class_name),
        "provisioner",
        at("reclaimPolicy", "Delete"),
        at("volumeBindingMode", "Immediate"),
        at("allowVolumeExpansion", absent=False),
        age,
    ),
    "volumeattachments.storage.k8s.io": row(
        name,
        "spec.attacher",
        "spec.source.persistentVolumeName",
        "spec.nodeName",
        at("status.attached", absent=False),
        age,
    ),
    "csinodes.storage.k8s.io": row(name, count("spec.drivers"), age),
    "csidrivers.storage.k8s.io": row(
        name,
        at("spec.attachRequired", absent=True),
        at("spec.podInfoOnMount", absent=False),
        at("spec.storageCapacity", absent=False),
        computed(_audiences),
        at("spec.requiresRepublish", absent=False),
        joined("spec.volumeLifecycleModes", NONE),
        age,
    ),
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
    f"validatingadmissionpolicies.{_ADMISSION}": row(
        name, count("spec.validations"), computed(_parameter_kind), age
    ),
    f"validatingadmissionpolicybindings.{_ADMISSION}": row(
        name, "spec.policyName", computed(_parameter), age
    ),
    f"mutatingwebhookconfigurations.{_ADMISSION}": _WEBHOOKS,
    f"validatingwebhookconfigurations.{_ADMISSION}": _WEBHOOKS,
}
