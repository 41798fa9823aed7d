"""Inter-Pod affinity and anti-affinity: how many Pods match a Pod's terms in each topology.

A topology is a pair of a Node label and its value. Counts are made over groups of equal Pods, not Pod by Pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bramley.apiserver.controllers.scheduling.affinity import AffinityTerm, NamespaceLabels
from bramley.apiserver.controllers.scheduling.node_info import NodeInfo
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo
from bramley.apiserver.controllers.scheduling.snapshot import Snapshot

TopologyPair = tuple[str, str]


@dataclass(slots=True)
class AffinityCounts:
    """How many existing Pods repel one Pod, match its affinity, and match its anti-affinity, by topology."""

    pod: PodInfo
    existing_anti_affinity: Counter[TopologyPair]
    affinity: Counter[TopologyPair]
    anti_affinity: Counter[TopologyPair]
    namespace_labels: NamespaceLabels

    @property
    def is_empty(self) -> bool:
        """Return whether no Node can be rejected because of other Pods."""
        return not (self.existing_anti_affinity or self.pod.pod_affinity or self.anti_affinity)

    def without(self, victims: Iterable[PodInfo], node: NodeInfo) -> AffinityCounts:
        """Return the counts as they would be without these Pods on their Node."""
        reduced = AffinityCounts(
            self.pod,
            Counter(self.existing_anti_affinity),
            Counter(self.affinity),
            Counter(self.anti_affinity),
            self.namespace_labels,
        )
        for victim in victims:
            repelling = self.terms_matching_pod(victim.pod_anti_affinity)
            _count(reduced.existing_anti_affinity, repelling, node.labels, -1)
            affinity = self.affinity_terms_for(victim.namespace, victim.labels)
            _count(reduced.affinity, affinity, node.labels, -1)
            anti_affinity = self.anti_affinity_terms_for(victim.namespace, victim.labels)
            _count(reduced.anti_affinity, anti_affinity, node.labels, -1)
        return reduced

    def terms_matching_pod(self, terms: Iterable[AffinityTerm]) -> list[AffinityTerm]:
        """Return those of another Pod's terms that select this Pod."""
        pod, labels_of = self.pod, self.namespace_labels
        return [
            term
            for term in terms
            if term.matches(pod.namespace, pod.labels, namespace_labels=labels_of)
        ]

    def affinity_terms_for(
        self, namespace: str, labels: Mapping[str, str]
    ) -> tuple[AffinityTerm, ...]:
        """Return this Pod's affinity terms if all of them select such a Pod, else none."""
        terms = self.pod.pod_affinity
        return terms if terms and self.all_match(terms, namespace, labels) else ()

    def anti_affinity_terms_for(
        self, namespace: str, labels: Mapping[str, str]
    ) -> list[AffinityTerm]:
        """Return this Pod's anti-affinity terms that select such a Pod."""
        terms = self.pod.pod_anti_affinity
        return [term for term in terms if self.all_match((term,), namespace, labels)]

    def all_match(
        self, terms: Iterable[AffinityTerm], namespace: str, labels: Mapping[str, str]
    ) -> bool:
        """Return whether all terms select such a Pod."""
        labels_of = self.namespace_labels
        return all(term.matches(namespace, labels, namespace_labels=labels_of) for term in terms)


def count_affinity(pod: PodInfo, snapshot: Snapshot) -> AffinityCounts:
    """Count the Pods that matter for this one."""
    counts = AffinityCounts(pod, Counter(), Counter(), Counter(), snapshot.namespace_labels)
    for repelling in snapshot.anti_affinity_groups.values():
        if terms := counts.terms_matching_pod(repelling.terms):
            for node, count in repelling.nodes.items():
                _count(counts.existing_anti_affinity, terms, snapshot.nodes[node].labels, count)
    if pod.has_required_pod_affinity:
        for group in snapshot.pod_groups.values():
            affinity = counts.affinity_terms_for(group.namespace, group.labels)
            anti_affinity = counts.anti_affinity_terms_for(group.namespace, group.labels)
            for node, count in group.nodes.items() if affinity or anti_affinity else ():
                _count(counts.affinity, affinity, snapshot.nodes[node].labels, count)
                _count(counts.anti_affinity, anti_affinity, snapshot.nodes[node].labels, count)
    return counts


def preferred_topologies(pod: PodInfo, snapshot: Snapshot) -> Counter[TopologyPair]:
    """Return the weight of each topology by the Pod's preferred affinity."""
    weights: Counter[TopologyPair] = Counter()
    labels_of = snapshot.namespace_labels
    for weight, term in pod.preferred_pod_affinity:
        for group in snapshot.pod_groups.values():
            if term.matches(group.namespace, group.labels, namespace_labels=labels_of):
                for node, count in group.nodes.items():
                    labels = snapshot.nodes[node].labels
                    if term.topology_key in labels:
                        weights[term.topology_key, labels[term.topology_key]] += weight * count
    return weights


def _count(
    counts: Counter[TopologyPair],
    terms: Iterable[AffinityTerm],
    labels: Mapping[str, str],
    count: int,
) -> None:
    """Count so many Pods for each of the terms, on a Node with these labels."""
    for term in terms:
        if term.topology_key not in labels:
            continue
        pair = (term.topology_key, labels[term.topology_key])
        counts[pair] += count
        if counts[pair] <= 0:
            del counts[pair]
