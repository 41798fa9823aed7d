"""How many Pods a roll may change at once, and which ones count as being changed; pure.

A roll is in progress while an idle Pod of another image than the target is alive. Then *in flight* are the idle stale Pods that
are being drained, and the idle Pods of the target image that are not Ready and were created for a stale Pod or for more
capacity. Tickets in the pool's status count like what they announce: they are written, by compare-and-set, before the Pod is
marked or created, so neither a stale cache nor a second controller can count too little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from bramley.api.runner_pool_status import DrainTicket, PendingPod, Slot
from bramley.runners.pods import RunnerPod

UNLIMITED = 1_000_000
# Longer than a request of a controller may take.
MARK_TIMEOUT = timedelta(minutes=1)
_TURNOVER = "Turnover"
_LATEST = datetime.max.replace(tzinfo=UTC)


# Without slots, so that what is computed from many Pods is computed once.
@dataclass(frozen=True)
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

    @cached_property
    def stale(self) -> list[RunnerPod]:
        """Return the Pods that are alive and have another image than the target."""
        return [pod for pod in self.pods if pod.is_alive and is_stale(pod, self.target)]

    @cached_property
    def is_in_progress(self) -> bool:
        """Return whether an idle stale Pod is alive, or is about to be created."""
        return any(pod.is_idle for pod in self.stale) or self._announces_stale

    @cached_property
    def is_complete(self) -> bool:
        """Return whether no Pod has another image than the target, with or without a job."""
        return not self.stale and not self._announces_stale

    @cached_property
    def _announces_stale(self) -> bool:
        pending = [slot.pending for _, slot in self.unseen]
        return any(
            each is not None and not is_same_image(each.image, self.target) for each in pending
        )

    @cached_property
    def by_slot(self) -> dict[tuple[int, int], RunnerPod]:
        """Return the Pods by slot and counter."""
        return {(pod.slot, pod.counter): pod for pod in self.pods if pod.slot >= 0}

    @cached_property
    def unseen(self) -> list[tuple[int, Slot]]:
        """Return the slots with a ticket whose Pod is not observed yet, with their numbers."""
        return [
            (number, slot)
            for number, slot in enumerate(self.slots)
            if slot.pending is not None and (number, slot.counter) not in self.by_slot
        ]

    @cached_property
    def drained(self) -> list[RunnerPod]:
        """Return the idle stale Pods that are marked or have a ticket; a Pod that was claimed no longer counts."""
        return [
            pod
            for pod in self.stale
            if pod.is_idle and (pod.is_marked or pod.name in self.draining)
        ]

    @cached_property
    def wrongly_marked(self) -> list[RunnerPod]:
        """Return the idle Pods of the target image that are marked: the mark would count in the next roll."""
        marked = (pod for pod in self.pods if pod.is_idle and pod.is_marked)
        return [pod for pod in marked if not is_stale(pod, self.target)]

    @cached_property
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
        return self.changing if self.is_in_progress else 0

    @cached_property
    def changing(self) -> int:
        """Return how many Pods are being changed, also while all stale Pods have a job.

        Without this, a pool whose runners are all busy would pull the image on every host at which a job ends.
        """
        announced = sum(map(self.puts_in_flight, self.announced))
        return len(self.drained) + len(self.booting) + announced

    def puts_in_flight(self, pending: PendingPod) -> bool:
        """Return whether an announced Pod will be in flight until it is Ready."""
        return is_same_image(pending.image, self.target) and pending.created_for != _TURNOVER

    @property
    def trials(self) -> int:
        """Return how many Pods try the target image, or will once a stale Pod is drained."""
        alive = sum(pod.is_alive and not is_stale(pod, self.target) for pod in self.pods)
        return len(self.drained) + alive + len(self.announced)

    @cached_property
    def announced(self) -> list[PendingPod]:
        """Return the Pods of the target image that have a ticket and are not observed yet."""
        pending = [slot.pending for _, slot in self.unseen]
        return [
            each for each in pending if each is not None and is_same_image(each.image, self.target)
        ]


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

    @property
    def is_exceeded(self) -> bool:
        """Return whether more Pods are being changed than the caps allow."""
        return min(self.pool, self.fleet) < 0


def is_stale(pod: RunnerPod, target: str) -> bool:
    """Return whether a Pod has another image than the target; one without a container has none."""
    return bool(pod.image) and not is_same_image(pod.image, target)


def is_same_image(one: str, other: str) -> bool:
    """Return whether two references name the same image: they are equal, or have the same digest under different tags."""
    if one == other:
        return True
    digest = one.partition("@")[2]
    return bool(digest) and digest == other.partition("@")[2]


def is_between_pods(
    pods: Iterable[RunnerPod], target: str, last_good: str, *, replicas: int
) -> bool:
    """Return whether the last Pod of an old image has just ended and its successor is not there yet."""
    if not last_good or is_same_image(target, last_good):
        return False
    return replicas > 0 and not any(pod.is_alive for pod in pods)


def was_in_flight(pod: RunnerPod) -> bool:
    """Return whether a Pod of the target image ended before it was Ready, so that its successor takes its place in the roll."""
    if pod.created_for == _TURNOVER or pod.is_claimed:
        return False
    return pod.is_failure or (pod.is_deleting and not pod.is_ready)


def cap(percent: int, replicas: int) -> int:
    """Return max(1, floor(percent / 100 * replicas))."""
    if percent <= 0 or replicas <= 0:
        return 1
    return max(1, percent * replicas // 100)


def unmarked(
    pods: Iterable[RunnerPod], tickets: Iterable[DrainTicket], hosts: frozenset[str]
) -> list[RunnerPod]:
    """Return the Pods with a ticket that get their mark now: none on a host that lacks the image."""
    drained = {ticket.pod for ticket in tickets}
    missing = (pod for pod in pods if pod.name in drained and not pod.is_marked)
    return [pod for pod in missing if not pod.node or pod.node in hosts]


def withdrawn(
    drained: Iterable[RunnerPod],
    since: Mapping[str, datetime],
    hosts: frozenset[str],
    now: datetime,
) -> set[str]:
    """Return the Pods that lose their ticket: the target changed before they were marked, and their host lacks the new image.

    Only after a while: the mark may still be on its way from another controller, and would not be counted.
    """
    return {
        pod.name
        for pod in drained
        if not pod.is_marked
        and pod.node
        and pod.node not in hosts
        and now - since.get(pod.name, now) >= MARK_TIMEOUT
    }


def next_to_drain(
    state: RollState, candidates: Iterable[RunnerPod], *, count: int
) -> list[RunnerPod]:
    """Return the Pods to drain next: on hosts where the fewest are in flight, first VMs that have not booted, then the oldest."""
    remaining, chosen = list(candidates), list[RunnerPod]()
    in_flight = Counter(pod.node for pod in (*state.drained, *state.booting))
    while remaining and len(chosen) < count:
        first = min(
            remaining,
            # The sum is 0 for a VM that has not booted, 1 for one that is not Ready, and 2 for one that could take a job.
            key=lambda p: (
                *(p.has_started + p.is_ready, in_flight[p.node]),
                *(p.created_at or _LATEST, p.name),
            ),
        )
        remaining.remove(first)
        chosen.append(first)
        in_flight[first.node] += 1
    return chosen


def fleet_cap(pools: Iterable[RollState]) -> int:
    """Return the cap of pools that share hosts: the lowest percentage of all their replicas."""
    states = list(pools)
    if not states:
        return 1
    return cap(min(state.percent for state in states), sum(state.replicas for state in states))


def room(
    state: RollState, siblings: Iterable[RollState], *, phase: int, has_last_good: bool = True
) -> Room:
    """Return how many more Pods of this pool may get in flight; `phase` is what the phase of the roll leaves."""
    if not has_last_good:
        # No cap applies to a new pool: there is no Pod that works and could be lost.
        return Room(UNLIMITED, UNLIMITED, phase)
    others = list(siblings)
    counted = sum(each.changing for each in others if not each.is_complete)
    return Room(
        pool=state.cap - state.changing,
        fleet=fleet_cap([state, *others]) - state.changing - counted,
        phase=phase,
    )
