"""The filter plugins: whether a Pod can run on a Node, and the reason of the first plugin that rejects it.

The reasons are kube-scheduler's, word for word, because people search for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from bramley.api.core import Taint
from bramley.apiserver.controllers.scheduling.affinity import find_toleration, node_selector_matches
from bramley.apiserver.controllers.scheduling.interpod_affinity import AffinityCounts
from bramley.apiserver.controllers.scheduling.node_info import NodeInfo
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a Node was filtered out; `unresolvable` if preempting other Pods would not help."""

    reasons: tuple[str, ...]
    unresolvable: bool = True


_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
UNSCHEDULABLE = Rejection(("node(s) were unschedulable",))
UNTOLERATED_TAINT = Rejection(("node(s) had untolerated taint(s)",))
NODE_AFFINITY = Rejection(("node(s) didn't match Pod's node affinity/selector",))
NOT_NAMED = Rejection(("node(s) didn't satisfy plugin(s) [NodeAffinity]",))
PORT_CONFLICT = Rejection(
    ("node(s) didn't have free ports for the requested pod ports",), unresolvable=False
)
POD_AFFINITY = Rejection(("node(s) didn't match pod affinity rules",))
POD_ANTI_AFFINITY = Rejection(("node(s) didn't match pod anti-affinity rules",), unresolvable=False)
EXISTING_ANTI_AFFINITY = Rejection(
    ("node(s) didn't satisfy existing pods anti-affinity rules",), unresolvable=False
)


def run_filters(pod: PodInfo, node: NodeInfo, counts: AffinityCounts) -> Rejection | None:
    """Return why the Pod cannot run on the Node, or None if it can."""
    return (
        _node_constraints(pod, node)
        or (PORT_CONFLICT if any(map(node.has_port_conflict, pod.ports)) else None)
        or _resources_fit(pod, node)
        or (None if counts.is_empty else _interpod_affinity(pod, node, counts))
    )


def _node_constraints(pod: PodInfo, node: NodeInfo) -> Rejection | None:
    if node.unschedulable and find_toleration(_CORDON, pod.tolerations) is None:
        return UNSCHEDULABLE
    for taint in node.taints:
        if find_toleration(taint, pod.tolerations) is None:
            return UNTOLERATED_TAINT
    return None if _node_affinity_matches(pod, node) else NODE_AFFINITY


def _node_affinity_matches(pod: PodInfo, node: NodeInfo) -> bool:
    labels = node.labels
    if pod.node_selector is not None:
        for key, value in pod.node_selector.items():
            if labels.get(key) != value:
                return False
    return pod.node_affinity is None or node_selector_matches(pod.node_affinity, node.name, labels)


def _resources_fit(pod: PodInfo, node: NodeInfo) -> Rejection | None:
    full = len(node.pods) >= node.max_pods
    allocatable, used = node.allocatable, node.requested
    short = [
        name
        for name, amount in pod.requests
        if amount > allocatable.get(name, 0) - used.get(name, 0)
    ]
    if not short and not full:
        return None
    too_large = any(
        amount > allocatable.get(name, 0) for name, amount in pod.requests if name in short
    )
    reasons = [f"Insufficient {name}" for name in short]
    return Rejection((*(["Too many pods"] if full else []), *reasons), unresolvable=too_large)


def _interpod_affinity(pod: PodInfo, node: NodeInfo, counts: AffinityCounts) -> Rejection | None:
    labels = node.labels
    if pod.pod_affinity and not _satisfies_affinity(pod, node, counts):
        return POD_AFFINITY
    for term in pod.pod_anti_affinity:
        key = term.topology_key
        if key in labels and counts.anti_affinity[key, labels[key]]:
            return POD_ANTI_AFFINITY
    repelling = counts.existing_anti_affinity
    if repelling and any(repelling[pair] for pair in labels.items()):
        return EXISTING_ANTI_AFFINITY
    return None


def _satisfies_affinity(pod: PodInfo, node: NodeInfo, counts: AffinityCounts) -> bool:
    labels, terms = node.labels, pod.pod_affinity
    if any(term.topology_key not in labels for term in terms):
        return False
    if all(counts.affinity[term.topology_key, labels[term.topology_key]] > 0 for term in terms):
        return True
    # The first Pod of a group with affinity to itself has no other Pod to be near to yet.
    return not counts.affinity and counts.all_match(terms, pod.namespace, pod.labels)
