"""Who matches whom: Nodes and the terms of node affinity, taints and tolerations, Pods and the terms of pod affinity."""

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
_COMPARING = frozenset({"Gt", "Lt"})

NamespaceLabels = Callable[[str], Mapping[str, str]]


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> Toleration | None:
    """Return the first toleration of the taint, or None."""
    return next((each for each in tolerations if _tolerates(each, taint)), None)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in {"", "Equal"}:
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def node_selected(selector: NodeSelector, name: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a Node fits at least one of the terms."""
    return any(term_holds(term, name, labels) for term in selector.node_selector_terms or ())


def term_holds(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a Node passes every test of the term; a term without any test matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_holds(each, labels.get(each.key)) for each in term.match_expressions) and all(
        _holds(each, name if each.key == NAME_FIELD else None) for each in term.match_fields
    )


def _holds(wanted: NodeSelectorRequirement, value: str | None) -> bool:
    if wanted.operator in _COMPARING:
        return value is not None and _compares(wanted, value)
    return passes(value, wanted.operator, wanted.values)


def _compares(wanted: NodeSelectorRequirement, text: str) -> bool:
    try:
        value, bound = int(text), int(wanted.values[0])
    except (ValueError, IndexError):
        return False
    return value > bound if wanted.operator == "Gt" else value < bound


def only_names(selector: NodeSelector) -> frozenset[str] | None:
    """Return the only Nodes that the terms allow by name, or None if one of them names none."""
    allowed: frozenset[str] = frozenset()
    for term in selector.node_selector_terms or ():
        named = [
            frozenset(each.values)
            for each in term.match_fields
            if each.key == NAME_FIELD and each.operator == "In"
        ]
        if not named:
            return None
        allowed |= frozenset.intersection(*named)
    return allowed if selector.node_selector_terms else None


@dataclass(frozen=True, slots=True)
class Term:
    """Which Pods a term of pod affinity means, and within which topology."""

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None

    @classmethod
    def of(cls, term: PodAffinityTerm, namespace: str) -> Term:
        """Return the term of a Pod in this namespace, which is meant if the term names none."""
        named = frozenset(term.namespaces)
        if not named and term.namespace_selector is None:
            named = frozenset((namespace,))
        return cls(term.topology_key, term.label_selector, named, term.namespace_selector)

    def means(
        self, namespace: str, labels: Mapping[str, str], *, namespace_labels: NamespaceLabels
    ) -> bool:
        """Tell whether a Pod of this namespace with these labels is meant."""
        there = namespace in self.namespaces or (
            self.namespace_selector is not None
            and matches(self.namespace_selector, namespace_labels(namespace))
        )
        return there and matches(self.selector, labels)
