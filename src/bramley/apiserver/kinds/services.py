"""Services: stored with their defaults; no address is given out, because nothing here forwards to one."""

from __future__ import annotations

from bramley.apiserver import causes
from bramley.apiserver.resources import Json, SelectableField
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
    if spec.get("clusterIP") == "None":
        spec["clusterIPs"] = ["None"]
    if "ports" in spec:
        spec["ports"] = [_port(each) for each in spec["ports"]]
    new["spec"] = spec


def check(new: Json) -> list[Cause]:
    """Return what is wrong with a Service."""
    spec = new["spec"]
    found = []
    headless = spec.get("clusterIP") == "None" or spec["type"] == "ExternalName"
    if not spec.get("ports") and not headless:
        found.append(causes.required("spec.ports"))
    if spec["type"] not in _TYPES:
        found.append(causes.unsupported("spec.type", spec["type"], _TYPES))
    for index, port in enumerate(spec.get("ports", [])):
        found += _wrong_port(port, f"spec.ports[{index}]")
    return found


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
