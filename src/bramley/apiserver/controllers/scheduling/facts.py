"""What scheduling needs to know of one Pod, read out of it once: frozen, small and ready to be compared with Nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Address

import msgspec

from bramley.api.core import Pod
from bramley.api.pod import (
    Affinity,
    Container,
    NodeAffinity,
    NodeSelector,
    PodAffinity,
    PreferredSchedulingTerm,
    Toleration,
)
from bramley.apiserver.controllers.scheduling import requests
from bramley.apiserver.controllers.scheduling.matching import Term
from bramley.runtime.keys import Key, key_of

# Said by its number: it is what a port is compared with, and nothing here listens on it.
ANY_ADDRESS = str(IPv4Address(0))
_NO_TIME = datetime(1, 1, 1, tzinfo=UTC)

Port = tuple[str, str, int]


@dataclass(frozen=True, slots=True, eq=False)
class PodFacts:
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
    likeness: bytes = b""
    guarding: bytes = b""

    @property
    def namespace(self) -> str:
        """Return the Pod's namespace."""
        return self.key.namespace

    @property
    def has_neighbour_terms(self) -> bool:
        """Tell whether other Pods decide where this one may go."""
        return bool(self.near or self.apart)


def of(pod: Pod) -> PodFacts:
    """Read out what scheduling needs."""
    spec, metadata = pod.spec, pod.metadata
    affinity = spec.affinity or Affinity()
    nodes = affinity.node_affinity or NodeAffinity()
    namespace = metadata.namespace or ""
    attract = affinity.pod_affinity or PodAffinity()
    repel = affinity.pod_anti_affinity or PodAffinity()
    asks = tuple((name, amount) for name, amount in requests.of_pod(spec).items() if amount > 0)
    return PodFacts(
        key=key_of(pod),
        uid=metadata.uid,
        labels=metadata.labels,
        priority=spec.priority or 0,
        created=metadata.creation_timestamp or _NO_TIME,
        asks=asks,
        floor=requests.floor_of_pod(spec),
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
        likeness=_likeness(pod, asks),
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


def _likeness(pod: Pod, asks: tuple[tuple[str, int], ...]) -> bytes:
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
