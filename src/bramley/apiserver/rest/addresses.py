"""Addresses and ports of Services: each new one gets what no other has, although nothing here forwards to it."""

from __future__ import annotations

import ipaddress

from bramley.apiserver.apimachinery import causes, status
from bramley.apiserver.registry.resources import Json, ServedResource
from bramley.apiserver.rest.server import Server, decoded
from bramley.base.errors import Cause

_FIELD = "spec.clusterIP"
_NODE_PORTS = range(30000, 32768)
_LEAST_KEPT, _MOST_KEPT = 16, 256


def completed(server: Server, resource: ServedResource, new: Json) -> Json:
    """Return a new Service with an address, and with ports on nodes if it is of a type that has them."""
    spec = dict(new["spec"])
    if spec["type"] == "ExternalName" or spec.get("clusterIP") == "None":
        return new
    asked = spec.get("clusterIP", "")
    address = _given(server, resource, new, asked=asked) if asked else _free(server)
    spec["clusterIP"], spec["clusterIPs"] = address, [address]
    if spec["type"] in {"NodePort", "LoadBalancer"}:
        spec["ports"] = _on_nodes(server, spec["ports"])
    return {**new, "spec": spec}


def first(server: Server) -> str:
    """Return the address that is the API's own."""
    return str(_range(server)[1])


def _taken(server: Server) -> set[str]:
    return {each.fields.get(_FIELD, "") for each in server.store.list_with_pending("services")}


def _given(server: Server, resource: ServedResource, new: Json, *, asked: str) -> str:
    why = ""
    if ipaddress.ip_address(asked) not in _range(server):
        why = "the provided network does not match the current range"
    elif asked in _taken(server):
        why = "provided IP is already allocated"
    if not why:
        return asked
    shown = causes.shown([asked])
    message = f"Invalid value: {shown}: failed to allocate IP {asked}: {why}"
    wrong = Cause("spec.clusterIPs", "FieldValueInvalid", message)
    raise status.invalid(resource.kind_details(new["metadata"]["name"]), [wrong])


def _range(server: Server) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(server.settings.service_range)


def _free(server: Server) -> str:
    taken, network = _taken(server), _range(server)
    # The first address is the API's own.
    hosts = [str(each) for each in network.hosts()][1:]
    kept = _kept_for_people(network.num_addresses)
    for band in (hosts[kept:], hosts[:kept]):
        if left := [each for each in band if each not in taken]:
            return server.chance.choice(left)
    raise status.internal("failed to allocate a serviceIP: range is full")


def _kept_for_people(size: int) -> int:
    """Return how many addresses at the low end are drawn last, so that those who choose one find it free."""
    return 0 if size <= _LEAST_KEPT else min(max(_LEAST_KEPT, size // 16), _MOST_KEPT)


def _on_nodes(server: Server, ports: list[Json]) -> list[Json]:
    used = _used_ports(server)
    given = []
    for port in ports:
        free = [each for each in _NODE_PORTS if each not in used]
        number = port.get("nodePort") or server.chance.choice(free)
        used.add(number)
        given.append({**port, "nodePort": number})
    return given


def _used_ports(server: Server) -> set[int]:
    used: set[int] = set()
    for each in server.store.list_with_pending("services"):
        with server.store.damage.skip_unreadable(each):
            used.update(port.get("nodePort", 0) for port in decoded(each)["spec"].get("ports", []))
    return used
