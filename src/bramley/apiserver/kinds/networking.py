"""Services, endpoints, Ingresses and NetworkPolicies: stored and defaulted; nothing here routes traffic."""

from __future__ import annotations

import ipaddress

from bramley.apiserver.apimachinery import causes, names
from bramley.apiserver.kinds.definitions import immutable, initial_status, kind
from bramley.apiserver.registry.resources import Json, SelectableField, Strategy
from bramley.base.errors import Cause

GROUP = "networking.k8s.io"
SERVICE_FIELDS = (
    SelectableField("spec.clusterIP", ("spec", "clusterIP")),
    SelectableField("spec.type", ("spec", "type")),
)
_CLUSTER_DEFAULTS: Json = {
    "internalTrafficPolicy": "Cluster",
    "ipFamilies": ["IPv4"],
    "ipFamilyPolicy": "SingleStack",
}
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_NOT_AN_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def default_service(new: Json) -> None:
    """Set the defaults of a Service's spec."""
    spec = {"type": "ClusterIP", "sessionAffinity": "None", **new.get("spec", {})}
    if spec["type"] != "ExternalName":
        # The cluster has one address family.
        spec = {**_CLUSTER_DEFAULTS, **spec}
    if spec["type"] in {"NodePort", "LoadBalancer"}:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if spec["sessionAffinity"] == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {"clientIP": {"timeoutSeconds": 10800}})
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    if "ports" in spec:
        spec["ports"] = [_with_target_port(each) for each in spec["ports"]]
    new["spec"] = spec


def keep_addresses(new: Json, old: Json) -> None:
    """Keep the cluster IP and the node ports of a Service unless an update sets them."""
    spec, before = dict(new.get("spec", {})), old["spec"]
    if spec.get("type", "ClusterIP") == "ExternalName":
        for field in ("clusterIP", "clusterIPs"):
            spec.pop(field, None)
    elif not spec.get("clusterIP"):
        spec |= {field: before[field] for field in ("clusterIP", "clusterIPs") if field in before}
    elif spec["clusterIP"] != before.get("clusterIP") and spec.get("clusterIPs") == before.get(
        "clusterIPs"
    ):
        spec["clusterIPs"] = [spec["clusterIP"]]
    if spec.get("type") in {"NodePort", "LoadBalancer"}:
        spec["ports"] = [_kept_port(each, before) for each in spec.get("ports", [])]
    new["spec"] = spec


def _kept_port(port: Json, before: Json) -> Json:
    for each in before.get("ports", []):
        same = (each.get("name"), each.get("port")) == (port.get("name"), port.get("port"))
        if same and "nodePort" in each and not port.get("nodePort"):
            return {**port, "nodePort": each["nodePort"]}
    return port


def check_service(new: Json) -> list[Cause]:
    """Return what is wrong with a Service."""
    spec = new["spec"]
    errors = []
    headless = spec.get("clusterIP") == "None" or spec["type"] == "ExternalName"
    ports = spec.get("ports", [])
    if not ports and not headless:
        errors.append(causes.required("spec.ports"))
    if spec["type"] == "ExternalName" and not spec.get("externalName"):
        errors.append(causes.required("spec.externalName"))
    errors += causes.not_one_of("spec.type", spec["type"], _SERVICE_TYPES)
    for index, address in enumerate(spec.get("clusterIPs", [])):
        if address != "None":
            errors += _validate_address(address, f"spec.clusterIPs[{index}]")
    for index, port in enumerate(ports):
        errors += _validate_port(port, f"spec.ports[{index}]")
        if len(ports) > 1:
            errors += causes.missing(port, ("name",), f"spec.ports[{index}]")
    return errors


def check_service_change(new: Json, old: Json) -> list[Cause]:
    """Return what is wrong with an update of a Service."""
    old_ips, new_ips = old["spec"].get("clusterIPs", []), new["spec"].get("clusterIPs", [])
    if not old_ips or new["spec"]["type"] == "ExternalName" or old_ips[:1] == new_ips[:1]:
        return []
    return [causes.invalid("spec.clusterIPs[0]", new_ips, "may not change once set")]


def _validate_port(port: Json, field: str) -> list[Cause]:
    detail = "must be between 1 and 65535, inclusive"
    numbers = {"port": port.get("port", 0), "targetPort": port["targetPort"]}
    return [
        causes.invalid(f"{field}.{name}", number, detail)
        for name, number in numbers.items()
        if isinstance(number, int) and not 1 <= number <= 65535
    ]


