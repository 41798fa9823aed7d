"""What scheduling needs to know of one Pod, read out of it once: frozen, small and ready to be compared with Nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import IPv4Address
from math import ceil

import msgspec

from bramley.api import quantities
from bramley.api.core import Pod
from bramley.api.pod import (
    Affinity,
    Container,
    NodeAffinity,
    NodeSelector,
    PodAffinity,
    PodSpec,
    PreferredSchedulingTerm,
    Quantity,
    Toleration,
)
from bramley.apiserver.controllers.scheduling.affinity import Term
from bramley.runtime.keys import Key, key_of

Amounts = dict[str, int]

# What scoring takes a container for that says nothing, so that many of those do not all end on one Node.
_FLOOR: Mapping[str, int] = {"cpu": 100, "memory": 200 * 1024 * 1024}
_OF_PODS = ("cpu", "memory")


def parse_amounts(given: Mapping[str, Quantity]) -> Amounts:
    """Return the amounts as whole numbers, rounded up; what is no quantity counts as nothing."""
    return {name: _amount(name == "cpu", str(value)) for name, value in given.items()}


@lru_cache(maxsize=1024)
def _amount(is_cpu: bool, text: str) -> int:  # noqa: FBT001 - a cache key
    try:
        value = quantities.parse(text).value
    except quantities.NoQuantity:
        return 0
    return ceil(value * 1000) if is_cpu else ceil(value)


def pod_requests(spec: PodSpec) -> Amounts:
    """Return what must be free on a Node for the Pod."""
    return _total(spec, lambda container: parse_amounts(container.resources.requests))


def nonzero_requests(spec: PodSpec) -> tuple[int, int]:
    """Return the CPU and memory that scoring takes the Pod for."""
    total = _total(
        spec, lambda container: {**_FLOOR, **parse_amounts(container.resources.requests)}
    )
    return total.get("cpu", 0), total.get("memory", 0)


def _total(spec: PodSpec, of: Callable[[Container], Amounts]) -> Amounts:
    total: Amounts = {}
    for container in spec.containers:
        _add(total, of(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            _add(total, of(container))
            _add(sidecars, of(container))
            _raise_to(peak, sidecars)
        else:
            _raise_to(peak, _sum(sidecars, of(container)))
    _raise_to(total, peak)
    if spec.resources is not None:
        own = parse_amounts(spec.resources.requests)
        total |= {name: own[name] for name in _OF_PODS if name in own}
    _add(total, parse_amounts(spec.overhead))
    return total


def _sum(one: Amounts, other: Amounts) -> Amounts:
    total = dict(one)
    _add(total, other)
    return total


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Amounts, least: Amounts) -> None:
    for name, amount in least.items():
        total[name] = max(total.get(name, 0), amount)


# Said by its number: it is what a port is compared with, and nothing here listens on it.
ANY_ADDRESS = str(IPv4Address(0))
_NO_TIME = datetime(1, 1, 1, tzinfo=UTC)

Port = tuple[str, str, int]


@dataclass(frozen=True, slots=True, eq=False)
class PodInfo:
    """One Pod as the scheduler sees it."""

    key: Key
    uid: str
    labels: Mapping[str, str]
    priority: int
    created: datetime
    asks: tuple[tuple[str, int], ...]
    floor: tuple[int, int]
    ports: tuple[Port, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_selector: Mapping[str, str] | None = None
    required: NodeSelector | None = None
    preferred: tuple[PreferredSchedulingTerm, ...] = ()
    near: tuple[Term, ...] = ()
    apart: tuple[Term, ...] = ()
    # Wishes about neighbours: the weight of a term counts against a Node when it is negative.
    wishes: tuple[tuple[int, Term], ...] = ()
    preempts: bool = True
    nominated: str = ""
    deleting: bool = False
    # Equal for Pods that any scheduler must treat alike; and equal for Pods that keep the same others away.
    equivalence_key: bytes = b""
    guarding: bytes = b""

    @property
    def namespace(self) -> str:
        """Return the Pod's namespace."""
        return self.key.namespace

    @property
    def has_neighbour_terms(self) -> bool:
        """Tell whether other Pods decide where this one may go."""
        return bool(self.near or self.apart)


def of(pod: Pod) -> PodInfo:
    """Read out what scheduling needs."""
    spec, metadata = pod.spec, pod.metadata
    affinity = spec.affinity or Affinity()
    nodes = affinity.node_affinity or NodeAffinity()
    namespace = metadata.namespace or ""
    attract = affinity.pod_affinity or PodAffinity()
    repel = affinity.pod_anti_affinity or PodAffinity()
    asks = tuple((name, amount) for name, amount in pod_requests(spec).items() if amount > 0)
    return PodInfo(
        key=key_of(pod),
        uid=metadata.uid,
        labels=metadata.labels,
        priority=spec.priority or 0,
        created=metadata.creation_timestamp or _NO_TIME,
        asks=asks,
        floor=nonzero_requests(spec),
        ports=tuple(_ports(spec.containers)),
        tolerations=tuple(spec.tolerations),
        node_selector=spec.node_selector or None,
        required=nodes.required,
        preferred=tuple(nodes.preferred),
        near=_terms(attract, namespace),
        apart=_terms(repel, namespace),
        wishes=(*_wishes(attract, namespace, sign=1), *_wishes(repel, namespace, sign=-1)),
        preempts=spec.preemption_policy != "Never",
        nominated=pod.status.nominated_node_name,
        deleting=pod.deleting,
        equivalence_key=_equivalence_key(pod, asks),
        guarding=msgspec.json.encode((namespace, repel.required)) if repel.required else b"",
    )


def _terms(wanted: PodAffinity, namespace: str) -> tuple[Term, ...]:
    return tuple(Term.of(each, namespace) for each in wanted.required)


def _wishes(wanted: PodAffinity, namespace: str, *, sign: int) -> Iterable[tuple[int, Term]]:
    for each in wanted.preferred:
        yield sign * each.weight, Term.of(each.pod_affinity_term, namespace)


def _ports(containers: Iterable[Container]) -> Iterable[Port]:
    for container in containers:
        for port in container.ports:
            if port.host_port:
                yield port.host_ip or ANY_ADDRESS, port.protocol or "TCP", port.host_port


def _equivalence_key(pod: Pod, asks: tuple[tuple[str, int], ...]) -> bytes:
    spec, metadata = pod.spec, pod.metadata
    return msgspec.json.encode(
        (
            metadata.namespace,
            metadata.labels,
            asks,
            spec.priority,
            spec.preemption_policy,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            [container.ports for container in spec.containers],
            pod.status.nominated_node_name,
        )
    )
