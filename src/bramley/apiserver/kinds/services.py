"""Services: their defaults, their rules, and what stays when they are updated. Addresses are given out elsewhere."""

from __future__ import annotations

from bramley.apiserver.apimachinery import causes
from bramley.apiserver.kinds import networking
from bramley.apiserver.registry.resources import Json, SelectableField
from bramley.base.errors import Cause

FIELDS = (
    SelectableField("spec.clusterIP", ("spec", "clusterIP")),
    SelectableField("spec.type", ("spec", "type")),
)
_INSIDE: Json = {
    "internalTrafficPolicy": "Cluster",
    "ipFamilies": ["IPv4"],
    "ipFamilyPolicy": "SingleStack",
}
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def complete(new: Json) -> None:
    """Give a new Service its first status."""
    new["status"] = {"loadBalancer": {}}


def default(new: Json) -> None:
    """Fill what a Service's spec leaves out."""
    spec = {"type": "ClusterIP", "sessionAffinity": "None", **new.get("spec", {})}
    if spec["type"] != "ExternalName":
        # One family of addresses is all that a cluster of one machine has.
        spec = {**_INSIDE, **spec}
    if spec["type"] in {"NodePort", "LoadBalancer"}:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if spec["sessionAffinity"] == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {"clientIP": {"timeoutSeconds": 10800}})
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    if "ports" in spec:
        spec["ports"] = [_port(each) for each in spec["ports"]]
    new["spec"] = spec


def keep(new: Json, old: Json) -> None:
    """Leave a Service its address and the ports that it has on nodes, unless an update says something about them."""
    spec, was = dict(new.get("spec", {})), old["spec"]
    if spec.get("type", "ClusterIP") == "ExternalName":
        for field in ("clusterIP", "clusterIPs"):
            spec.pop(field, None)
    elif not spec.get("clusterIP"):
        spec |= {field: was[field] for field in ("clusterIP", "clusterIPs") if field in was}
    elif spec["clusterIP"] != was.get("clusterIP") and spec.get("clusterIPs") == was.get(
        "clusterIPs"
    ):
        spec["clusterIPs"] = [spec["clusterIP"]]
    if spec.get("type") in {"NodePort", "LoadBalancer"}:
        spec["ports"] = [_kept_port(each, was) for each in spec.get("ports", [])]
    new["spec"] = spec


def _kept_port(port: Json, was: Json) -> Json:
    for each in was.get("ports", []):
        same = (each.get("name"), each.get("port")) == (port.get("name"), port.get("port"))
        if same and "nodePort" in each and not port.get("nodePort"):
            return {**port, "nodePort": each["nodePort"]}
    return port


def check(new: Json) -> list[Cause]:
    """Return what is wrong with a Service."""
    spec = new["spec"]
    found = []
    headless = spec.get("clusterIP") == "None" or spec["type"] == "ExternalName"
    ports = spec.get("ports", [])
    if not ports and not headless:
        found.append(causes.required("spec.ports"))
    if spec["type"] == "ExternalName" and not spec.get("externalName"):
        found.append(causes.required("spec.externalName"))
    if spec["type"] not in _TYPES:
        found.append(causes.unsupported("spec.type", spec["type"], _TYPES))
    for index, address in enumerate(spec.get("clusterIPs", [])):
        if address != "None":
            found += networking.wrong_address(address, f"spec.clusterIPs[{index}]")
    for index, port in enumerate(ports):
        found += _wrong_port(port, f"spec.ports[{index}]")
        if len(ports) > 1 and not port.get("name"):
            found.append(causes.required(f"spec.ports[{index}].name"))
    return found


def check_change(new: Json, old: Json) -> list[Cause]:
    """Return what an update of a Service may not do."""
    was, now = old["spec"].get("clusterIPs", []), new["spec"].get("clusterIPs", [])
    if not was or new["spec"]["type"] == "ExternalName" or was[:1] == now[:1]:
        return []
    return [causes.invalid("spec.clusterIPs[0]", now, "may not change once set")]


def _wrong_port(port: Json, field: str) -> list[Cause]:
    detail = "must be between 1 and 65535, inclusive"
    numbers = {"port": port.get("port", 0), "targetPort": port["targetPort"]}
    return [
        causes.invalid(f"{field}.{name}", number, detail)
        for name, number in numbers.items()
        if isinstance(number, int) and not 1 <= number <= 65535
    ]


def _port(given: Json) -> Json:
    port = {**given, "protocol": given.get("protocol", "TCP")}
    if not port.get("targetPort"):
        port["targetPort"] = port.get("port", 0)
    return port
