"""Which Pods of a pool to create, drain, mark and delete; pure.

A slot is filled by one Pod after another. Its counter is increased in the status before the Pod is created, and its name is
computed from both, so a create that is repeated after a crash cannot make a second Pod. Pods that end free their slot at once,
however long they stay Terminating. A claimed Pod is never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from bramley.api.names import events
from bramley.api.runner_pool_status import CreatedFor, DrainTicket, PendingPod, Slot
from bramley.runners import roll
from bramley.runners.pods import RunnerPod
from bramley.runners.roll import RollState

FIRST_RETRY, LAST_RETRY = timedelta(seconds=10), timedelta(minutes=5)
# Idle Pods are replaced when nothing happens for this long. A pull is no standstill: it takes as long as it takes.
UNSCHEDULED_TIMEOUT = timedelta(minutes=5)
START_TIMEOUT = timedelta(minutes=15)
FAILING_TIMEOUT = timedelta(minutes=5)
SILENT_TIMEOUT = timedelta(minutes=5)
# A marked Pod leaves at its next poll; one that does not is deleted.
DRAIN_TIMEOUT = timedelta(minutes=5)


class Why(StrEnum):
    """Why a Pod is deleted; also the reason of the event."""

    DRAINED = events.POD_DRAINED
    SCALED_DOWN = events.POD_SCALED_DOWN
    NODE_DRAINED = events.POD_RETIRED_FOR_NODE_DRAIN
    UNSCHEDULABLE = events.POD_UNSCHEDULABLE
    START_TIMED_OUT = events.POD_START_TIMED_OUT
    NOT_RESPONDING = events.POD_NOT_RESPONDING
    POOL_DELETED = events.POD_OF_DELETED_POOL


FAILURES = frozenset({Why.UNSCHEDULABLE, Why.START_TIMED_OUT, Why.NOT_RESPONDING})


@dataclass(frozen=True, slots=True)
class Deletion:
    """A Pod to delete, and why."""

    pod: RunnerPod
    why: Why


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """A Pod to create, announced in its slot."""

    slot: int
    counter: int
    pending: PendingPod


@dataclass(frozen=True, slots=True)
class PodState:
    """What the plan depends on."""

    roll: RollState
    slots: Sequence[Slot]
    tickets: Sequence[DrainTicket]
    last_good: str
    # How many more Pods may get in flight, and how many the hosts have place for.
    room: int
    free: int
    # On how many places the target image would start without a pull; None if that does not matter.
    target_slots: int | None
    requires_golden: bool
    # Hosts whose Pods may be replaced by the target image, and those that are being drained by people.
    drainable_hosts: frozenset[str]
    cordoned_hosts: frozenset[str]
    deletes_drained: bool
    # Since when Pods wait for the same thing, by name.
    waiting_since: Mapping[str, datetime]
    now: datetime


@dataclass(frozen=True, slots=True)
class PodPlan:
    """What to write to the status, and what to do afterwards."""

    slots: tuple[Slot, ...]
    tickets: tuple[DrainTicket, ...]
    create: tuple[PlannedPod, ...] = ()
    mark: tuple[RunnerPod, ...] = ()
    unmark: tuple[RunnerPod, ...] = ()
    delete: tuple[Deletion, ...] = ()
    # Pods that the hosts have no place for, and when time alone changes the plan.
    missing: int = 0
    again_at: datetime | None = None
    failed: tuple[RunnerPod, ...] = ()


def plan(state: PodState) -> PodPlan:
    """Return the plan for one pool."""
    slots = [_settled(number, slot, state) for number, slot in enumerate(state.slots)]
    deletions = list(_deletions(state))
    creation = _Creation(state, slots)
    creation.run()
    marks = _new_marks(state, creation, {each.pod.name for each in deletions})
    tickets = _tickets(state, marks)
    deletions += _drained(state, tickets, deletions)
    _count_failures(creation.slots, deletions, state.now)
    drained = {ticket.pod for ticket in tickets}
    return PodPlan(
        slots=tuple(creation.slots),
        tickets=tickets,
        create=tuple(creation.planned),
        mark=tuple(p for p in state.roll.pods if p.name in drained and not p.is_marked),
        unmark=tuple(_unmarked(state)),
        delete=tuple(deletions),
        missing=creation.missing,
        again_at=_again_at(state, creation.slots, tickets),
        failed=tuple(_ended_badly(state)),
    )


def _settled(number: int, slot: Slot, state: PodState) -> Slot:
    """Return the slot with what its Pod shows: it exists, it works, or it has ended."""
    if not slot.active:
        return slot
    pod = _pod_of(number, slot, state.roll.pods)
    if pod is None:
        # Announced and not observed: it is created again. Observed before and gone now: others deleted it.
        return slot if slot.pending is not None else msgspec.structs.replace(slot, active=False)
    if not pod.is_alive:
        ended = msgspec.structs.replace(slot, active=False, pending=None)
        return _failed(ended, state.now) if pod.is_failure else ended
    if pod.is_ready or pod.is_claimed:
        return Slot(counter=slot.counter, active=True)
    return msgspec.structs.replace(slot, pending=None)


def _failed(slot: Slot, now: datetime) -> Slot:
    failures = slot.failures + 1
    delay = min(FIRST_RETRY * 2 ** min(failures - 1, 8), LAST_RETRY)
    return msgspec.structs.replace(slot, failures=failures, retry_at=_whole(now + delay))


def _whole(when: datetime) -> datetime:
    return when.replace(microsecond=0)


def _pod_of(number: int, slot: Slot, pods: Iterable[RunnerPod]) -> RunnerPod | None:
    return next((p for p in pods if p.slot == number and p.counter == slot.counter), None)


def _ended_badly(state: PodState) -> list[RunnerPod]:
    """Return the Pods whose failure is noticed only now."""
    return [
        pod
        for number, slot in enumerate(state.slots)
        if slot.active
        and (pod := _pod_of(number, slot, state.roll.pods)) is not None
        and pod.is_failure
    ]


@dataclass(slots=True)
class _Creation:
    """Fills free slots; `room` and the places for the target image shrink with each Pod."""

    state: PodState
    slots: list[Slot]
    planned: list[PlannedPod] = field(default_factory=list)
    missing: int = 0
    room: int = 0
    target_slots: int | None = None

    def run(self) -> None:
        """Plan the Pods: those that were announced before and never seen, then those that are missing."""
        state = self.state
        self.room, self.target_slots = state.room, state.target_slots
        unseen = state.roll.unseen
        for number, slot in unseen:
            if slot.pending is not None:
                self.planned.append(PlannedPod(number, slot.counter, slot.pending))
        alive = sum(pod.is_alive for pod in state.roll.pods)
        self.missing = max(0, state.roll.replicas - alive - len(unseen))
        for number in self._free_slots(min(self.missing, state.free)):
            self._fill(number)
        # The target image comes first, so that the scheduler gives the hosts that have it to these Pods.
        self.planned.sort(key=lambda each: each.pending.image != state.roll.target)

    def _free_slots(self, count: int) -> list[int]:
        now = self.state.now
        numbers = [
            number
            for number, slot in enumerate(self.slots)
            if not slot.active and (slot.retry_at is None or slot.retry_at <= now)
        ]
        waiting = sum(not slot.active for slot in self.slots) - len(numbers)
        # A slot that backs off keeps its place: a new one would start the failing Pod at once.
        additional = max(0, count - len(numbers) - waiting)
        first = len(self.slots)
        return [*numbers[:count], *range(first, first + additional)]

    def _fill(self, number: int) -> None:
        slot = self.slots[number] if number < len(self.slots) else Slot()
        previous = _pod_of(number, slot, self.state.roll.pods) if slot.counter else None
        pending = self._pending(previous)
        if pending is None:
            return
        if number >= len(self.slots):
            # Slots in between, if any, stay free.
            self.slots += [Slot()] * (number - len(self.slots) + 1)
        filled = msgspec.structs.replace(
            slot, counter=slot.counter + 1, active=True, pending=pending, retry_at=None
        )
        self.slots[number] = filled
        self.planned.append(PlannedPod(number, filled.counter, pending))
        self.missing -= 1

    def _pending(self, previous: RunnerPod | None) -> PendingPod | None:
        """Return image and reason of the Pod that follows the previous one; None if it has to wait."""
        state, target = self.state, self.state.roll.target
        has_ended = previous is not None and not roll.is_stale(previous, target)
        if has_ended and not _was_part_of_roll(previous):
            return self._target("Turnover")
        reason: CreatedFor = "ScaleUp" if previous is None else "Replacement"
        if not state.roll.is_in_progress or not state.last_good:
            return self._target(reason)
        if self.room > 0 and (self.target_slots is None or self.target_slots > 0):
            self.room -= 1
            if self.target_slots is not None:
                self.target_slots -= 1
            return self._target(reason)
        if state.last_good == target:
            return None
        kept: CreatedFor = "ScaleUp" if previous is None else "Turnover"
        return PendingPod(image=state.last_good, created_for=kept)

    def _target(self, reason: CreatedFor) -> PendingPod:
        state = self.state
        is_required = state.requires_golden and state.roll.is_in_progress
        return PendingPod(image=state.roll.target, created_for=reason, required_golden=is_required)


def _was_part_of_roll(pod: RunnerPod | None) -> bool:
    """Return whether a Pod of the target image ended before it was Ready, so that its successor takes its place in the roll."""
    if pod is None or pod.created_for == "Turnover" or pod.is_claimed:
        return False
    return pod.is_failure or (pod.is_deleting and not pod.is_ready)


def _new_marks(state: PodState, creation: _Creation, deleted: set[str]) -> list[RunnerPod]:
    has_place = creation.target_slots is None or creation.target_slots > 0
    drained = {pod.name for pod in state.roll.drained}
    candidates = [
        pod
        for pod in state.roll.stale
        if pod.is_idle
        and pod.name not in drained
        and pod.name not in deleted
        and (pod.node in state.drainable_hosts if pod.node else has_place)
    ]
    by_host = _in_flight_by_host(state.roll)
    # VMs that have not booted first, one per host as long as there are others, the oldest first.
    candidates.sort(
        key=lambda p: (p.has_started, by_host.get(p.node, 0), p.created_at or state.now, p.name)
    )
    return candidates[: max(0, creation.room)]


def _in_flight_by_host(state: RollState) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for pod in (*state.drained, *state.booting):
        counts[pod.node] = counts.get(pod.node, 0) + 1
    return counts


def _tickets(state: PodState, marks: Sequence[RunnerPod]) -> tuple[DrainTicket, ...]:
    """Return the tickets of all Pods that are drained; one that ended, was claimed or is no longer stale loses its own."""
    since = {ticket.pod: ticket.since for ticket in state.tickets}
    drained = sorted({pod.name for pod in (*state.roll.drained, *marks)})
    return tuple(
        DrainTicket(pod=name, since=since.get(name) or _whole(state.now)) for name in drained
    )


def _unmarked(state: PodState) -> list[RunnerPod]:
    """Return the Pods whose mark would count in the next roll although this one does not drain them."""
    return [
        pod
        for pod in state.roll.pods
        if pod.is_idle and pod.is_marked and not roll.is_stale(pod, state.roll.target)
    ]


def _deletions(state: PodState) -> Iterable[Deletion]:
    victims = set()
    for pod in state.roll.pods:
        why = _why_to_delete(pod, state)
        if why is not None:
            victims.add(pod.name)
            yield Deletion(pod, why)
    alive = [pod for pod in state.roll.pods if pod.is_alive and pod.name not in victims]
    surplus = len(alive) + len(state.roll.unseen) - state.roll.replicas
    idle = [pod for pod in alive if pod.is_idle]
    # VMs that have not booted first, then those with an old image, then the youngest.
    idle.sort(key=lambda p: (p.created_at or state.now, p.name), reverse=True)
    idle.sort(key=lambda p: (p.has_started, not roll.is_stale(p, state.roll.target)))
    for pod in idle[: max(0, surplus)]:
        yield Deletion(pod, Why.SCALED_DOWN)


def _why_to_delete(pod: RunnerPod, state: PodState) -> Why | None:
    if not pod.is_idle:
        return None
    if pod.node in state.cordoned_hosts:
        return Why.NODE_DRAINED
    timed_out_at, why = _timed_out_at(pod, state)
    return why if timed_out_at is not None and timed_out_at <= state.now else None


def _timed_out_at(pod: RunnerPod, state: PodState) -> tuple[datetime | None, Why]:
    """Return when an idle Pod is replaced unless something happens, and why."""
    timeout, why = _timeout(pod)
    since = state.waiting_since.get(pod.name, state.now)
    return (None if timeout is None else since + timeout), why


def _timeout(pod: RunnerPod) -> tuple[timedelta | None, Why]:
    """Return after how long a Pod in this state is replaced, and the reason."""
    if pod.is_ready:
        return None, Why.NOT_RESPONDING
    if not pod.node:
        return UNSCHEDULED_TIMEOUT, Why.UNSCHEDULABLE
    if pod.phase == "Running":
        return SILENT_TIMEOUT, Why.NOT_RESPONDING
    if pod.is_pulling:
        return None, Why.START_TIMED_OUT
    if pod.waiting == events.CREATE_FAILED:
        return FAILING_TIMEOUT, Why.START_TIMED_OUT
    return START_TIMEOUT, Why.START_TIMED_OUT


def _drained(
    state: PodState, tickets: Sequence[DrainTicket], deletions: Sequence[Deletion]
) -> list[Deletion]:
    """Return the drained Pods that dispatch cannot send away: they do not poll yet, or there is no dispatch, or they stay."""
    deleted = {each.pod.name for each in deletions}
    since = {ticket.pod: ticket.since for ticket in tickets}
    return [
        Deletion(pod, Why.DRAINED)
        for pod in state.roll.pods
        if pod.name in since
        and pod.name not in deleted
        # Marked first: the mark is what other controllers and dispatch see.
        and pod.is_marked
        and (
            state.deletes_drained
            or not pod.has_started
            or state.now - since[pod.name] >= DRAIN_TIMEOUT
        )
    ]


def _count_failures(slots: list[Slot], deletions: Sequence[Deletion], now: datetime) -> None:
    for each in deletions:
        number = each.pod.slot
        if each.why not in FAILURES or not 0 <= number < len(slots):
            continue
        # Counted when the deletion is decided; the slot stays active until the Pod is gone.
        if slots[number].counter == each.pod.counter and slots[number].active:
            slots[number] = _failed(slots[number], now)


def _again_at(
    state: PodState, slots: Sequence[Slot], tickets: Sequence[DrainTicket]
) -> datetime | None:
    """Return the next time at which a backoff or a timeout ends."""
    moments = [slot.retry_at for slot in slots if slot.retry_at is not None and not slot.active]
    moments += [ticket.since + DRAIN_TIMEOUT for ticket in tickets]
    timeouts = (_timed_out_at(pod, state)[0] for pod in state.roll.pods if pod.is_idle)
    moments += [moment for moment in timeouts if moment is not None]
    return min((moment for moment in moments if moment > state.now), default=None)


def waiting_since(
    before: Mapping[str, tuple[str, datetime]], pods: Iterable[RunnerPod], now: datetime
) -> dict[str, tuple[str, datetime]]:
    """Return for each idle Pod what it waits for and since when, given the same from the pass before."""
    after = {}
    for pod in pods:
        if pod.is_idle and not pod.is_ready:
            state = f"{pod.uid} {pod.node} {pod.phase} {pod.waiting}"
            known = before.get(pod.name)
            after[pod.name] = known if known is not None and known[0] == state else (state, now)
    return after
