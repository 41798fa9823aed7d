"""One decision: filter the Nodes, score those that are left, choose. Pure but for the board it reads and the dice it is given."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bramley.apiserver.controllers.scheduling import (
    filters,
    matching,
    neighbours,
    preempting,
    scores,
)
from bramley.apiserver.controllers.scheduling.board import Board
from bramley.apiserver.controllers.scheduling.facts import PodFacts
from bramley.apiserver.controllers.scheduling.filters import Refusal
from bramley.apiserver.controllers.scheduling.neighbours import Neighbours
from bramley.apiserver.controllers.scheduling.rooms import Room

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
    victims: tuple[PodFacts, ...] = ()
    nominated: str = ""


Decision = Fits | Unfit


@dataclass(slots=True)
class Search:
    """Where a Pod may go, and why not elsewhere."""

    fitting: list[Room] = field(default_factory=list)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    complaint: str = ""


def decide(pod: PodFacts, board: Board, dice: random.Random) -> Decision:
    """Return where the Pod goes, or why nowhere."""
    if not board.open:
        return Unfit(NO_NODES)
    around = neighbours.look_around(pod, board)
    search = look(pod, board, around=around, dice=dice)
    if not search.fitting:
        return _unfit(pod, board, around=around, search=search)
    return Fits(_best(pod, search.fitting, board=board, dice=dice).name)


def look(pod: PodFacts, board: Board, *, around: Neighbours, dice: random.Random) -> Search:
    """Try the Nodes until enough of them fit, beginning anywhere so that none is always last."""
    if (kept := _kept_place(pod, board, around)) is not None:
        return Search([kept])
    named = None if pod.required is None else matching.only_names(pod.required)
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


def _kept_place(pod: PodFacts, board: Board, around: Neighbours) -> Room | None:
    """Return the room that was freed for the Pod, if it may go there."""
    room = board.rooms.get(pod.nominated) if pod.nominated else None
    if room is None or not room.is_there:
        return None
    return room if may_go(pod, room, board=board, around=around) is None else None


def may_go(pod: PodFacts, room: Room, *, board: Board, around: Neighbours) -> Refusal | None:
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


def _best(pod: PodFacts, fitting: list[Room], *, board: Board, dice: random.Random) -> Room:
    if len(fitting) == 1:
        return fitting[0]
    wished = neighbours.wished(pod, board)
    points = scores.points(pod, fitting, wished)
    most = max(points)
    return dice.choice([room for room, each in zip(fitting, points, strict=True) if each == most])


def _unfit(pod: PodFacts, board: Board, *, around: Neighbours, search: Search) -> Unfit:
    count = len(board.open)
    if search.complaint:
        return Unfit(f"{_none_of(count)}: {search.complaint}. {_UNPREPARED}")
    told = f"{_none_of(count)}: {_histogram(search.refusals.values())}."
    found = preempting.find(pod, board, around=around, refusals=search.refusals)
    if isinstance(found, preempting.Preemption):
        return Unfit(told, found.victims, found.node)
    if isinstance(found, str):
        # Nobody was looked for, so what was promised earlier still holds.
        return Unfit(f"{told} {_NO_CLAIMS}, preemption: {found}", nominated=pod.nominated)
    after = f"{_none_of(count)}: {_histogram_of_all(found, count)}."
    return Unfit(f"{told} {_NO_CLAIMS}, preemption: {after}")


def _none_of(count: int) -> str:
    return f"0/{count} nodes are available"


def _histogram_of_all(found: Mapping[str, Refusal], count: int) -> str:
    rest = [preempting.NOT_HELPFUL] * (count - len(found))
    return _histogram([*found.values(), *rest])


def _histogram(refusals: Iterable[Refusal]) -> str:
    counts = Counter(reason for each in refusals for reason in each.reasons)
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
