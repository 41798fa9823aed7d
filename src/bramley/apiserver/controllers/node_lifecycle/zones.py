"""How fast the Nodes of a zone may be tainted for eviction, depending on how many of them are ready.

One Node per interval normally; slower or not at all when most of a zone is not ready; not at all when no Node is ready,
because then the control plane itself is probably disconnected, and its outage must not empty the fleet.
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
# So few unready Nodes are no disruption, whatever their share of the zone.
_TOLERATED_NOT_READY = 2


class ZoneState(Enum):
    """How many Nodes of a zone are ready."""

    INITIAL = "initial"
    NORMAL = "normal"
    PARTIAL = "partial disruption"
    FULL = "full disruption"


def zone_of(node: Node) -> str:
    """Return the region and zone of a Node; empty if it has neither label."""
    labels = node.metadata.labels
    names = [_first(labels, keys) for keys in (_REGION, _ZONE)]
    return "/".join(names) if any(names) else ""


def counts_for_disruption(node: Node) -> bool:
    """Return whether the Node counts for the state of its zone."""
    return _EXCLUDED not in node.metadata.labels


def zone_state(are_ready: Iterable[bool], *, share: float) -> ZoneState:
    """Return the state of a zone from the readiness of its Nodes; `share` is that of unready ones in a disrupted zone."""
    nodes = list(are_ready)
    not_ready = nodes.count(False)
    if not_ready and not_ready == len(nodes):
        return ZoneState.FULL
    if not_ready > _TOLERATED_NOT_READY and not_ready / len(nodes) >= share:
        return ZoneState.PARTIAL
    return ZoneState.NORMAL


@dataclass(slots=True)
class EvictionLimiter:
    """Accepts one eviction per interval; none if the interval is None."""

    interval: float | None
    ready_at: float = 0.0

    def try_accept(self, now: float) -> bool:
        """Return whether an eviction may begin now, and if so count it."""
        if self.interval is None or now < self.ready_at:
            return False
        self.ready_at = now + self.interval
        return True


class DisruptionChange(Enum):
    """A change that concerns all zones."""

    NONE = "none"
    ALL_DISRUPTED = "all disrupted"
    RECOVERED = "recovered"


@dataclass(slots=True)
class Zones:
    """The states and eviction limiters of all zones."""

    timings: Timings
    states: dict[str, ZoneState] = field(default_factory=dict)
    limiters: dict[str, EvictionLimiter] = field(default_factory=dict)
    was_any_ready: bool = False

    def limiter(self, zone: str) -> EvictionLimiter:
        """Return the eviction limiter of a zone."""
        interval = self.timings.eviction_interval.total_seconds()
        return self.limiters.setdefault(zone, EvictionLimiter(interval))

    def update(self, readiness: Mapping[str, list[bool]]) -> DisruptionChange:
        """Set the states of all zones from the readiness of their Nodes."""
        share = self.timings.disrupted_share
        new = {zone: zone_state(nodes, share=share) for zone, nodes in readiness.items()}
        old = {zone: self.states.get(zone, ZoneState.INITIAL) for zone in new}
        self.states = new
        are_disrupted = all(state is ZoneState.FULL for state in new.values())
        were_disrupted = all(state is ZoneState.FULL for state in old.values())
        if not new or (are_disrupted and were_disrupted):
            return DisruptionChange.NONE
        if are_disrupted:
            self.limiters = {zone: EvictionLimiter(None) for zone in new}
            return DisruptionChange.ALL_DISRUPTED
        self.was_any_ready = True
        for zone, state in new.items():
            if were_disrupted or state is not old[zone]:
                self.limiters[zone] = EvictionLimiter(self._interval(state, len(readiness[zone])))
        return DisruptionChange.RECOVERED if were_disrupted else DisruptionChange.NONE

    def _interval(self, state: ZoneState, size: int) -> float | None:
        timings = self.timings
        if state is not ZoneState.PARTIAL:
            return timings.eviction_interval.total_seconds()
        if size <= timings.large_cluster:
            return None
        return timings.eviction_interval_disrupted.total_seconds()


def _first(labels: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((labels[key] for key in keys if key in labels), "")
