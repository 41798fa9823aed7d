"""All that the scheduler knows: rooms, which Pods are where, and Pods grouped so that one look answers for all that are alike.

A Pod that was given a Node counts there at once, before the server has heard of it; that is why two Pods never get the same
place. No time, no network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from bramley.api.core import Node
from bramley.apiserver.controllers.scheduling.affinity import Term
from bramley.apiserver.controllers.scheduling.nodes import NodeInfo
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo


@dataclass(slots=True)
class PodGroup:
    """Pods of one namespace with the same labels, and how many of them are on which Node."""

    namespace: str
    labels: Mapping[str, str]
    nodes: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class AntiAffinityGroup:
    """Pods that keep the same others away, and how many of them are on which Node."""

    terms: tuple[Term, ...]
    nodes: Counter[str] = field(default_factory=Counter)


class Snapshot:
    """The rooms, and who is in which."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeInfo] = {}
        self.open: list[NodeInfo] = []
        self.pod_groups: dict[tuple[str, frozenset[tuple[str, str]]], PodGroup] = {}
        self.anti_affinity_groups: dict[bytes, AntiAffinityGroup] = {}
        # Pods that wait for the victims of a preemption to leave, by the Node that was freed for them.
        self.nominated: dict[str, dict[str, PodInfo]] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.version = 0
        self._places: dict[str, str] = {}
        self._nominations: dict[str, str] = {}

    def put_node(self, node: Node) -> NodeInfo:
        """Take over a Node as it is now."""
        room = self._room(node.name)
        if not room.is_there:
            self.open.append(room)
        room.renew(node)
        self.version += 1
        return room

    def drop_node(self, name: str) -> None:
        """Offer the Node no more; Pods that were on it stay where they are until they go too."""
        room = self.nodes.get(name)
        if room is None:
            return
        room.is_there = False
        self.open.remove(room)
        self.version += 1
        self._close_if_empty(room)

    def place_of(self, uid: str) -> str | None:
        """Return the Node on which the Pod counts."""
        return self._places.get(uid)

    def put_pod(self, pod: PodInfo, node: str) -> None:
        """Count the Pod on this Node, and nowhere else."""
        self.take_pod(pod.uid)
        self._places[pod.uid] = node
        self._room(node).put(pod)
        self._group(pod, node, 1)
        self.nominate(pod, "")
        self.version += 1

    def take_pod(self, uid: str) -> NodeInfo | None:
        """Count the Pod nowhere; return the room that it left."""
        node = self._places.pop(uid, None)
        if node is None:
            return None
        room = self.nodes[node]
        pod = room.take(uid)
        if pod is not None:
            self._group(pod, node, -1)
        self.version += 1
        self._close_if_empty(room)
        return room

    def nominate(self, pod: PodInfo, node: str) -> None:
        """Keep a place on this Node for the Pod, or none."""
        before = self._nominations.pop(pod.uid, "")
        if before != node:
            self.version += 1
        if before:
            self.nominated[before].pop(pod.uid, None)
            if not self.nominated[before]:
                del self.nominated[before]
        if node:
            self._nominations[pod.uid] = node
            self.nominated.setdefault(node, {})[pod.uid] = pod

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Remember the labels of a namespace; None when it is gone."""
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels
        self.version += 1

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace."""
        return self.namespaces.get(name, {})

    def _room(self, name: str) -> NodeInfo:
        room = self.nodes.get(name)
        if room is None:
            room = self.nodes[name] = NodeInfo(name)
        return room

    def _close_if_empty(self, room: NodeInfo) -> None:
        if not room.is_there and not room.pods:
            self.nodes.pop(room.name, None)

    def _group(self, pod: PodInfo, node: str, count: int) -> None:
        alike = (pod.namespace, frozenset(pod.labels.items()))
        group = self.pod_groups.setdefault(alike, PodGroup(pod.namespace, pod.labels))
        if not _counted(group.nodes, node, count):
            del self.pod_groups[alike]
        if pod.apart:
            anti_affinity_groups = self.anti_affinity_groups.setdefault(pod.guarding, AntiAffinityGroup(pod.apart))
            if not _counted(anti_affinity_groups.nodes, node, count):
                del self.anti_affinity_groups[pod.guarding]


def _counted(nodes: Counter[str], node: str, count: int) -> bool:
    """Count, and tell whether anything is left."""
    nodes[node] += count
    if nodes[node] <= 0:
        del nodes[node]
    return bool(nodes)
