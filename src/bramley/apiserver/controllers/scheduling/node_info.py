"""One Node as the scheduler sees it: what it offers, what is taken, and by whom. Kept up change by change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from bramley.api.core import Node, Taint
from bramley.apiserver.controllers.scheduling import pod_info
from bramley.apiserver.controllers.scheduling.pod_info import ANY_ADDRESS, PodInfo, Port

_HARD = ("NoSchedule", "NoExecute")


class NodeInfo:
    """A Node and the Pods on it; without a Node it only remembers the Pods."""

    __slots__ = (
        "floor_cpu",
        "floor_memory",
        "is_there",
        "labels",
        "name",
        "offers",
        "pods",
        "ports",
        "slots",
        "soft_taints",
        "taints",
        "unschedulable",
        "used",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_there = False
        self.labels: Mapping[str, str] = {}
        self.taints: tuple[Taint, ...] = ()
        self.soft_taints: tuple[Taint, ...] = ()
        self.unschedulable = False
        self.offers: dict[str, int] = {}
        self.slots = 0
        self.pods: dict[str, PodInfo] = {}
        self.used: dict[str, int] = {}
        self.floor_cpu = self.floor_memory = 0
        self.ports: Counter[Port] = Counter()

    def renew(self, node: Node) -> None:
        """Take over what the Node offers and asks of Pods now."""
        self.is_there = True
        self.labels = node.metadata.labels
        self.taints = tuple(each for each in node.spec.taints if each.effect in _HARD)
        self.soft_taints = tuple(
            each for each in node.spec.taints if each.effect == "PreferNoSchedule"
        )
        self.unschedulable = node.spec.unschedulable
        self.offers = pod_info.parse_amounts(node.status.allocatable or node.status.capacity)
        self.slots = self.offers.pop("pods", 0)

    def put(self, pod: PodInfo) -> None:
        """Let the Pod in."""
        self.pods[pod.uid] = pod
        self._count(pod, 1)

    def take(self, uid: str) -> PodInfo | None:
        """Let the Pod out."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._count(pod, -1)
        return pod

    def changed(self, *, without: Collection[str] = (), plus: Iterable[PodInfo] = ()) -> NodeInfo:
        """Return a copy as it would be with some Pods gone and others come."""
        copy = NodeInfo(self.name)
        for field in ("is_there", "labels", "taints", "soft_taints", "unschedulable", "offers"):
            setattr(copy, field, getattr(self, field))
        copy.slots = self.slots
        for uid, pod in self.pods.items():
            if uid not in without:
                copy.put(pod)
        for pod in plus:
            copy.put(pod)
        return copy

    def port_taken(self, wanted: Port) -> bool:
        """Tell whether another Pod listens where this port would."""
        address, protocol, number = wanted
        if address != ANY_ADDRESS:
            anywhere = (ANY_ADDRESS, protocol, number)
            return self.ports[wanted] > 0 or self.ports[anywhere] > 0
        return any(
            count > 0 and used[1:] == (protocol, number) for used, count in self.ports.items()
        )

    def _count(self, pod: PodInfo, sign: int) -> None:
        for name, amount in pod.asks:
            self.used[name] = self.used.get(name, 0) + sign * amount
        self.floor_cpu += sign * pod.floor[0]
        self.floor_memory += sign * pod.floor[1]
        for port in pod.ports:
            self.ports[port] += sign
