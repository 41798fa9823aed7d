"""Who would have to leave so that a Pod fits: the fewest and least important Pods on one Node, all less important than it.

Disruption budgets are not looked at; they bind those who ask for an eviction, and the real scheduler breaks them too if it must.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bramley.apiserver.controllers.scheduling import filters
from bramley.apiserver.controllers.scheduling.board import Board
from bramley.apiserver.controllers.scheduling.facts import PodFacts
from bramley.apiserver.controllers.scheduling.filters import Refusal
from bramley.apiserver.controllers.scheduling.neighbours import Neighbours
from bramley.apiserver.controllers.scheduling.rooms import Room

_LOWEST = -(2**31)
NOT_HELPFUL = Refusal(("Preemption is not helpful for scheduling",))
NO_VICTIMS = Refusal(("No preemption victims found for incoming pod",))
NEVER = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."


@dataclass(frozen=True, slots=True)
class Preemption:
    """The Node that fits once these Pods have left it."""

    node: str
    victims: tuple[PodFacts, ...]


def find(
    pod: PodFacts, board: Board, *, around: Neighbours, refusals: Mapping[str, Refusal]
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
        victims = victims_on(pod, board.rooms[node], around)
        if isinstance(victims, Refusal):
            why_not[node] = victims
        else:
            found.append(Preemption(node, victims))
    return min(found, key=_cost) if found else why_not


def victims_on(pod: PodFacts, room: Room, around: Neighbours) -> tuple[PodFacts, ...] | Refusal:
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
    pod: PodFacts, room: Room, *, around: Neighbours, gone: list[PodFacts]
) -> Refusal | None:
    emptier = room.changed(without={each.uid for each in gone})
    return filters.refusal(pod, emptier, around.without(gone, room))


def _leaving(pod: PodFacts, board: Board, refusals: Mapping[str, Refusal]) -> bool:
    """Tell whether Pods are already leaving the Node that was promised to the Pod."""
    room = board.rooms.get(pod.nominated) if pod.nominated else None
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
