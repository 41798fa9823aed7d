"""Explains one pool: the phase of its roll, what it waits for, and what happens next, from the API's objects alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bramley.api import conditions
from bramley.api.core import Node
from bramley.api.names import conditions as types
from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.base.explanation import EventNote, Explanation, PodNote, Problem, length
from bramley.runners import roll, rollout, staging
from bramley.runners.decision import Fleet, PoolView, staging_state
from bramley.runners.explanation import hosts as host_states
from bramley.runners.explanation.hosts import host_notes, listed
from bramley.runners.explanation.pods import pod_note
from bramley.runners.hosts import fleet_of, host_of
from bramley.runners.judgement import SETTLE
from bramley.runners.pods import RunnerPod, view
from bramley.runners.roll import RollState

# Conditions that are problems while they have this status.
_PROBLEMS = {
    types.SUPPORTED: "False",
    types.AVAILABLE: "False",
    types.ROLLED_OUT: "False",
    types.CAPACITY_SHORT: "True",
    types.STAGING_BLOCKED: "True",
    types.PODS_FAILING: "True",
    types.LABEL_CONFLICT: "True",
}


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """A pool, the other pools of its fleet, and the Pods and Nodes of all of them."""

    pool: RunnerPool
    pools: Sequence[RunnerPool] = ()
    pods: Sequence[Pod] = ()
    nodes: Sequence[Node] = ()
    events: tuple[EventNote, ...] = ()

    @property
    def fleet(self) -> Fleet:
        """Return the fleet of the pool."""
        selector = self.pool.spec.fleet_selector
        shared = [
            each
            for each in self.pools
            if each.spec.fleet_selector == selector and each.spec.os == labels.DARWIN
        ]
        hosts = [each for each in self.nodes if fleet_of(each) == selector]
        return Fleet(
            pools=tuple(PoolView(each, self.views(each)) for each in shared or [self.pool]),
            hosts=tuple(map(host_of, hosts)),
        )

    def of(self, pool: RunnerPool) -> list[Pod]:
        """Return the Pods of a pool."""
        return [
            each
            for each in self.pods
            if each.namespace == pool.namespace
            and each.metadata.labels.get(labels.RUNNER_POOL) == pool.name
        ]

    def views(self, pool: RunnerPool) -> tuple[RunnerPod, ...]:
        """Return the Pods of a pool as its controller sees them."""
        return tuple(map(view, self.of(pool)))


def explain_pool(facts: PoolFacts, *, now: datetime) -> Explanation:
    """Return the explanation of a pool."""
    pool = facts.pool
    context = _Context(facts, facts.fleet, now)
    phase = _phase(context)
    return Explanation(
        subject=f"pool {pool.namespace}/{pool.name}",
        state="Deleting" if pool.deleting else pool.status.roll_phase or "New",
        summary=phase.summary,
        since=phase.since,
        waits_for=phase.waits_for,
        next=phase.next,
        problems=tuple(_problems(pool)),
        notes=tuple(_notes(pool)),
        pods=context.notes,
        hosts=host_notes(pool, context.fleet, now=now),
        events=facts.events,
    )


@dataclass(frozen=True, slots=True)
class _Phase:
    summary: str
    since: datetime | None = None
    waits_for: tuple[str, ...] = ()
    next: str = ""


@dataclass(frozen=True, slots=True)
class _Context:
    """What the texts are computed from."""

    facts: PoolFacts
    fleet: Fleet
    now: datetime

    @property
    def pool(self) -> RunnerPool:
        return self.facts.pool

    @property
    def view(self) -> PoolView:
        found = (each for each in self.fleet.pools if each.pool.name == self.pool.name)
        return next(found, PoolView(self.pool, self.facts.views(self.pool)))

    @property
    def state(self) -> RollState:
        return self.view.state

    @property
    def states(self) -> staging.HostStates:
        return staging.host_states(staging_state(self.view), self.fleet.hosts)

    @property
    def notes(self) -> tuple[PodNote, ...]:
        pods = sorted(self.facts.of(self.pool), key=lambda each: each.name)
        return tuple(pod_note(each, self.pool) for each in pods)

    @property
    def alive(self) -> list[RunnerPod]:
        return [pod for pod in self.view.pods if pod.is_alive]

    def described(self, pods: Sequence[RunnerPod]) -> tuple[str, ...]:
        """Return what Pods do, one text for each."""
        by_name = {note.name: note for note in self.notes}
        return tuple(_described(by_name[pod.name], self.now) for pod in pods if pod.name in by_name)


def _described(note: PodNote, now: datetime) -> str:
    where = f" on {note.node}" if note.node else ""
    since = f" ({length(now - note.since)})" if note.since else ""
    return f"Pod {note.name}{where} {note.state}{since}"


def _phase(context: _Context) -> _Phase:
    pool = context.pool
    if pool.deleting:
        busy = [pod for pod in context.alive if pod.is_claimed]
        return _Phase(
            "it is being deleted",
            pool.metadata.deletion_timestamp,
            context.described(busy),
            "idle Pods are deleted at once, Pods with a job when it has ended",
        )
    if not pool.status.roll_phase or not rollout.is_observed(pool):
        return _Phase(
            "the controller has not acted on the last change",
            waits_for=("the pool controller: check that bramley runners runs and leads",),
        )
    return _PHASES[pool.status.roll_phase](context)


def _idle(context: _Context) -> _Phase:
    pool, alive = context.pool, context.alive
    ready = sum(pod.is_ready for pod in alive)
    waiting = [pod for pod in alive if not pod.is_ready]
    summary = (
        f"{ready} of {pool.spec.replicas} runners are ready, with image {context.state.target}"
    )
    missing = pool.spec.replicas - len(alive)
    waits_for = context.described(waiting)
    if missing > 0:
        waits_for += (f"a place for {missing} more {_runners(missing)}",)
    return _Phase(summary, None, waits_for, "a change of spec.image starts a roll")


def _staging(context: _Context) -> _Phase:
    states, image = context.states, context.state.target
    summary = (
        f"no host with an idle runner has image {image} yet; {len(states.ready)} of "
        f"{len(context.fleet.usable)} hosts have it"
    )
    waits_for = tuple(host_states.pulling(context.fleet.hosts, states.pulling, image))
    started = context.pool.status.roll_started_at
    return _Phase(summary, started, waits_for, "the first host that has it gets a canary")


def _canary(context: _Context) -> _Phase:
    pool, state = context.pool, context.state
    canaries = [pod for pod in state.pods if pod.is_alive and pod.image == state.target]
    limit = length(timedelta(seconds=pool.spec.rollout.canary.timeout_seconds))
    waits_for = context.described(canaries or state.drained)
    then = (
        f"a canary is good once it has polled, or without polls has been ready for {length(SETTLE)}; then at most "
        f"{state.cap} of {pool.spec.replicas} runners are replaced at a time. A canary that takes longer than {limit} "
        "after its pull rejects the image"
    )
    clocks = [each.started_at for each in pool.status.canaries]
    return _Phase(
        f"image {state.target} is on trial; {pool.status.target_failures} of its Pods have failed",
        min(clocks, default=pool.status.roll_started_at),
        waits_for or ("a place for a canary",),
        then,
    )


def _rolling(context: _Context) -> _Phase:
    pool, state = context.pool, context.state
    updated = len(context.alive) - len(state.stale)
    summary = (
        f"{updated} of {pool.spec.replicas} runners have image {state.target}; "
        f"{state.in_flight} of at most {state.cap} are being replaced"
    )
    waits_for = (*context.described([*state.drained, *state.booting]), *_blocked(context))
    then = "the next idle runner with an old image is replaced"
    return _Phase(summary, pool.status.roll_started_at, waits_for, then)


def _blocked(context: _Context) -> Iterator[str]:
    """Yield why no more runners are being replaced."""
    state, states = context.state, context.states
    busy = [pod for pod in state.stale if pod.is_claimed]
    if busy:
        yield f"{len(busy)} {_runners(len(busy))} with a job and an old image"
    siblings = [each.state for each in context.fleet.siblings(context.view)]
    room = roll.room(state, siblings, phase=len(state.stale))
    if room.fleet <= 0 < room.pool:
        yield "other pools of the fleet, which roll and share its cap"
    idle = {pod.node for pod in state.stale if pod.is_idle and pod.node}
    absent = sorted(idle - states.ready)
    if absent and context.pool.spec.rollout.staging.mode != "Disabled":
        yield from host_states.pulling(context.fleet.hosts, absent, state.target)


def _paused(context: _Context) -> _Phase:
    state = context.state
    return _Phase(
        f"the roll to image {state.target} is paused; {len(state.stale)} runners have another image",
        context.pool.status.roll_started_at,
        (f"bramley rollout resume pool/{context.pool.name}",),
        "runners that end are replaced by the last good image",
    )


def _rejected(context: _Context) -> _Phase:
    pool, state = context.pool, context.state
    rolled_out = conditions.find(pool.status.conditions, types.ROLLED_OUT)
    summary = rolled_out.message if rolled_out else ""
    stale = context.described([pod for pod in state.stale if pod.is_alive])
    then = f"to try it nevertheless: bramley rollout promote pool/{pool.name}"
    since = rolled_out.last_transition_time if rolled_out else None
    return _Phase(summary or f"image {pool.spec.image} is rejected", since, stale, then)


_PHASES: Mapping[str, Callable[[_Context], _Phase]] = {
    "Idle": _idle,
    "Staging": _staging,
    "Canary": _canary,
    "Rolling": _rolling,
    "Paused": _paused,
    "Rejected": _rejected,
}


def _problems(pool: RunnerPool) -> Iterator[Problem]:
    for type, status in _PROBLEMS.items():
        found = conditions.find(pool.status.conditions, type)
        if found is None or found.status != status:
            continue
        # A roll is no problem unless it makes no progress.
        if type != types.ROLLED_OUT or found.reason == types.PROGRESS_DEADLINE_EXCEEDED:
            yield Problem(
                type=type,
                status=status,
                reason=found.reason,
                message=found.message,
                since=found.last_transition_time,
            )


def _notes(pool: RunnerPool) -> Iterator[str]:
    status, autoscaling = pool.status, pool.status.autoscaling
    if rollout.is_paused(pool) and status.roll_phase != "Paused":
        yield "rolls are paused; the next one does not begin"
    if status.last_good_image and status.last_good_image != rollout.target_of(pool):
        yield f"the last good image is {status.last_good_image}"
    waiting = [slot.retry_at for slot in status.slots if slot.retry_at and not slot.active]
    if waiting:
        yield f"{len(waiting)} Pods are created again after a failure, the first at {min(waiting):%H:%M:%S} UTC"
    if autoscaling is not None and autoscaling.reason:
        yield f"the autoscaler decided on {autoscaling.replicas} ({autoscaling.reason}): {autoscaling.message}"


def _runners(count: int) -> str:
    return "runner" if count == 1 else "runners"


def known_pools(pools: Sequence[RunnerPool]) -> str:
    """Return the names of the pools that exist, for messages."""
    names = sorted(f"{each.namespace}/{each.name}" for each in pools)
    return listed(names, most=10) or "there are none"
