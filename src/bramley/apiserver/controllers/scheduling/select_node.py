"""One scheduling decision: filter the Nodes, score those that are feasible, select one, or find Pods to preempt.

Pure except for the random generator. Scores and preemption follow kube-scheduler; PodDisruptionBudgets are ignored,
since kube-scheduler breaks them too if it must.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bramley.apiserver.controllers.scheduling import filters
from bramley.apiserver.controllers.scheduling.affinity import (
    find_toleration,
    required_node_names,
    term_matches,
)
from bramley.apiserver.controllers.scheduling.filters import Rejection, run_filters
from bramley.apiserver.controllers.scheduling.interpod_affinity import (
    AffinityCounts,
    TopologyPair,
    count_affinity,
    preferred_topologies,
)
from bramley.apiserver.controllers.scheduling.node_info import NodeInfo
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo
from bramley.apiserver.controllers.scheduling.snapshot import Snapshot

# The search ends after so many feasible Nodes; scoring more of them costs more than it gains.
FEASIBLE_NODES_LIMIT = 100
NO_NODES = "no nodes available to schedule pods"
_CONFLICT = "pod affinity terms conflict"
# What kube-scheduler's other PostFilter plugin, for device claims, adds to the message.
_NO_CLAIMS = "no new claims to deallocate"
_PREFILTER_FAILED = "not found"

_MAX_SCORE = 100
_TAINT_WEIGHT, _NODE_AFFINITY_WEIGHT, _POD_AFFINITY_WEIGHT = 3, 2, 2

_LOWEST_PRIORITY = -(2**31)
NOT_HELPFUL = Rejection(("Preemption is not helpful for scheduling",))
NO_VICTIMS = Rejection(("No preemption victims found for incoming pod",))
NEVER_PREEMPTS = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."


@dataclass(frozen=True, slots=True)
class Selected:
    """The Pod is assigned to this Node."""

    node: str


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No Node is feasible; with a preemption, the victims and the Node that the Pod is nominated to."""

    message: str
    victims: tuple[PodInfo, ...] = ()
    nominated_node: str = ""


Decision = Selected | Unschedulable


@dataclass(slots=True)
class FilterResult:
    """The feasible Nodes, and why the others were rejected."""

    feasible: list[NodeInfo] = field(default_factory=list)
    rejections: dict[str, Rejection] = field(default_factory=dict)
    error: str = ""


def decide(pod: PodInfo, snapshot: Snapshot, rng: random.Random) -> Decision:
    """Return the Node for the Pod, or why there is none."""
    if not snapshot.node_list:
        return Unschedulable(NO_NODES)
    counts = count_affinity(pod, snapshot)
    result = find_feasible_nodes(pod, snapshot, counts=counts, rng=rng)
    if not result.feasible:
        return _unschedulable(pod, snapshot, counts=counts, result=result)
    return Selected(_best(pod, result.feasible, snapshot=snapshot, rng=rng).name)


def find_feasible_nodes(
    pod: PodInfo, snapshot: Snapshot, *, counts: AffinityCounts, rng: random.Random
) -> FilterResult:
    """Filter Nodes until enough are feasible, from a random start so that none is always last."""
    if (nominated := _feasible_nominated_node(pod, snapshot, counts)) is not None:
        return FilterResult([nominated])
    node_names = None if pod.node_affinity is None else required_node_names(pod.node_affinity)
    if node_names is not None and not node_names:
        return FilterResult(error=_CONFLICT)
    result = FilterResult()
    count, start = len(snapshot.node_list), rng.randrange(len(snapshot.node_list))
    for index in range(count):
        node = snapshot.node_list[(start + index) % count]
        rejection: Rejection | None = filters.NOT_NAMED
        if node_names is None or node.name in node_names:
            rejection = filter_with_nominated_pods(pod, node, snapshot=snapshot, counts=counts)
        if rejection is not None:
            result.rejections[node.name] = rejection
            continue
        result.feasible.append(node)
        if len(result.feasible) >= FEASIBLE_NODES_LIMIT:
            break
    return result


