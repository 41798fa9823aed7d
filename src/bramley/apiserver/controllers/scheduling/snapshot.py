"""`Snapshot`: all Nodes and Pods that scheduling decisions are made on. No clock, no network.

A Pod that was assigned a Node counts there at once, before the server knows; so two Pods never get the same resources.
Pods with equal labels or equal anti-affinity are grouped, so that each group is matched once and not Pod by Pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from bramley.api.core import Node
from bramley.apiserver.controllers.scheduling.affinity import AffinityTerm
from bramley.apiserver.controllers.scheduling.node_info import NodeInfo
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo


@dataclass(slots=True)
class PodGroup:
    """Pods of one namespace with equal labels, and how many of them are on which Node."""

    namespace: str
    labels: Mapping[str, str]
    nodes: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class AntiAffinityGroup:
    """Pods with equal required anti-affinity, and how many of them are on which Node."""

    terms: tuple[AffinityTerm, ...]
    nodes: Counter[str] = field(default_factory=Counter)


class Snapshot:
    """The Nodes with their Pods; `version` grows with every change."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeInfo] = {}
        # Only the Nodes that exist; `nodes` also has those whose Pods are known before or after the Node.
        self.node_list: list[NodeInfo] = []
        self.pod_groups: dict[tuple[str, frozenset[tuple[str, str]]], PodGroup] = {}
        self.anti_affinity_groups: dict[bytes, AntiAffinityGroup] = {}
        # Pods that wait for the victims of a preemption to terminate, by the Node that they are nominated to.
        self.nominated_pods: dict[str, dict[str, PodInfo]] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.version = 0
        self._assigned: dict[str, str] = {}
        self._nominations: dict[str, str] = {}

    def update_node(self, node: Node) -> NodeInfo:
        """Add or update a Node."""
        info = self._node_info(node.name)
        if not info.exists:
            self.node_list.append(info)
        info.set_node(node)
        self.version += 1
        return info

    def remove_node(self, name: str) -> None:
        """Remove the Node; its Pods count on it until they are removed too."""
        info = self.nodes.get(name)
        if info is None:
            return
        info.exists = False
        self.node_list.remove(info)
        self.version += 1
        self._drop_if_unused(info)

    def node_of(self, uid: str) -> str | None:
        """Return the Node on which the Pod counts."""
        return self._assigned.get(uid)

    def add_pod(self, pod: PodInfo, node: str) -> None:
        """Count the Pod on this Node, and on no other."""
        self.remove_pod(pod.uid)
        self._assigned[pod.uid] = node
        self._node_info(node).add_pod(pod)
        self._group(pod, node, 1)
        self.nominate(pod, "")
        self.version += 1

    def remove_pod(self, uid: str) -> NodeInfo | None:
        """Remove the Pod and return the Node on which it counted."""
        node = self._assigned.pop(uid, None)
        if node is None:
            return None
        info = self.nodes[node]
        pod = info.remove_pod(uid)
        if pod is not None:
            self._group(pod, node, -1)
        self.version += 1
        self._drop_if_unused(info)
        return info

    def nominate(self, pod: PodInfo, node: str) -> None:
        """Nominate the Pod to this Node; an empty name withdraws the nomination."""
        before = self._nominations.pop(pod.uid, "")
        if before != node:
            self.version += 1
        if before:
            self.nominated_pods[before].pop(pod.uid, None)
            if not self.nominated_pods[before]:
                del self.nominated_pods[before]
        if node:
            self._nominations[pod.uid] = node
            self.nominated_pods.setdefault(node, {})[pod.uid] = pod

    def set_namespace_labels(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Set the labels of a namespace; None removes it."""
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels
        self.version += 1

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace."""
        return self.namespaces.get(name, {})

    def _node_info(self, name: str) -> NodeInfo:
        info = self.nodes.get(name)
        if info is None:
            info = self.nodes[name] = NodeInfo(name)
        return info

    def _drop_if_unused(self, info: NodeInfo) -> None:
        if not info.exists and not info.pods:
            self.nodes.pop(info.name, None)

    def _group(self, pod: PodInfo, node: str, count: int) -> None:
        key = (pod.namespace, frozenset(pod.labels.items()))
        group = self.pod_groups.setdefault(key, PodGroup(pod.namespace, pod.labels))
        if not _add_count(group.nodes, node, count):
            del self.pod_groups[key]
        if pod.pod_anti_affinity:
            repelling = self.anti_affinity_groups.setdefault(
                pod.anti_affinity_key, AntiAffinityGroup(pod.pod_anti_affinity)
            )
            if not _add_count(repelling.nodes, node, count):
                del self.anti_affinity_groups[pod.anti_affinity_key]


def _add_count(nodes: Counter[str], node: str, count: int) -> bool:
    """Add to the count of a Node; return whether any count is left."""
    nodes[node] += count
    if nodes[node] <= 0:
        del nodes[node]
    return bool(nodes)
