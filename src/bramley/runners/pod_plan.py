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
from bramley.runners.roll import RollState, Room

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
    room: Room
    free: int
    # On how many places the target image would start without a pull; None if that does not matter.
    target_slots: int | None
    requires_golden: bool
    # Hosts whose Pods may be replaced by the target image, and those that are being drained by people.
    drainable_hosts: frozenset[str]
    cordoned_hosts: frozenset[str]
    deletes_drained: bool
    # The image whose canaries are judged: their own timeout applies to them.
    tried_image: str
    # Since when Pods wait for the same thing, by name.
    waiting_since: Mapping[str, datetime]
    now: datetime

    @property
    def is_full(self) -> bool:
        """Return whether a stale Pod, which begins a roll, would put more Pods in flight than the caps allow."""
        return self.roll.changing > 0 and self.room.is_exceeded


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
    return PodPlan(
        slots=tuple(creation.slots),
        tickets=tickets,
        create=tuple(creation.planned),
        mark=tuple(roll.unmarked(state.roll.pods, tickets, state.drainable_hosts)),
        unmark=tuple(state.roll.wrongly_marked),
        delete=tuple(deletions),
        missing=creation.missing,
        again_at=_again_at(state, creation.slots, tickets),
        failed=tuple(_ended_badly(state)),
    )


def _settled(number: int, slot: Slot, state: PodState) -> Slot:
    """Return the slot with what its Pod shows: it exists, it works, or it has ended."""
    if not slot.active:
        return slot
    pod = state.roll.by_slot.get((number, slot.counter))
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


def _ended_badly(state: PodState) -> list[RunnerPod]:
    """Return the Pods whose failure is noticed only now."""
    return [
        pod
        for number, slot in enumerate(state.slots)
        if slot.active
        and (pod := state.roll.by_slot.get((number, slot.counter))) is not None
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
    is_limited: bool = False

    def run(self) -> None:
        """Plan the Pods: those that were announced before and never seen, then those that are missing."""
        state = self.state
        self.room, self.target_slots = state.room.count, state.target_slots
        unseen = state.roll.unseen
        self.planned = [PlannedPod(n, s.counter, s.pending) for n, s in unseen if s.pending]
        alive = sum(pod.is_alive for pod in state.roll.pods)
        self.missing = max(0, state.roll.replicas - alive - len(unseen))
        numbers = self._free_slots(min(self.missing, state.free))
        self.is_limited = self._is_limited(numbers)
        for number in numbers:
            self._fill(number)
        # The target image comes first, so that the scheduler gives the hosts that have it to these Pods.
        self.planned.sort(key=lambda each: each.pending.image != state.roll.target)

    def _free_slots(self, count: int) -> list[int]:
        before, now, first = self.state.slots, self.state.now, len(self.slots)
        free = [number for number, slot in enumerate(self.slots) if not slot.active]
        # Slots whose Pod has just finished come first. One that backs off keeps its place: another would fail at once, too.
        free.sort(key=lambda n: (not before[n].active or self.slots[n].retry_at is not None, n))
        retries = (slot.retry_at for slot in self.slots)
        waiting = {number for number, at in enumerate(retries) if at is not None and at > now}
        chosen = [*free, *range(first, first + count)][:count]
        return [number for number in chosen if number not in waiting]

    def _is_limited(self, numbers: Iterable[int]) -> bool:
        """Return whether only as many Pods may get the target image as the caps leave."""
        state, target = self.state, self.state.roll.target
        if not state.last_good or not state.roll.is_complete:
            return bool(state.last_good)
        # The successors of the very last stale Pods are still part of the roll.
        previous = map(self._previous, numbers)
        was_stale = any(p is not None and roll.is_stale(p, target) for p in previous)
        return was_stale and not state.is_full and not roll.is_same_image(state.last_good, target)

    def _previous(self, number: int) -> RunnerPod | None:
        has_pod = number < len(self.slots) and self.slots[number].counter
        return (
            self.state.roll.by_slot.get((number, self.slots[number].counter)) if has_pod else None
        )

    def _fill(self, number: int) -> None:
        slot = self.slots[number] if number < len(self.slots) else Slot()
        pending = self._pending(self._previous(number))
        if pending is None:
            return
        # Slots in between, if any, stay free.
        self.slots += [Slot()] * (number - len(self.slots) + 1)
        counter = slot.counter + 1
        self.slots[number] = Slot(
            counter=counter, active=True, pending=pending, failures=slot.failures
        )
        self.planned.append(PlannedPod(number, counter, pending))
        self.missing -= 1

    def _pending(self, previous: RunnerPod | None) -> PendingPod | None:
        """Return image and reason of the Pod that follows the previous one; None if it has to wait."""
        state, target = self.state, self.state.roll.target
        was_stale = previous is not None and roll.is_stale(previous, target)
        if previous is not None and not was_stale and not roll.was_in_flight(previous):
            return self._target("Turnover")
        reason: CreatedFor = "ScaleUp" if previous is None else "Replacement"
        if not self.is_limited:
            return self._target(reason)
        if self.room > 0 and (self.target_slots is None or self.target_slots > 0):
            self.room -= 1
            if self.target_slots is not None:
                self.target_slots -= 1
            return self._target(reason)
        if roll.is_same_image(state.last_good, target):
            # There is no other image to fall back to; without staging that is required, the host pulls it for the Pod.
            is_allowed = self.room > 0 and not state.requires_golden
            self.room -= is_allowed
            return self._target(reason) if is_allowed else None
        if state.is_full and not state.roll.is_in_progress:
            return None
        kept: CreatedFor = "ScaleUp" if previous is None else "Turnover"
        return PendingPod(image=state.last_good, created_for=kept)

    def _target(self, reason: CreatedFor) -> PendingPod:
        state = self.state
        is_required = state.requires_golden and not state.roll.is_complete
        return PendingPod(image=state.roll.target, created_for=reason, required_golden=is_required)


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
    # The place of a Pod that failed and is created again later stays taken, or each failure would cost one more runner.
    waiting = sum(not s.active and (s.retry_at or state.now) > state.now for s in creation.slots)
    return roll.next_to_drain(state.roll, candidates, count=creation.room - waiting)


def _tickets(state: PodState, marks: Sequence[RunnerPod]) -> tuple[DrainTicket, ...]:
    """Return the tickets of all Pods that are drained; one that ended, was claimed or is no longer stale loses its own."""
    since = {ticket.pod: ticket.since for ticket in state.tickets}
    drained = {pod.name for pod in (*state.roll.drained, *marks)}
    drained -= roll.withdrawn(state.roll.drained, since, state.drainable_hosts, state.now)
    return tuple(
        DrainTicket(pod=name, since=since.get(name) or _whole(state.now))
        for name in sorted(drained)
    )


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
    if pod.node and pod.image == state.tried_image:
        timeout = None
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
    upcoming = (each for each in (*moments, *timeouts) if each is not None and each > state.now)
    return min(upcoming, default=None)


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