def _feasible_nominated_node(
    pod: PodInfo, snapshot: Snapshot, counts: AffinityCounts
) -> NodeInfo | None:
    node = snapshot.nodes.get(pod.nominated_node) if pod.nominated_node else None
    if node is None or not node.exists:
        return None
    rejection = filter_with_nominated_pods(pod, node, snapshot=snapshot, counts=counts)
    return node if rejection is None else None


def filter_with_nominated_pods(
    pod: PodInfo, node: NodeInfo, *, snapshot: Snapshot, counts: AffinityCounts
) -> Rejection | None:
    """Run the filters, counting Pods of at least this priority that are nominated to the Node as running on it."""
    waiting = snapshot.nominated_pods.get(node.name)
    if waiting:
        nominated = [
            each
            for each in waiting.values()
            if each.uid != pod.uid and each.priority >= pod.priority
        ]
        if nominated:
            rejection = run_filters(pod, node.copy(plus=nominated), counts)
            if rejection is not None:
                return rejection
    return run_filters(pod, node, counts)


def _best(
    pod: PodInfo, feasible: list[NodeInfo], *, snapshot: Snapshot, rng: random.Random
) -> NodeInfo:
    if len(feasible) == 1:
        return feasible[0]
    scores = score_nodes(pod, feasible, preferred_topologies(pod, snapshot))
    best = max(scores)
    return rng.choice([node for node, each in zip(feasible, scores, strict=True) if each == best])


def score_nodes(
    pod: PodInfo, nodes: Sequence[NodeInfo], topologies: Counter[TopologyPair]
) -> list[int]:
    """Return the score of each Node, in the order given."""
    total = [least_allocated(pod, node) for node in nodes]
    if any(node.soft_taints for node in nodes):
        untolerated = [
            sum(find_toleration(each, pod.tolerations) is None for each in node.soft_taints)
            for node in nodes
        ]
        scores = [_MAX_SCORE - score for score in _normalized(untolerated)]
        _add_weighted(total, _TAINT_WEIGHT, scores)
    if pod.preferred_node_affinity:
        affinity = [_node_affinity_score(pod, node) for node in nodes]
        _add_weighted(total, _NODE_AFFINITY_WEIGHT, _normalized(affinity))
    if topologies:
        pairs = (node.labels.items() & topologies.keys() for node in nodes)
        affinity = [sum(topologies[pair] for pair in each) for each in pairs]
        least = min(affinity)
        _add_weighted(total, _POD_AFFINITY_WEIGHT, _normalized([each - least for each in affinity]))
    return total


def least_allocated(pod: PodInfo, node: NodeInfo) -> int:
    """Return the percentage of the Node's CPU and memory that stays free with the Pod."""
    used_cpu, used_memory = pod.nonzero_requests
    cpu = _free_percentage(node.allocatable.get("cpu", 0), node.nonzero_cpu + used_cpu)
    memory = _free_percentage(node.allocatable.get("memory", 0), node.nonzero_memory + used_memory)
    return (cpu + memory) // 2


def _free_percentage(allocatable: int, used: int) -> int:
    fits = allocatable > 0 and used <= allocatable
    return (allocatable - used) * _MAX_SCORE // allocatable if fits else 0


def _node_affinity_score(pod: PodInfo, node: NodeInfo) -> int:
    return sum(
        each.weight
        for each in pod.preferred_node_affinity
        if term_matches(each.preference, node.name, node.labels)
    )


