"""`NodeInfo`: one Node as the scheduler sees it, with its Pods and their total requests, updated change by change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from bramley.api.core import Node, Taint
from bramley.apiserver.controllers.scheduling.pod_info import (
    ANY_ADDRESS,
    PodInfo,
    Port,
    parse_amounts,
)

_HARD_EFFECTS = ("NoSchedule", "NoExecute")


class NodeInfo:
    """A Node and the Pods on it; while the Node itself is unknown it only holds the Pods."""

    __slots__ = (
        "allocatable",
        "exists",
        "labels",
        "max_pods",
        "name",
        "nonzero_cpu",
        "nonzero_memory",
        "pods",
        "ports",
        "requested",
        "soft_taints",
        "taints",
        "unschedulable",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.exists = False
        self.labels: Mapping[str, str] = {}
        self.taints: tuple[Taint, ...] = ()
        self.soft_taints: tuple[Taint, ...] = ()
        self.unschedulable = False
        self.allocatable: dict[str, int] = {}
        self.max_pods = 0
        self.pods: dict[str, PodInfo] = {}
        self.requested: dict[str, int] = {}
        self.nonzero_cpu = self.nonzero_memory = 0
        self.ports: Counter[Port] = Counter()

    def set_node(self, node: Node) -> None:
        """Set labels, taints and allocatable resources from the Node."""
        self.exists = True
        self.labels = node.metadata.labels
        self.taints = tuple(each for each in node.spec.taints if each.effect in _HARD_EFFECTS)
        self.soft_taints = tuple(
            each for each in node.spec.taints if each.effect == "PreferNoSchedule"
        )
        self.unschedulable = node.spec.unschedulable
        self.allocatable = parse_amounts(node.status.allocatable or node.status.capacity)
        self.max_pods = self.allocatable.pop("pods", 0)

    def add_pod(self, pod: PodInfo) -> None:
        """Count the Pod on this Node."""
        self.pods[pod.uid] = pod
        self._count(pod, 1)

    def remove_pod(self, uid: str) -> PodInfo | None:
        """Stop counting the Pod and return it."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._count(pod, -1)
        return pod

    def copy(self, *, without: Collection[str] = (), plus: Iterable[PodInfo] = ()) -> NodeInfo:
        """Return a copy as it would be with some Pods removed and others added."""
        copy = NodeInfo(self.name)
        for field in ("exists", "labels", "taints", "soft_taints", "unschedulable", "allocatable"):
            setattr(copy, field, getattr(self, field))
        copy.max_pods = self.max_pods
        for uid, pod in self.pods.items():
            if uid not in without:
                copy.add_pod(pod)
        for pod in plus:
            copy.add_pod(pod)
        return copy

    def has_port_conflict(self, port: Port) -> bool:
        """Return whether a Pod on this Node uses the same host port."""
        address, protocol, number = port
        if address != ANY_ADDRESS:
            anywhere = (ANY_ADDRESS, protocol, number)
            return self.ports[port] > 0 or self.ports[anywhere] > 0
        return any(
            count > 0 and used[1:] == (protocol, number) for used, count in self.ports.items()
        )

    def _count(self, pod: PodInfo, sign: int) -> None:
        for name, amount in pod.requests:
            self.requested[name] = self.requested.get(name, 0) + sign * amount
        self.nonzero_cpu += sign * pod.nonzero_requests[0]
        self.nonzero_memory += sign * pod.nonzero_requests[1]
        for port in pod.ports:
            self.ports[port] += sign
