"""Ingresses, NetworkPolicies, Endpoints and autoscalers: stored and filled in; nothing here routes or scales."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.registry.resources import Json
from bramley.base.errors import Cause

_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_NOT_AN_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_HALF_BUSY: Json = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}


def is_address(text: str) -> bool:
    """Tell whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def wrong_address(text: str, field: str) -> Iterator[Cause]:
    """Yield a breach when a text is no IP address."""
    if not is_address(text):
        yield causes.invalid(field, text, _NOT_AN_ADDRESS)


def complete_ingress(new: Json) -> None:
    """Give a new Ingress its first status."""
    new["status"] = {"loadBalancer": {}}


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
    """Fill what a NetworkPolicy leaves out."""
    spec = {"podSelector": {}, **new.get("spec", {})}
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for field in ("ingress", "egress"):
        if field in spec:
            spec[field] = [_rule(each) for each in spec[field]]
    new["spec"] = spec


def _rule(given: Json) -> Json:
    if "ports" not in given:
        return given
    return {**given, "ports": [{"protocol": "TCP", **port} for port in given["ports"]]}


def default_endpoints(new: Json) -> None:
    """Fill what Endpoints leave out."""
    if "subsets" in new:
        new["subsets"] = [_rule(each) for each in new["subsets"]]


def check_endpoints(new: Json) -> list[Cause]:
    """Return what is wrong with Endpoints."""
    found: list[Cause] = []
    for outer, subset in enumerate(new.get("subsets", [])):
        for part in ("addresses", "notReadyAddresses"):
            for inner, each in enumerate(subset.get(part, [])):
                field, address = f"subsets[{outer}].{part}[{inner}].ip", each.get("ip", "")
                found += wrong_address(address, field)
                if not is_address(address):
                    # A real server looks twice and says so.
                    found.append(causes.invalid(field, address, "must be a valid IP address"))
    return found


def default_slice(new: Json) -> None:
    """Fill what an EndpointSlice leaves out."""
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
    if kind not in _ADDRESS_TYPES:
        return [causes.unsupported("addressType", kind, _ADDRESS_TYPES)]
    return []


def check_slice_change(new: Json, old: Json) -> list[Cause]:
    """Return what an update of an EndpointSlice may not do."""
    kind = new["addressType"]
    if kind == old["addressType"]:
        return []
    return [causes.invalid("addressType", kind, "field is immutable")]


def complete_scaler(new: Json) -> None:
    """Give a new autoscaler its first status."""
    new["status"] = {"currentMetrics": None, "desiredReplicas": 0}


def default_scaler(new: Json) -> None:
    """Fill what an autoscaler leaves out."""
    spec = {"minReplicas": 1, "maxReplicas": 0, "scaleTargetRef": {}, **new.get("spec", {})}
    if not spec.get("metrics"):
        spec["metrics"] = [_HALF_BUSY]
    new["spec"] = spec
    new["status"] = {"currentMetrics": None, "desiredReplicas": 0, **new.get("status", {})}


def check_scaler(new: Json) -> list[Cause]:
    """Return what is wrong with an autoscaler."""
    spec = new["spec"]
    least, most, reference = spec["minReplicas"], spec["maxReplicas"], spec["scaleTargetRef"]
    found = []
    if least < 1:
        found.append(
            causes.invalid("spec.minReplicas", least, "must be greater than or equal to 1")
        )
    if most < 1:
        found.append(causes.invalid("spec.maxReplicas", most, "must be greater than 0"))
    if most < least:
        detail = "must be greater than or equal to `minReplicas`"
        found.append(causes.invalid("spec.maxReplicas", most, detail))
    field = "spec.scaleTargetRef"
    found += [
        causes.required(f"{field}.{name}") for name in ("kind", "name") if not reference.get(name)
    ]
    version = reference.get("apiVersion", "")
    if not version.partition("/")[0] or (
        version == "v1" and reference.get("kind") != "ReplicationController"
    ):
        detail = "apiVersion must specify API group"
        found.append(causes.invalid(f"{field}.apiVersion", version, detail))
    return found
