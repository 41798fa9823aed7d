"""May this Pod go to that Node? One test after the other, as a real scheduler has them; the first that fails says why.

The reasons are those of the real scheduler, word for word, because people search for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from bramley.api.core import Taint
from bramley.apiserver.controllers.scheduling import affinity
from bramley.apiserver.controllers.scheduling.interpod_affinity import Neighbours
from bramley.apiserver.controllers.scheduling.nodes import NodeInfo
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a Node is out of the question; if it is for good, not even other Pods' leaving would help."""

    reasons: tuple[str, ...]
    for_good: bool = True


_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
UNSCHEDULABLE = Refusal(("node(s) were unschedulable",))
TAINTED = Refusal(("node(s) had untolerated taint(s)",))
NOT_SELECTED = Refusal(("node(s) didn't match Pod's node affinity/selector",))
NOT_NAMED = Refusal(("node(s) didn't satisfy plugin(s) [NodeAffinity]",))
PORTS_TAKEN = Refusal(
    ("node(s) didn't have free ports for the requested pod ports",), for_good=False
)
NOT_NEAR = Refusal(("node(s) didn't match pod affinity rules",))
NOT_APART = Refusal(("node(s) didn't match pod anti-affinity rules",), for_good=False)
KEPT_AWAY = Refusal(("node(s) didn't satisfy existing pods anti-affinity rules",), for_good=False)


def refusal(pod: PodInfo, room: NodeInfo, around: Neighbours) -> Refusal | None:
    """Return why the Pod may not go there, or None if it may."""
    return (
        _by_node(pod, room)
        or (PORTS_TAKEN if pod.ports and _ports_taken(pod, room) else None)
        or _too_full(pod, room)
        or (None if around.says_nothing else _by_neighbours(pod, room, around))
    )


def _by_node(pod: PodInfo, room: NodeInfo) -> Refusal | None:
    if room.unschedulable and affinity.tolerated(_CORDON, pod.tolerations) is None:
        return UNSCHEDULABLE
    for taint in room.taints:
        if affinity.tolerated(taint, pod.tolerations) is None:
            return TAINTED
    return None if _selected(pod, room) else NOT_SELECTED


def _selected(pod: PodInfo, room: NodeInfo) -> bool:
    labels = room.labels
    if pod.node_selector is not None:
        for key, value in pod.node_selector.items():
            if labels.get(key) != value:
                return False
    return pod.required is None or affinity.node_selected(pod.required, room.name, labels)


def _ports_taken(pod: PodInfo, room: NodeInfo) -> bool:
    return any(room.port_taken(port) for port in pod.ports)


def _too_full(pod: PodInfo, room: NodeInfo) -> Refusal | None:
    full = len(room.pods) >= room.slots
    offers, used = room.offers, room.used
    short = [name for name, amount in pod.asks if amount > offers.get(name, 0) - used.get(name, 0)]
    if not short and not full:
        return None
    too_much = any(amount > offers.get(name, 0) for name, amount in pod.asks if name in short)
    reasons = [f"Insufficient {name}" for name in short]
    return Refusal((*(["Too many pods"] if full else []), *reasons), for_good=too_much)


def _by_neighbours(pod: PodInfo, room: NodeInfo, around: Neighbours) -> Refusal | None:
    labels = room.labels
    if pod.near and not _near_enough(pod, room, around):
        return NOT_NEAR
    for term in pod.apart:
        if (
            term.topology_key in labels
            and around.apart[term.topology_key, labels[term.topology_key]]
        ):
            return NOT_APART
    if around.guarded and any(around.guarded[pair] for pair in labels.items()):
        return KEPT_AWAY
    return None


def _near_enough(pod: PodInfo, room: NodeInfo, around: Neighbours) -> bool:
    labels = room.labels
    if any(term.topology_key not in labels for term in pod.near):
        return False
    if all(around.near[term.topology_key, labels[term.topology_key]] > 0 for term in pod.near):
        return True
    # The first of Pods that want to be near each other has nobody to be near to yet.
    return not around.near and around.means(pod.near, pod.namespace, pod.labels)
