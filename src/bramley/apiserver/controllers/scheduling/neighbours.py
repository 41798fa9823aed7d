"""What other Pods mean for one Pod: where it must not be, where it must be, and how much it would like to be somewhere.

Topologies are counted as pairs of a label and its value, over crowds of alike Pods instead of Pod by Pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bramley.apiserver.controllers.scheduling.board import Board
from bramley.apiserver.controllers.scheduling.facts import PodFacts
from bramley.apiserver.controllers.scheduling.matching import NamespaceLabels, Term
from bramley.apiserver.controllers.scheduling.rooms import Room

Pair = tuple[str, str]


@dataclass(slots=True)
class Neighbours:
    """Counts of Pods around one Pod: of those that keep it away, those that it must be near, and those it must not."""

    pod: PodFacts
    guarded: Counter[Pair]
    near: Counter[Pair]
    apart: Counter[Pair]
    namespace_labels: NamespaceLabels

    @property
    def says_nothing(self) -> bool:
        """Tell whether no Node can be refused because of other Pods."""
        return not (self.guarded or self.pod.near or self.apart)

    def without(self, victims: Iterable[PodFacts], room: Room) -> Neighbours:
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


def look_around(pod: PodFacts, board: Board) -> Neighbours:
    """Count the Pods that matter for this one."""
    around = Neighbours(pod, Counter(), Counter(), Counter(), board.namespace_labels)
    for guards in board.guards.values():
        if terms := around.guards_against(guards.terms):
            for node, count in guards.nodes.items():
                _note(around.guarded, terms, board.rooms[node].labels, count)
    if pod.has_neighbour_terms:
        for crowd in board.crowds.values():
            near = around.wants_near(crowd.namespace, crowd.labels)
            apart = around.wants_apart(crowd.namespace, crowd.labels)
            for node, count in crowd.nodes.items() if near or apart else ():
                _note(around.near, near, board.rooms[node].labels, count)
                _note(around.apart, apart, board.rooms[node].labels, count)
    return around


def wished(pod: PodFacts, board: Board) -> Counter[Pair]:
    """Return how much the Pod would like to be in each topology because of the Pods there."""
    weights: Counter[Pair] = Counter()
    for weight, term in pod.wishes:
        for crowd in board.crowds.values():
            if term.means(crowd.namespace, crowd.labels, namespace_labels=board.namespace_labels):
                for node, count in crowd.nodes.items():
                    where = board.rooms[node].labels
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
