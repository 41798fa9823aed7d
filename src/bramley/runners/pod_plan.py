"""Which Pods of a pool to create, drain, mark and delete; pure.

A slot is filled by one Pod after another. Its counter is increased in the status before the Pod is created, and its name is
computed from both, so a create that is repeated after a crash cannot make a second Pod. Pods that end free their slot at once,
however long they stay Terminating. A claimed Pod is never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from bramley.api.runner_pool_status import CreatedFor, DrainTicket, PendingPod, Slot
from bramley.runners import pod_timeouts, roll
from bramley.runners.pod_timeouts import FAILURES, Why
from bramley.runners.pods import RunnerPod
from bramley.runners.roll import RollState, Room

FIRST_RETRY, LAST_RETRY = timedelta(seconds=10), timedelta(minutes=5)


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
    # Hosts that are not Ready while so many of the fleet are not that the network is the likely cause: their Pods stay.
    unreachable_hosts: frozenset[str]
    # How many Pods beyond its share of the places the pool gives up for its siblings.
    owed: int
    deletes_drained: bool
    # Pods that have never polled, as dispatch reports: they cannot have a job.
    silent_pods: frozenset[str]
    # The image whose canaries are judged: their own timeout applies to them.
    tried_image: str
    # Since when Pods wait for the same thing, by name.
    waiting_since: Mapping[str, datetime]
    now: datetime

    @property
    def is_last_good(self) -> bool:
        """Return whether the target is the last good image: there is no other one to fall back to."""
        return roll.is_same_image(self.last_good, self.roll.target)

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
        # As first seen: a Pod that becomes Ready again has not booted again.
        boot = pod.boot_seconds if slot.boot_seconds is None else slot.boot_seconds
        return Slot(counter=slot.counter, active=True, boot_seconds=boot)
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
        if state.is_last_good:
            # Also while the roll is paused: Pods that end are replaced by the last good image.
            self.room = max(0, min(state.room.pool, state.room.fleet))
        unseen = state.roll.unseen
        self.planned = self._announced()
        alive = sum(pod.is_alive for pod in state.roll.pods)
        self.missing = max(0, state.roll.replicas - alive - len(unseen))
        numbers = self._free_slots(min(self.missing, state.free))
        self.is_limited = self._is_limited(numbers)
        for number in numbers:
            self._fill(number)
        # The target image comes first, so that the scheduler gives the hosts that have it to these Pods.
        self.planned.sort(key=lambda each: each.pending.image != state.roll.target)

    def _announced(self) -> list[PlannedPod]:
        """Return the Pods that were announced and never seen, without those that the caps allow no more.

        The caps shrink with `replicas`. What is held back keeps its ticket, because its create may still be under way.
        """
        state, room = self.state, min(self.state.room.pool, self.state.room.fleet)
        held = max(0, -room) if state.roll.is_in_progress else 0
        planned = [PlannedPod(n, s.counter, s.pending) for n, s in state.roll.unseen if s.pending]
        in_flight = [each for each in planned if state.roll.puts_in_flight(each.pending)]
        return [each for each in planned if each not in in_flight[len(in_flight) - held :]]

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
        if not state.last_good:
            return False
        if not state.roll.is_complete:
            # A pool that has returned to the last good image, and whose last other Pods have a job, rolls no more.
            return state.roll.is_in_progress or not state.is_last_good
        # The successors of the very last stale Pods are still part of the roll.
        previous = map(self._previous, numbers)
        was_stale = any(p is not None and roll.is_stale(p, target) for p in previous)
        return was_stale and not state.is_full and not state.is_last_good

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
        if state.is_last_good:
            # Without staging that is required, the host pulls it for the Pod.
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
    count = min(creation.room, state.room.phase) - waiting
    return roll.next_to_drain(state.roll, candidates, count=count)


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
    surplus = max(len(alive) + len(state.roll.unseen) - state.roll.replicas, state.owed)
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
    timeout, why = pod_timeouts.timeout(pod)
    if pod.node and (pod.image == state.tried_image or pod.node in state.unreachable_hosts):
        timeout = None
    since = state.waiting_since.get(pod.name, state.now)
    return (None if timeout is None else since + timeout), why


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
            or state.now - since[pod.name]
            >= pod_timeouts.drain_timeout(pod, has_polled=pod.name not in state.silent_pods)
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
    moments += [
        ticket.since + timeout
        for ticket in tickets
        for timeout in (pod_timeouts.DRAIN_TIMEOUT, pod_timeouts.READY_DRAIN_TIMEOUT)
    ]
    timeouts = (_timed_out_at(pod, state)[0] for pod in state.roll.pods if pod.is_idle)
    upcoming = (each for each in (*moments, *timeouts) if each is not None and each > state.now)
    return min(upcoming, default=None)
