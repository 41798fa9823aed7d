"""One decision: filter the Nodes, score those that are left, choose. Pure but for the board it reads and the dice it is given."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bramley.apiserver.controllers.scheduling import affinity, filters, interpod_affinity
from bramley.apiserver.controllers.scheduling.filters import Refusal
from bramley.apiserver.controllers.scheduling.interpod_affinity import Neighbours, Pair
from bramley.apiserver.controllers.scheduling.nodes import NodeInfo
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo
from bramley.apiserver.controllers.scheduling.snapshot import Snapshot

_LOWEST = -(2**31)
NOT_HELPFUL = Refusal(("Preemption is not helpful for scheduling",))
NO_VICTIMS = Refusal(("No preemption victims found for incoming pod",))
NEVER = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."


@dataclass(frozen=True, slots=True)
class Preemption:
    """The Node that fits once these Pods have left it."""

    node: str
    victims: tuple[PodInfo, ...]


def find_preemption(
    pod: PodInfo, board: Snapshot, *, around: Neighbours, refusals: Mapping[str, Refusal]
) -> Preemption | Mapping[str, Refusal] | str:
    """Return the best Node to free, or why none of those that could be freed will do, or why nobody may be sent away."""
    if not pod.preempts:
        return NEVER
    if _leaving(pod, board, refusals):
        return TERMINATING
    found: list[Preemption] = []
    why_not: dict[str, Refusal] = {}
    for node, refused in refusals.items():
        if refused.for_good:
            continue
        victims = victims_on(pod, board.nodes[node], around)
        if isinstance(victims, Refusal):
            why_not[node] = victims
        else:
            found.append(Preemption(node, victims))
    return min(found, key=_cost) if found else why_not


def victims_on(pod: PodInfo, room: NodeInfo, around: Neighbours) -> tuple[PodInfo, ...] | Refusal:
    """Return the fewest Pods of the room without which the Pod fits, the least important first to go."""
    lesser = [each for each in room.pods.values() if each.priority < pod.priority]
    if not lesser:
        return NO_VICTIMS
    lesser.sort(key=lambda each: (-each.priority, each.created))
    refused = _without(pod, room, around=around, gone=lesser)
    if refused is not None:
        return refused
    gone = list(lesser)
    for each in lesser:
        spared = [other for other in gone if other is not each]
        if _without(pod, room, around=around, gone=spared) is None:
            gone = spared
    return tuple(gone)


def _without(
    pod: PodInfo, room: NodeInfo, *, around: Neighbours, gone: list[PodInfo]
) -> Refusal | None:
    emptier = room.changed(without={each.uid for each in gone})
    return filters.refusal(pod, emptier, around.without(gone, room))


def _leaving(pod: PodInfo, board: Snapshot, refusals: Mapping[str, Refusal]) -> bool:
    """Tell whether Pods are already leaving the Node that was promised to the Pod."""
    room = board.nodes.get(pod.nominated) if pod.nominated else None
    refused = refusals.get(pod.nominated)
    if room is None or (refused is not None and refused.for_good):
        return False
    return any(each.deleting and each.priority < pod.priority for each in room.pods.values())


def _cost(each: Preemption) -> tuple[int, int, int, float, str]:
    priorities = [victim.priority for victim in each.victims]
    highest = max(priorities)
    # Of victims that matter alike those that began last have least to lose.
    youngest = min(
        victim.created.timestamp() for victim in each.victims if victim.priority == highest
    )
    # Counted from the lowest priority there is, so that one more victim is never cheaper.
    total = sum(priority - _LOWEST for priority in priorities)
    return highest, total, len(priorities), -youngest, each.node


_MOST = 100
_TAINTS, _AFFINITY, _NEIGHBOURS = 3, 2, 2


def points(pod: PodInfo, nodes: Sequence[NodeInfo], wished: Counter[Pair]) -> list[int]:
    """Return the points of each Node, in the order given."""
    total = [left_free(pod, room) for room in nodes]
    if any(room.soft_taints for room in nodes):
        _add_weighted(total, _TAINTS, _few_is_best([_unwelcome(pod, room) for room in nodes]))
    if pod.preferred:
        _add_weighted(total, _AFFINITY, _most_is_best([_preference(pod, room) for room in nodes]))
    if wished:
        _add_weighted(total, _NEIGHBOURS, _between([_company(room, wished) for room in nodes]))
    return total


def left_free(pod: PodInfo, room: NodeInfo) -> int:
    """Return how much of the Node's CPU and memory stays free with the Pod, out of a hundred."""
    cpu = _free(room.offers.get("cpu", 0), room.floor_cpu + pod.floor[0])
    memory = _free(room.offers.get("memory", 0), room.floor_memory + pod.floor[1])
    return (cpu + memory) // 2


def _free(offered: int, used: int) -> int:
    return (offered - used) * _MOST // offered if offered > 0 and used <= offered else 0


def _unwelcome(pod: PodInfo, room: NodeInfo) -> int:
    return sum(affinity.tolerated(each, pod.tolerations) is None for each in room.soft_taints)


def _preference(pod: PodInfo, room: NodeInfo) -> int:
    return sum(
        each.weight
        for each in pod.preferred
        if affinity.term_holds(each.preference, room.name, room.labels)
    )


def _company(room: NodeInfo, wished: Counter[Pair]) -> int:
    return sum(wished[pair] for pair in room.labels.items() if pair in wished)


