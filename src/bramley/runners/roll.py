"""How many Pods a roll may change at once, and which ones count as being changed; pure.

A roll is in progress while an idle Pod of another image than the target is alive. Then *in flight* are the idle stale Pods that
are being drained, and the idle Pods of the target image that are not Ready and were created for a stale Pod or for more
capacity. Tickets in the pool's status count like what they announce: they are written, by compare-and-set, before the Pod is
marked or created, so neither a stale cache nor a second controller can count too little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bramley.api.runner_pool_status import PendingPod, Slot
from bramley.runners.pods import RunnerPod

_TURNOVER = "Turnover"


@dataclass(frozen=True, slots=True)
class RollState:
    """What the limit of one pool's roll depends on; `draining` has the names of Pods with a ticket."""

    percent: int
    replicas: int
    target: str
    pods: Sequence[RunnerPod] = ()
    slots: Sequence[Slot] = ()
    draining: frozenset[str] = frozenset()

    @property
    def cap(self) -> int:
        """Return how many Pods may be in flight."""
        return cap(self.percent, self.replicas)

    @property
    def stale(self) -> list[RunnerPod]:
        """Return the Pods that are alive and have another image than the target."""
        return [pod for pod in self.pods if pod.is_alive and is_stale(pod, self.target)]

    @property
    def is_in_progress(self) -> bool:
        """Return whether an idle stale Pod is alive, or is about to be created."""
        if any(pod.is_idle for pod in self.stale):
            return True
        return any(slot.pending.image != self.target for _, slot in self.unseen if slot.pending)

    @property
    def unseen(self) -> list[tuple[int, Slot]]:
        """Return the slots with a ticket whose Pod is not observed yet, with their numbers."""
        seen = {(pod.slot, pod.counter) for pod in self.pods}
        return [
            (number, slot)
            for number, slot in enumerate(self.slots)
            if slot.pending is not None and (number, slot.counter) not in seen
        ]

    @property
    def drained(self) -> list[RunnerPod]:
        """Return the idle stale Pods that are marked or have a ticket; a Pod that was claimed no longer counts."""
        return [
            pod
            for pod in self.stale
            if pod.is_idle and (pod.is_marked or pod.name in self.draining)
        ]

    @property
    def booting(self) -> list[RunnerPod]:
        """Return the idle Pods of the target image that the roll waits for."""
        return [
            pod
            for pod in self.pods
            if pod.is_idle
            and not is_stale(pod, self.target)
            and not pod.is_ready
            and pod.created_for != _TURNOVER
        ]

    @property
    def in_flight(self) -> int:
        """Return how many Pods the roll is changing; 0 if none is in progress."""
        if not self.is_in_progress:
            return 0
        announced = sum(each.created_for != _TURNOVER for each in self.announced)
        return len(self.drained) + len(self.booting) + announced

    @property
    def trials(self) -> int:
        """Return how many Pods try the target image, or will once a stale Pod is drained."""
        alive = sum(pod.is_alive and not is_stale(pod, self.target) for pod in self.pods)
        return len(self.drained) + alive + len(self.announced)

    @property
    def announced(self) -> list[PendingPod]:
        """Return the Pods of the target image that have a ticket and are not observed yet."""
        pending = [slot.pending for _, slot in self.unseen]
        return [each for each in pending if each is not None and each.image == self.target]


@dataclass(frozen=True, slots=True)
class Room:
    """How many more Pods may get in flight: the smallest of what pool, fleet and phase leave."""

    pool: int
    fleet: int
    phase: int

    @property
    def count(self) -> int:
        """Return the number of Pods."""
        return max(0, min(self.pool, self.fleet, self.phase))


def is_stale(pod: RunnerPod, target: str) -> bool:
    """Return whether a Pod has another image than the target; one without a container has none."""
    return bool(pod.image) and not is_same_image(pod.image, target)


def is_same_image(one: str, other: str) -> bool:
    """Return whether two references name the same image: they are equal, or have the same digest under different tags."""
    digest = one.partition("@")[2]
    return one == other or (bool(digest) and digest == other.partition("@")[2])


def cap(percent: int, replicas: int) -> int:
    """Return max(1, floor(percent / 100 * replicas))."""
    if percent <= 0 or replicas <= 0:
        return 1
    return max(1, percent * replicas // 100)


def fleet_cap(pools: Iterable[RollState]) -> int:
    """Return the cap of pools that share hosts: the lowest percentage of all their replicas."""
    states = list(pools)
    if not states:
        return 1
    return cap(min(state.percent for state in states), sum(state.replicas for state in states))


def room(state: RollState, siblings: Iterable[RollState], *, phase: int) -> Room:
    """Return how many more Pods of this pool may get in flight; `phase` is what the phase of the roll leaves."""
    fleet = [state, *siblings]
    return Room(
        pool=state.cap - state.in_flight,
        fleet=fleet_cap(fleet) - sum(each.in_flight for each in fleet),
        phase=phase,
    )
