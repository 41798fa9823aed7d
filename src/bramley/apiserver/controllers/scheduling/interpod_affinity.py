"""What other Pods mean for one Pod: where it must not be, where it must be, and how much it would like to be somewhere.

Topologies are counted as pairs of a label and its value, over crowds of alike Pods instead of Pod by Pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bramley.apiserver.controllers.scheduling.affinity import NamespaceLabels, Term
from bramley.apiserver.controllers.scheduling.nodes import NodeInfo
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo
from bramley.apiserver.controllers.scheduling.snapshot import Snapshot

Pair = tuple[str, str]


@dataclass(slots=True)
class Neighbours:
    """Counts of Pods around one Pod: of those that keep it away, those that it must be near, and those it must not."""

    pod: PodInfo
    guarded: Counter[Pair]
    near: Counter[Pair]
    apart: Counter[Pair]
    namespace_labels: NamespaceLabels

    @property
    def says_nothing(self) -> bool:
        """Tell whether no Node can be refused because of other Pods."""
        return not (self.guarded or self.pod.near or self.apart)

    def without(self, victims: Iterable[PodInfo], room: NodeInfo) -> Neighbours:
        """Return the counts as they would be if these Pods left their room."""
        left = Neighbours(
            self.pod,
            Counter(self.guarded),
            Counter(self.near),
            Counter(self.apart),
            self.namespace_labels,
        )
        for victim in victims:
            about = (victim.namespace, victim.labels)
            _note(left.guarded, self.guards_against(victim.apart), room.labels, -1)
            _note(left.near, self.wants_near(*about), room.labels, -1)
            _note(left.apart, self.wants_apart(*about), room.labels, -1)
        return left

    def guards_against(self, terms: Iterable[Term]) -> list[Term]:
        """Return those of another Pod's terms that keep this one away."""
        pod, labels_of = self.pod, self.namespace_labels
        return [
            term
            for term in terms
            if term.means(pod.namespace, pod.labels, namespace_labels=labels_of)
        ]

    def wants_near(self, namespace: str, labels: Mapping[str, str]) -> tuple[Term, ...]:
        """Return the terms by which this Pod wants to be near such Pods: all or none."""
        near = self.pod.near
        return near if near and self.means(near, namespace, labels) else ()

    def wants_apart(self, namespace: str, labels: Mapping[str, str]) -> list[Term]:
        """Return the terms by which this Pod wants to be apart from such Pods."""
        return [term for term in self.pod.apart if self.means((term,), namespace, labels)]

    def means(self, terms: Iterable[Term], namespace: str, labels: Mapping[str, str]) -> bool:
        """Tell whether all terms mean such a Pod."""
        return all(
            term.means(namespace, labels, namespace_labels=self.namespace_labels) for term in terms
        )


def look_around(pod: PodInfo, board: Snapshot) -> Neighbours:
    """Count the Pods that matter for this one."""
    around = Neighbours(pod, Counter(), Counter(), Counter(), board.namespace_labels)
    for anti_affinity_groups in board.anti_affinity_groups.values():
        if terms := around.guards_against(anti_affinity_groups.terms):
            for node, count in anti_affinity_groups.nodes.items():
                _note(around.guarded, terms, board.nodes[node].labels, count)
    if pod.has_neighbour_terms:
        for group in board.pod_groups.values():
            near = around.wants_near(group.namespace, group.labels)
            apart = around.wants_apart(group.namespace, group.labels)
            for node, count in group.nodes.items() if near or apart else ():
                _note(around.near, near, board.nodes[node].labels, count)
                _note(around.apart, apart, board.nodes[node].labels, count)
    return around


def wished(pod: PodInfo, board: Snapshot) -> Counter[Pair]:
    """Return how much the Pod would like to be in each topology because of the Pods there."""
    weights: Counter[Pair] = Counter()
    for weight, term in pod.wishes:
        for group in board.pod_groups.values():
            if term.means(group.namespace, group.labels, namespace_labels=board.namespace_labels):
                for node, count in group.nodes.items():
                    where = board.nodes[node].labels
                    if term.topology_key in where:
                        weights[term.topology_key, where[term.topology_key]] += weight * count
    return weights


def _note(
    counts: Counter[Pair], terms: Iterable[Term], where: Mapping[str, str], count: int
) -> None:
    """Count so many Pods for each of the terms, on a Node with these labels."""
    for term in terms:
        pair = (term.topology_key, where.get(term.topology_key, ""))
        if term.topology_key not in where:
            continue
        counts[pair] += count
        if counts[pair] <= 0:
            del counts[pair]
