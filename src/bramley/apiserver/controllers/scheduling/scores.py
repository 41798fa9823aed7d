"""Where should this Pod go, of all Nodes where it may? Points as the real scheduler gives them, in four of its subjects.

Taints that only ask to stay away, preferred node affinity, preferred neighbours, and the share of CPU and memory left free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bramley.apiserver.controllers.scheduling import matching
from bramley.apiserver.controllers.scheduling.facts import PodFacts
from bramley.apiserver.controllers.scheduling.neighbours import Pair
from bramley.apiserver.controllers.scheduling.rooms import Room

_MOST = 100
_TAINTS, _AFFINITY, _NEIGHBOURS = 3, 2, 2


def points(pod: PodFacts, rooms: Sequence[Room], wished: Counter[Pair]) -> list[int]:
    """Return the points of each Node, in the order given."""
    total = [left_free(pod, room) for room in rooms]
    if any(room.soft_taints for room in rooms):
        _add(total, _TAINTS, _few_is_best([_unwelcome(pod, room) for room in rooms]))
    if pod.preferred:
        _add(total, _AFFINITY, _most_is_best([_preference(pod, room) for room in rooms]))
    if wished:
        _add(total, _NEIGHBOURS, _between([_company(room, wished) for room in rooms]))
    return total


def left_free(pod: PodFacts, room: Room) -> int:
    """Return how much of the Node's CPU and memory stays free with the Pod, out of a hundred."""
    cpu = _free(room.offers.get("cpu", 0), room.floor_cpu + pod.floor[0])
    memory = _free(room.offers.get("memory", 0), room.floor_memory + pod.floor[1])
    return (cpu + memory) // 2


def _free(offered: int, used: int) -> int:
    return (offered - used) * _MOST // offered if offered > 0 and used <= offered else 0


def _unwelcome(pod: PodFacts, room: Room) -> int:
    return sum(matching.tolerated(each, pod.tolerations) is None for each in room.soft_taints)


def _preference(pod: PodFacts, room: Room) -> int:
    return sum(
        each.weight
        for each in pod.preferred
        if matching.term_holds(each.preference, room.name, room.labels)
    )


def _company(room: Room, wished: Counter[Pair]) -> int:
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


def _add(total: list[int], weight: int, more: list[int]) -> None:
    for index, points_more in enumerate(more):
        total[index] += weight * points_more