def _with_target_port(port_in: Json) -> Json:
    port = {**port_in, "protocol": port_in.get("protocol", "TCP")}
    if not port.get("targetPort"):
        port["targetPort"] = port.get("port", 0)
    return port


def _validate_address(text: str, field: str) -> list[Cause]:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return [causes.invalid(field, text, _NOT_AN_ADDRESS)]
    return []


def check_ingress(new: Json) -> list[Cause]:
    """Return what is wrong with an Ingress."""
    spec = new.get("spec", {})
    if not spec.get("rules") and not spec.get("defaultBackend"):
        detail = "either `defaultBackend` or `rules` must be specified"
        return [causes.invalid("spec", None, detail)]
    return [
        causes.required(
            f"spec.rules[{outer}].http.paths[{inner}].pathType", "pathType must be specified"
        )
        for outer, rule in enumerate(spec.get("rules", []))
        for inner, path in enumerate(rule.get("http", {}).get("paths", []))
        if not path.get("pathType")
    ]


def default_policy(new: Json) -> None:
    """Set the defaults of a NetworkPolicy."""
    spec = {"podSelector": {}, **new.get("spec", {})}
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for field in ("ingress", "egress"):
        if field in spec:
            spec[field] = [_with_protocol(each) for each in spec[field]]
    new["spec"] = spec


def _with_protocol(rule: Json) -> Json:
    if "ports" not in rule:
        return rule
    return {**rule, "ports": [{"protocol": "TCP", **port} for port in rule["ports"]]}


def default_endpoints(new: Json) -> None:
    """Set the defaults of Endpoints."""
    if "subsets" in new:
        new["subsets"] = [_with_protocol(each) for each in new["subsets"]]


def check_endpoints(new: Json) -> list[Cause]:
    """Return what is wrong with Endpoints."""
    errors: list[Cause] = []
    for outer, subset in enumerate(new.get("subsets", [])):
        for part in ("addresses", "notReadyAddresses"):
            for inner, each in enumerate(subset.get(part, [])):
                field, address = f"subsets[{outer}].{part}[{inner}].ip", each.get("ip", "")
                if wrong := _validate_address(address, field):
                    # kube-apiserver checks the address twice and reports both.
                    errors += [*wrong, causes.invalid(field, address, "must be a valid IP address")]
    return errors


def default_slice(new: Json) -> None:
    """Set the defaults of an EndpointSlice."""
    ports = new.get("ports")
    if ports is not None:
        ports = [{"name": "", "protocol": "TCP", **port} for port in ports]
    new["ports"] = ports
    endpoints = new.get("endpoints")
    if endpoints is not None:
        endpoints = [{**each, "conditions": each.get("conditions", {})} for each in endpoints]
    new["endpoints"] = endpoints
    new.setdefault("addressType", "")


def check_slice(new: Json) -> list[Cause]:
    """Return what is wrong with an EndpointSlice."""
    kind = new["addressType"]
    if not kind:
        return [causes.required("addressType")]
    return causes.not_one_of("addressType", kind, _ADDRESS_TYPES)


KINDS = (
    kind(
        "Service",
        short_names=("svc",),
        categories=("all",),
        has_status=True,
        selectable=SERVICE_FIELDS,
        strategy=Strategy(
            name=names.dns1035_label,
            prepare_for_create=initial_status(loadBalancer={}),
            default=default_service,
            prepare_for_update=keep_addresses,
            validate=check_service,
            validate_update=check_service_change,
            returns_deleted=True,
            create_on_update=True,
        ),
    ),
    kind(
        "Endpoints",
        plural="endpoints",
        short_names=("ep",),
        strategy=Strategy(
            default=default_endpoints,
            validate=check_endpoints,
            create_on_update=True,
            warning="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
    ),
    kind(
        "EndpointSlice",
        group="discovery.k8s.io",
        strategy=Strategy(
            shape="discovery.v1.EndpointSlice",
            default=default_slice,
            validate=check_slice,
            validate_update=immutable("addressType"),
            counts_generation=True,
        ),
    ),
    kind(
        "Ingress",
        group=GROUP,
        plural="ingresses",
        short_names=("ing",),
        has_status=True,
        strategy=Strategy(
            prepare_for_create=initial_status(loadBalancer={}),
            validate=check_ingress,
            counts_generation=True,
        ),
    ),
    kind(
        "IngressClass",
        group=GROUP,
        plural="ingressclasses",
        namespaced=False,
        strategy=Strategy(counts_generation=True),
    ),
    kind(
        "NetworkPolicy",
        group=GROUP,
        plural="networkpolicies",
        short_names=("netpol",),
        strategy=Strategy(default=default_policy, counts_generation=True),
    ),
)
