"""How fast Nodes of a zone may be tainted for eviction, given how the zones are. Pure but for the pace it keeps.

One Node after the other in good times; hardly or not at all when most of a zone is silent; not at all when every Node is,
because then it is us who cannot hear: a fleet must not be emptied by an outage of its control plane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from bramley.api.core import Node
from bramley.apiserver.controllers.timings import Timings

_EXCLUDED = "node.kubernetes.io/exclude-disruption"
_ZONE = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGION = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
# So few silent Nodes are no disruption, whatever share of the zone they are.
_FEW = 2


class State(Enum):
    """How a zone is."""

    INITIAL = "initial"
    NORMAL = "normal"
    PARTIAL = "partial disruption"
    FULL = "full disruption"


def zone_of(node: Node) -> str:
    """Return the zone of a Node, with its region; empty when it names neither."""
    labels = node.metadata.labels
    names = [_first(labels, keys) for keys in (_REGION, _ZONE)]
    return "/".join(names) if any(names) else ""


def counts(node: Node) -> bool:
    """Tell whether the Node says something about its zone."""
    return _EXCLUDED not in node.metadata.labels


def state_of(are_ready: Iterable[bool], *, share: float) -> State:
    """Return how a zone is whose Nodes are ready or not; from this share of silent ones on it is disrupted."""
    answers = list(are_ready)
    silent = answers.count(False)
    if silent and silent == len(answers):
        return State.FULL
    if silent > _FEW and silent / len(answers) >= share:
        return State.PARTIAL
    return State.NORMAL


@dataclass(slots=True)
class Pace:
    """Lets one through at a time, with an interval between; with None, nobody."""

    interval: float | None
    ready_at: float = 0.0

    def allows(self, now: float) -> bool:
        """Tell whether one may pass now, and if so count it."""
        if self.interval is None or now < self.ready_at:
            return False
        self.ready_at = now + self.interval
        return True


class Turn(Enum):
    """What a new look at the zones means for all of them."""

    NONE = "none"
    ALL_SILENT = "all silent"
    SOME_BACK = "some back"


@dataclass(slots=True)
class Zones:
    """The states and paces of all zones."""

    timings: Timings
    states: dict[str, State] = field(default_factory=dict)
    paces: dict[str, Pace] = field(default_factory=dict)
    was_one_ready: bool = False

    def pace(self, zone: str) -> Pace:
        """Return the pace of a zone."""
        usual = self.timings.eviction_interval.total_seconds()
        return self.paces.setdefault(zone, Pace(usual))

    def look(self, readiness: Mapping[str, list[bool]]) -> Turn:
        """Take over which Nodes of which zones are ready."""
        share = self.timings.disrupted_share
        new = {zone: state_of(answers, share=share) for zone, answers in readiness.items()}
        old = {zone: self.states.get(zone, State.INITIAL) for zone in new}
        self.states = new
        all_silent = all(state is State.FULL for state in new.values())
        were_silent = all(state is State.FULL for state in old.values())
        if not new or (all_silent and were_silent):
            return Turn.NONE
        if all_silent:
            self.paces = {zone: Pace(None) for zone in new}
            return Turn.ALL_SILENT
        self.was_one_ready = True
        for zone, state in new.items():
            if were_silent or state is not old[zone]:
                self.paces[zone] = Pace(self._interval(state, len(readiness[zone])))
        return Turn.SOME_BACK if were_silent else Turn.NONE

    def _interval(self, state: State, size: int) -> float | None:
        timings = self.timings
        if state is not State.PARTIAL:
            return timings.eviction_interval.total_seconds()
        if size <= timings.large_cluster:
            return None
        return timings.eviction_interval_disrupted.total_seconds()


def _first(labels: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((labels[key] for key in keys if key in labels), "")