def _few_is_best(counts: list[int]) -> list[int]:
    most = max(counts)
    return [_MOST - count * _MOST // most if most else _MOST for count in counts]


def _most_is_best(counts: list[int]) -> list[int]:
    most = max(counts)
    return [count * _MOST // most if most > 0 else 0 for count in counts]


def _between(counts: list[int]) -> list[int]:
    least, most = min(counts), max(counts)
    return [(count - least) * _MOST // (most - least) if most > least else 0 for count in counts]


def _add_weighted(total: list[int], weight: int, more: list[int]) -> None:
    for index, points_more in enumerate(more):
        total[index] += weight * points_more


# Of so many Nodes where a Pod may go one is good enough; looking at more costs more than it brings.
ENOUGH = 100
NO_NODES = "no nodes available to schedule pods"
_CONFLICT = "pod affinity terms conflict"
# What the real scheduler's other ways to make room have to say: device claims that are not there could be given up, and of
# a Pod that was refused before any Node was looked at they know nothing.
_NO_CLAIMS = "no new claims to deallocate"
_UNPREPARED = "not found"


@dataclass(frozen=True, slots=True)
class Fits:
    """The Pod goes to this Node."""

    node: str


@dataclass(frozen=True, slots=True)
class Unfit:
    """The Pod goes nowhere for now; if somebody is to leave for it, it says who, and where the place will be."""

    message: str
    victims: tuple[PodInfo, ...] = ()
    nominated: str = ""


Decision = Fits | Unfit


@dataclass(slots=True)
class Search:
    """Where a Pod may go, and why not elsewhere."""

    fitting: list[NodeInfo] = field(default_factory=list)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    complaint: str = ""


def decide(pod: PodInfo, board: Snapshot, dice: random.Random) -> Decision:
    """Return where the Pod goes, or why nowhere."""
    if not board.open:
        return Unfit(NO_NODES)
    around = interpod_affinity.look_around(pod, board)
    search = look(pod, board, around=around, dice=dice)
    if not search.fitting:
        return _unfit(pod, board, around=around, search=search)
    return Fits(_best(pod, search.fitting, board=board, dice=dice).name)


def look(pod: PodInfo, board: Snapshot, *, around: Neighbours, dice: random.Random) -> Search:
    """Try the Nodes until enough of them fit, beginning anywhere so that none is always last."""
    if (kept := _kept_place(pod, board, around)) is not None:
        return Search([kept])
    named = None if pod.required is None else affinity.only_names(pod.required)
    if named is not None and not named:
        return Search(complaint=_CONFLICT)
    search = Search()
    count, start = len(board.open), dice.randrange(len(board.open))
    for index in range(count):
        room = board.open[(start + index) % count]
        refused: Refusal | None = filters.NOT_NAMED
        if named is None or room.name in named:
            refused = may_go(pod, room, board=board, around=around)
        if refused is not None:
            search.refusals[room.name] = refused
            continue
        search.fitting.append(room)
        if len(search.fitting) >= ENOUGH:
            break
    return search


def _kept_place(pod: PodInfo, board: Snapshot, around: Neighbours) -> NodeInfo | None:
    """Return the room that was freed for the Pod, if it may go there."""
    room = board.nodes.get(pod.nominated) if pod.nominated else None
    if room is None or not room.is_there:
        return None
    return room if may_go(pod, room, board=board, around=around) is None else None


def may_go(pod: PodInfo, room: NodeInfo, *, board: Snapshot, around: Neighbours) -> Refusal | None:
    """Return why the Pod may not go there, minding the places kept for Pods that are at least as important."""
    waiting = board.nominated.get(room.name)
    if waiting:
        kept = [
            each
            for each in waiting.values()
            if each.uid != pod.uid and each.priority >= pod.priority
        ]
        if kept:
            refused = filters.refusal(pod, room.changed(plus=kept), around)
            if refused is not None:
                return refused
    return filters.refusal(pod, room, around)


def _best(
    pod: PodInfo, fitting: list[NodeInfo], *, board: Snapshot, dice: random.Random
) -> NodeInfo:
    if len(fitting) == 1:
        return fitting[0]
    wished = interpod_affinity.wished(pod, board)
    points = points(pod, fitting, wished)
    most = max(points)
    return dice.choice([room for room, each in zip(fitting, points, strict=True) if each == most])


def _unfit(pod: PodInfo, board: Snapshot, *, around: Neighbours, search: Search) -> Unfit:
    count = len(board.open)
    if search.complaint:
        return Unfit(f"{_none_of(count)}: {search.complaint}. {_UNPREPARED}")
    told = f"{_none_of(count)}: {_histogram(search.refusals.values())}."
    found = find(pod, board, around=around, refusals=search.refusals)
    if isinstance(found, Preemption):
        return Unfit(told, found.victims, found.node)
    if isinstance(found, str):
        # Nobody was looked for, so what was promised earlier still holds.
        return Unfit(f"{told} {_NO_CLAIMS}, preemption: {found}", nominated=pod.nominated)
    after = f"{_none_of(count)}: {_histogram_of_all(found, count)}."
    return Unfit(f"{told} {_NO_CLAIMS}, preemption: {after}")


def _none_of(count: int) -> str:
    return f"0/{count} nodes are available"


def _histogram_of_all(found: Mapping[str, Refusal], count: int) -> str:
    rest = [NOT_HELPFUL] * (count - len(found))
    return _histogram([*found.values(), *rest])


def _histogram(refusals: Iterable[Refusal]) -> str:
    counts = Counter(reason for each in refusals for reason in each.reasons)
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
