"""What a variable may take from the Pod itself: its fields, and the amounts of its resources. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from bramley.agent.pods import fields
from bramley.api import quantities
from bramley.api.pod import Pod, Quantity, ResourceFieldSelector
from bramley.base import errors

ADDRESSES = frozenset({"status.podIP", "status.podIPs"})
_KEYED = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class Unresolved(errors.BramleyError):
    """A variable has no value now; it may have one once the object that it comes from is there, or may be read."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a Pod runs: the Node, the host's address or name, and what the Node can give to Pods."""

    node: str
    host: str = ""
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)


def of_field(path: str, pod: Pod, place: Place, *, told: str) -> str | None:
    """Return a field of the Pod; None while it is not known, Unresolved if guests cannot have it."""
    keyed = _KEYED.fullmatch(path)
    if keyed is not None:
        part, key = keyed.groups()
        values = pod.metadata.labels if part == "labels" else pod.metadata.annotations
        return values.get(key, "")
    known = _fields(pod, place)
    if path not in known:
        raise Unresolved(f"{told}: field {path} is none that a guest can have")
    return known[path] or (None if path in ADDRESSES else "")


def of_resource(asked: ResourceFieldSelector, pod: Pod, place: Place, *, told: str) -> str:
    """Return an amount of the container's resources in units of the divisor, rounded up."""
    container = fields.container(pod)
    if asked.container_name not in {"", container.name}:
        raise Unresolved(f"{told}: there is no container {asked.container_name}")
    side, _, resource = asked.resource.partition(".")
    given = {"limits": container.resources.limits, "requests": container.resources.requests}
    if side not in given or not resource:
        raise Unresolved(f"{told}: resource {asked.resource} is none that a guest can have")
    # Without a limit a container may take what its Node has, and that is what it is told.
    otherwise = place.allocatable.get(resource, "0") if side == "limits" else "0"
    return _in_units(given[side].get(resource, otherwise), asked.divisor, told)


def _fields(pod: Pod, place: Place) -> Mapping[str, str]:
    addresses = [one.ip for one in pod.status.pod_ips]
    return {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace or "",
        "metadata.uid": pod.uid,
        "spec.nodeName": pod.spec.node_name or place.node,
        "spec.serviceAccountName": fields.service_account(pod),
        "status.hostIP": place.host,
        "status.hostIPs": place.host,
        "status.podIP": pod.status.pod_ip,
        "status.podIPs": ",".join(addresses) or pod.status.pod_ip,
    }


def _in_units(amount: Quantity, divisor: Quantity, told: str) -> str:
    try:
        value = quantities.parse(str(amount)).value
        unit = quantities.parse(str(divisor or "1")).value
    except quantities.NoQuantity as error:
        raise Unresolved(f"{told}: {error} is no quantity") from error
    return str(ceil(value / (unit or 1)))
