"""The rows of Services, endpoints, Ingresses, network policies and addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from bramley.apiserver.tables.cells import (
    NONE,
    UNSET,
    Json,
    Row,
    age,
    at,
    computed,
    find,
    joined,
    labels,
    name,
    row,
    selector,
    shortened,
)

_SHOWN = 3
_WITHOUT_BALANCER = frozenset({"ClusterIP", "NodePort"})


def _cluster_ip(service: Json) -> str:
    addresses = find(service, "spec.clusterIPs") or [find(service, "spec.clusterIP")]
    return addresses[0] or NONE


def _external_ip(service: Json) -> str:
    type = find(service, "spec.type")
    own = find(service, "spec.externalIPs") or []
    if type in _WITHOUT_BALANCER:
        return ",".join(own) or NONE
    if type == "LoadBalancer":
        return ",".join([*_balancers(service), *own]) or "<pending>"
    if type == "ExternalName":
        return find(service, "spec.externalName") or ""
    return "<unknown>"


def _balancers(shown: Json) -> list[str]:
    found = find(shown, "status.loadBalancer.ingress") or ()
    addresses = {each.get("ip") or each.get("hostname") or "" for each in found}
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


def _slice_ports(one: Json) -> str:
    ports = [str(each.get("port", each.get("name", "*"))) for each in one.get("ports") or ()]
    return shortened(ports, _SHOWN) or UNSET


def _slice_endpoints(one: Json) -> str:
    found = [each for end in one.get("endpoints") or () for each in end.get("addresses") or ()]
    return shortened(found, _SHOWN) or UNSET


def _hosts(ingress: Json) -> str:
    rules = find(ingress, "spec.rules") or []
    hosts: list[str] = []
    for rule in rules:
        if len(hosts) == _SHOWN:
            return f"{','.join(hosts)} + {len(rules) - _SHOWN} more..."
        hosts += [rule["host"]] if rule.get("host") else []
    return ",".join(hosts) or "*"


def _parameters(ingress_class: Json) -> str:
    given = find(ingress_class, "spec.parameters")
    if given is None:
        return NONE
    group = f".{given['apiGroup']}" if given.get("apiGroup") is not None else ""
    return f"{given.get('kind', '')}{group}/{given.get('name', '')}"


def _parent(address: Json) -> str:
    parent = find(address, "spec.parentRef")
    if parent is None:
        return NONE
    group = f".{parent['group']}" if parent.get("group") else ""
    kind = f"{parent.get('resource', '')}{group}".lower()
    return "/".join(filter(None, [kind, parent.get("namespace"), parent.get("name")]))


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "services": row(
            name,
            at("spec.type"),
            computed(_cluster_ip),
            computed(_external_ip),
            computed(_service_ports),
            age,
            labels("spec.selector"),
        ),
        "endpoints": row(name, computed(_endpoints), age),
        "endpointslices.discovery.k8s.io": row(
            name, at("addressType"), computed(_slice_ports), computed(_slice_endpoints), age
        ),
        "ingresses.networking.k8s.io": row(
            name,
            at("spec.ingressClassName", NONE),
            computed(_hosts),
            computed(lambda shown: ",".join(_balancers(shown))),
            computed(lambda shown: "80, 443" if find(shown, "spec.tls") else "80"),
            age,
        ),
        "ingressclasses.networking.k8s.io": row(
            name, at("spec.controller"), computed(_parameters), age
        ),
        "networkpolicies.networking.k8s.io": row(name, selector("spec.podSelector"), age),
        "ipaddresses.networking.k8s.io": row(name, computed(_parent), age),
        "servicecidrs.networking.k8s.io": row(name, joined("spec.cidrs"), age),
    }
)