def _normalized(counts: list[int]) -> list[int]:
    most = max(counts)
    return [count * _MAX_SCORE // most if most > 0 else 0 for count in counts]


def _add_weighted(total: list[int], weight: int, scores: list[int]) -> None:
    for index, score in enumerate(scores):
        total[index] += weight * score


def _unschedulable(
    pod: PodInfo, snapshot: Snapshot, *, counts: AffinityCounts, result: FilterResult
) -> Unschedulable:
    count = len(snapshot.node_list)
    summary = f"0/{count} nodes are available"
    if result.error:
        return Unschedulable(f"{summary}: {result.error}. {_PREFILTER_FAILED}")
    message = f"{summary}: {_histogram(result.rejections.values())}."
    candidate = find_candidate(pod, snapshot, counts=counts, rejections=result.rejections)
    if isinstance(candidate, Candidate):
        return Unschedulable(message, candidate.victims, candidate.node)
    message = f"{message} {_NO_CLAIMS}, preemption:"
    if isinstance(candidate, str):
        # No candidate was searched for, so an earlier nomination still holds.
        return Unschedulable(f"{message} {candidate}", nominated_node=pod.nominated_node)
    others = [NOT_HELPFUL] * (count - len(candidate))
    return Unschedulable(f"{message} {summary}: {_histogram([*candidate.values(), *others])}.")


def _histogram(rejections: Iterable[Rejection]) -> str:
    counts = Counter(reason for each in rejections for reason in each.reasons)
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A Node that is feasible once these Pods are gone."""

    node: str
    victims: tuple[PodInfo, ...]


def find_candidate(
    pod: PodInfo, snapshot: Snapshot, *, counts: AffinityCounts, rejections: Mapping[str, Rejection]
) -> Candidate | Mapping[str, Rejection] | str:
    """Return the cheapest preemption, or why none of the resolvable Nodes is one, or why the Pod may not preempt."""
    if not pod.can_preempt:
        return NEVER_PREEMPTS
    if _has_terminating_victims(pod, snapshot, rejections):
        return TERMINATING
    candidates: list[Candidate] = []
    failures: dict[str, Rejection] = {}
    for node, rejection in rejections.items():
        if rejection.unresolvable:
            continue
        victims = select_victims(pod, snapshot.nodes[node], counts)
        if isinstance(victims, Rejection):
            failures[node] = victims
        else:
            candidates.append(Candidate(node, victims))
    return min(candidates, key=_candidate_cost) if candidates else failures


def select_victims(
    pod: PodInfo, node: NodeInfo, counts: AffinityCounts
) -> tuple[PodInfo, ...] | Rejection:
    """Return the fewest Pods of the Node without which the Pod fits, those of lowest priority if there is a choice."""
    lower = [each for each in node.pods.values() if each.priority < pod.priority]
    if not lower:
        return NO_VICTIMS
    lower.sort(key=lambda each: (-each.priority, each.created))
    rejection = _filter_without(pod, node, counts=counts, victims=lower)
    if rejection is not None:
        return rejection
    # All of them would be enough; reprieve one after the other, the most important first.
    victims = list(lower)
    for each in lower:
        fewer = [other for other in victims if other is not each]
        if _filter_without(pod, node, counts=counts, victims=fewer) is None:
            victims = fewer
    return tuple(victims)


def _filter_without(
    pod: PodInfo, node: NodeInfo, *, counts: AffinityCounts, victims: list[PodInfo]
) -> Rejection | None:
    remaining = node.copy(without={each.uid for each in victims})
    return run_filters(pod, remaining, counts.without(victims, node))


def _has_terminating_victims(
    pod: PodInfo, snapshot: Snapshot, rejections: Mapping[str, Rejection]
) -> bool:
    node = snapshot.nodes.get(pod.nominated_node) if pod.nominated_node else None
    rejection = rejections.get(pod.nominated_node)
    if node is None or (rejection is not None and rejection.unresolvable):
        return False
    return any(each.deleting and each.priority < pod.priority for each in node.pods.values())


def _candidate_cost(candidate: Candidate) -> tuple[int, int, int, float, str]:
    priorities = [victim.priority for victim in candidate.victims]
    highest = max(priorities)
    # Among victims of equal priority those that started last have the least work to lose.
    oldest = min(
        victim.created.timestamp() for victim in candidate.victims if victim.priority == highest
    )
    # Relative to the lowest possible priority, so that one more victim never makes the sum smaller.
    total = sum(priority - _LOWEST_PRIORITY for priority in priorities)
    return highest, total, len(priorities), -oldest, candidate.node
