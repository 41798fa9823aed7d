"""Taints and tolerations, node affinity terms, and the terms of pod affinity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bramley.api.core import Taint
from bramley.api.label_selectors import LabelSelector, matches, passes
from bramley.api.pod import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinityTerm,
    Toleration,
)

NAME_FIELD = "metadata.name"
_NUMERIC_OPERATORS = frozenset({"Gt", "Lt"})

NamespaceLabels = Callable[[str], Mapping[str, str]]


def find_toleration(taint: Taint, tolerations: Iterable[Toleration]) -> Toleration | None:
    """Return the first toleration that matches the taint."""
    return next((each for each in tolerations if _tolerates(each, taint)), None)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in {"", "Equal"}:
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def node_selector_matches(selector: NodeSelector, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a Node matches at least one of the terms."""
    return any(term_matches(term, name, labels) for term in selector.node_selector_terms or ())


def term_matches(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a Node meets every requirement of the term; an empty term matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_is_met(each, labels.get(each.key)) for each in term.match_expressions) and all(
        _is_met(each, name if each.key == NAME_FIELD else None) for each in term.match_fields
    )


def _is_met(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    if requirement.operator in _NUMERIC_OPERATORS:
        return value is not None and _compares(requirement, value)
    return passes(value, requirement.operator, requirement.values)


def _compares(requirement: NodeSelectorRequirement, text: str) -> bool:
    try:
        value, bound = int(text), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return value > bound if requirement.operator == "Gt" else value < bound


def required_node_names(selector: NodeSelector) -> frozenset[str] | None:
    """Return the only Nodes that the terms allow by name, or None if one of the terms names none."""
    allowed: frozenset[str] = frozenset()
    for term in selector.node_selector_terms or ():
        names_by_term = [
            frozenset(each.values)
            for each in term.match_fields
            if each.key == NAME_FIELD and each.operator == "In"
        ]
        if not names_by_term:
            return None
        allowed |= frozenset.intersection(*names_by_term)
    return allowed if selector.node_selector_terms else None


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """The Pods that a term of pod affinity selects, and the topology in which they count."""

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None

    @classmethod
    def of(cls, term: PodAffinityTerm, namespace: str) -> AffinityTerm:
        """Return the term of a Pod in this namespace, which is the default for terms that name none."""
        namespaces = frozenset(term.namespaces)
        if not namespaces and term.namespace_selector is None:
            namespaces = frozenset((namespace,))
        return cls(term.topology_key, term.label_selector, namespaces, term.namespace_selector)

    def matches(
        self, namespace: str, labels: Mapping[str, str], *, namespace_labels: NamespaceLabels
    ) -> bool:
        """Return whether the term selects a Pod of this namespace with these labels."""
        in_namespace = namespace in self.namespaces or (
            self.namespace_selector is not None
            and matches(self.namespace_selector, namespace_labels(namespace))
        )
        return in_namespace and matches(self.selector, labels)
