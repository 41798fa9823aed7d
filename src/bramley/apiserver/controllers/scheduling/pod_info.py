"""`PodInfo`: what the scheduler needs of one Pod, parsed once, and the resources that the Pod requests.

Requests are whole numbers: thousandths of a CPU, bytes, pieces. Containers add up; init containers run one after the other
beside the sidecars that started before them; requests of the Pod itself replace those of its containers; overhead is added.
"""

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
from bramley.apiserver.controllers.scheduling.affinity import AffinityTerm
from bramley.runtime.keys import Key, key_of

# Built from a number: ports are compared with it, and nothing here listens on it.
ANY_ADDRESS = str(IPv4Address(0))
_NO_TIME = datetime(1, 1, 1, tzinfo=UTC)
# Scoring assumes these requests for a container without any, so that many such Pods do not all end on one Node.
_DEFAULT_REQUESTS: Mapping[str, int] = {"cpu": 100, "memory": 200 * 1024 * 1024}
_POD_LEVEL_RESOURCES = ("cpu", "memory")

Port = tuple[str, str, int]
Amounts = dict[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class PodInfo:
    """One Pod as the scheduler sees it."""

    key: Key
    uid: str
    labels: Mapping[str, str]
    priority: int
    created: datetime
    requests: tuple[tuple[str, int], ...]
    # CPU and memory for scoring, with defaults for containers that request nothing.
    nonzero_requests: tuple[int, int]
    ports: tuple[Port, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    node_selector: Mapping[str, str] | None = None
    node_affinity: NodeSelector | None = None
    preferred_node_affinity: tuple[PreferredSchedulingTerm, ...] = ()
    pod_affinity: tuple[AffinityTerm, ...] = ()
    pod_anti_affinity: tuple[AffinityTerm, ...] = ()
    # Weights of preferred anti-affinity are negative.
    preferred_pod_affinity: tuple[tuple[int, AffinityTerm], ...] = ()
    can_preempt: bool = True
    nominated_node: str = ""
    deleting: bool = False
    # Equal for Pods that the scheduler must treat alike.
    equivalence_key: bytes = b""
    # Equal for Pods with the same required anti-affinity.
    anti_affinity_key: bytes = b""

    @classmethod
    def of(cls, pod: Pod) -> PodInfo:
        """Parse a Pod."""
        spec, metadata = pod.spec, pod.metadata
        affinity = spec.affinity or Affinity()
        nodes = affinity.node_affinity or NodeAffinity()
        namespace = metadata.namespace or ""
        attract = affinity.pod_affinity or PodAffinity()
        repel = affinity.pod_anti_affinity or PodAffinity()
        requests = tuple((name, count) for name, count in pod_requests(spec).items() if count > 0)
        return cls(
            key=key_of(pod),
            uid=metadata.uid,
            labels=metadata.labels,
            priority=spec.priority or 0,
            created=metadata.creation_timestamp or _NO_TIME,
            requests=requests,
            nonzero_requests=nonzero_requests(spec),
            ports=tuple(_host_ports(spec.containers)),
            tolerations=tuple(spec.tolerations),
            node_selector=spec.node_selector or None,
            node_affinity=nodes.required,
            preferred_node_affinity=tuple(nodes.preferred),
            pod_affinity=_required_terms(attract, namespace),
            pod_anti_affinity=_required_terms(repel, namespace),
            preferred_pod_affinity=(
                *_preferred_terms(attract, namespace, sign=1),
                *_preferred_terms(repel, namespace, sign=-1),
            ),
            can_preempt=spec.preemption_policy != "Never",
            nominated_node=pod.status.nominated_node_name,
            deleting=pod.deleting,
            equivalence_key=_equivalence_key(pod, requests),
            anti_affinity_key=(
                msgspec.json.encode((namespace, repel.required)) if repel.required else b""
            ),
        )

    @property
    def namespace(self) -> str:
        """Return the Pod's namespace."""
        return self.key.namespace

    @property
    def has_required_pod_affinity(self) -> bool:
        """Return whether the Pod requires affinity or anti-affinity to other Pods."""
        return bool(self.pod_affinity or self.pod_anti_affinity)


def _required_terms(affinity: PodAffinity, namespace: str) -> tuple[AffinityTerm, ...]:
    return tuple(AffinityTerm.of(each, namespace) for each in affinity.required)


def _preferred_terms(
    affinity: PodAffinity, namespace: str, *, sign: int
) -> Iterable[tuple[int, AffinityTerm]]:
    for each in affinity.preferred:
        yield sign * each.weight, AffinityTerm.of(each.pod_affinity_term, namespace)


def _host_ports(containers: Iterable[Container]) -> Iterable[Port]:
    for container in containers:
        for port in container.ports:
            if port.host_port:
                yield port.host_ip or ANY_ADDRESS, port.protocol or "TCP", port.host_port


def _equivalence_key(pod: Pod, requests: tuple[tuple[str, int], ...]) -> bytes:
    spec, metadata = pod.spec, pod.metadata
    return msgspec.json.encode(
        (
            metadata.namespace,
            metadata.labels,
            requests,
            spec.priority,
            spec.preemption_policy,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            [container.ports for container in spec.containers],
            pod.status.nominated_node_name,
        )
    )


def parse_amounts(quantities: Mapping[str, Quantity]) -> Amounts:
    """Return the amounts as whole numbers, rounded up; an invalid quantity counts as zero."""
    return {name: _amount(name == "cpu", str(value)) for name, value in quantities.items()}


@lru_cache(maxsize=1024)
def _amount(is_cpu: bool, text: str) -> int:  # noqa: FBT001 - a cache key
    try:
        value = quantities.parse(text).value
    except quantities.InvalidQuantity:
        return 0
    return ceil(value * 1000) if is_cpu else ceil(value)


def pod_requests(spec: PodSpec) -> Amounts:
    """Return what must be free on a Node for the Pod."""
    return _total(spec, lambda container: parse_amounts(container.resources.requests))


def nonzero_requests(spec: PodSpec) -> tuple[int, int]:
    """Return the CPU and memory that scoring assumes for the Pod."""

    def with_defaults(container: Container) -> Amounts:
        return {**_DEFAULT_REQUESTS, **parse_amounts(container.resources.requests)}

    total = _total(spec, with_defaults)
    return total.get("cpu", 0), total.get("memory", 0)


def _total(spec: PodSpec, requests_of: Callable[[Container], Amounts]) -> Amounts:
    total: Amounts = {}
    for container in spec.containers:
        _add(total, requests_of(container))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            _add(total, requests_of(container))
            _add(sidecars, requests_of(container))
            _raise_to(peak, sidecars)
        else:
            running = dict(sidecars)
            _add(running, requests_of(container))
            _raise_to(peak, running)
    _raise_to(total, peak)
    if spec.resources is not None:
        pod_level = parse_amounts(spec.resources.requests)
        total |= {name: pod_level[name] for name in _POD_LEVEL_RESOURCES if name in pod_level}
    _add(total, parse_amounts(spec.overhead))
    return total


def _add(total: Amounts, amounts: Amounts) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Amounts, least: Amounts) -> None:
    for name, amount in least.items():
        total[name] = max(total.get(name, 0), amount)
