"""The decision about one pool: its roll, its Pods, the images of its hosts; pure.

`decide` combines `rollout` (target and phase), `roll` (the cap), `capacity` (places), `pod_plan` (Pods) and `staging` (images).
`pool_status` turns the decision into the status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from bramley.api.runner_pool import RunnerPool
from bramley.api.runner_pool_status import HostFailures
from bramley.api.staging import StagingRequest
from bramley.runners import capacity, pod_plan, roll, rollout, staging
from bramley.runners.capacity import Places
from bramley.runners.hosts import NOT_READY, Host
from bramley.runners.judgement import RollSignals
from bramley.runners.pod_plan import PodPlan, PodState
from bramley.runners.pod_timeouts import FAILURES
from bramley.runners.pods import RunnerPod
from bramley.runners.roll import RollState, Room
from bramley.runners.rollout import Rollout
from bramley.runners.staging import HostStates, StagingState

# After so many failures in a row a host gets no Pods of the pool for a while, but never more than a third of the hosts.
FAILURES_TO_AVOID = 3
AVOIDED_FOR = timedelta(minutes=30)
# If a larger share of the hosts is not Ready, their network is the likely cause, and VMs that work must not be replaced.
_MAX_UNREADY_SHARE = 0.4


@dataclass(frozen=True)
class PoolView:
    """One pool with its Pods."""

    pool: RunnerPool
    pods: tuple[RunnerPod, ...] = ()

    @cached_property
    def state(self) -> RollState:
        """Return the roll as the status describes it."""
        return self.state_for(rollout.target_of(self.pool))

    def state_for(self, target: str) -> RollState:
        """Return the roll to this image."""
        status = self.pool.status
        return RollState(
            percent=self.pool.spec.rollout.max_concurrent_percent,
            replicas=0 if self.pool.deleting else self.pool.spec.replicas,
            target=target,
            pods=self.pods,
            slots=status.slots,
            draining=frozenset(ticket.pod for ticket in status.draining),
        )


@dataclass(frozen=True)
class Fleet:
    """All pools that share the same hosts, and these hosts."""

    pools: tuple[PoolView, ...]
    hosts: tuple[Host, ...]

    @property
    def pods(self) -> Iterator[RunnerPod]:
        """Return the Pods of all pools."""
        return (pod for view in self.pools for pod in view.pods)

    @cached_property
    def usable(self) -> frozenset[str]:
        """Return the names of the hosts that take Pods."""
        return frozenset(host.name for host in self.hosts if host.is_usable)

    @property
    def draining(self) -> frozenset[str]:
        """Return the names of the hosts that are cordoned or being deleted."""
        return frozenset(host.name for host in self.hosts if host.is_draining)

    def siblings(self, view: PoolView) -> list[PoolView]:
        """Return the other pools."""
        return [each for each in self.pools if each.pool.name != view.pool.name]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the decision depends on in addition to the fleet."""

    now: datetime
    signals: RollSignals | None = None
    has_dispatch: bool = True
    waiting_since: Mapping[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do for one pool, and the facts that its status shows."""

    rollout: Rollout
    state: RollState
    room: Room
    plan: PodPlan
    staging: Mapping[str, StagingRequest]
    states: HostStates
    places: Places
    # How many Pods the pool may have at most, and the hosts that its new Pods avoid.
    share: int
    avoid: tuple[str, ...]
    host_failures: tuple[HostFailures, ...]

    @property
    def again_at(self) -> datetime | None:
        """Return when time alone may change the decision."""
        moments = (self.rollout.again_at, self.plan.again_at)
        return min((moment for moment in moments if moment is not None), default=None)


def decide(view: PoolView, fleet: Fleet, inputs: Inputs) -> Decision:
    """Return the decision about one pool."""
    siblings = fleet.siblings(view)
    others = [staging_state(each) for each in siblings if not each.pool.deleting]
    places = capacity.places(view.pool.spec, fleet.hosts, fleet.pods)
    new = rollout.advance(_observed(view, fleet, others, inputs))
    is_tried = new.is_tried_by(view.pool)
    staged = StagingState(view.pool, new.target, new.last_good, is_tried, view.pods)
    state = view.state_for(new.target)
    phase, has_good = _phase_room(view.pool, new, state), bool(new.last_good)
    room = roll.room(state, [each.state for each in siblings], phase=phase, has_last_good=has_good)
    failures = _host_failures(view, inputs.now)
    avoid = _avoided(failures, fleet)
    share = _shares(fleet, places)[view.pool.name]
    drainable = drainable_hosts(staged, others, fleet)
    plan = pod_plan.plan(
        PodState(
            roll=state,
            slots=view.pool.status.slots,
            tickets=view.pool.status.draining,
            last_good=new.last_good,
            room=room,
            free=_free(view, fleet, places, share),
            target_slots=_target_slots(staged, state, places, drainable - {*avoid}),
            requires_golden=staged.mode == "Required",
            drainable_hosts=drainable,
            cordoned_hosts=fleet.draining,
            unreachable_hosts=_unreachable_hosts(fleet),
            owed=_owed(view, fleet, places),
            deletes_drained=not inputs.has_dispatch,
            silent_pods=_silent_pods(view, inputs.signals),
            tried_image=new.target if is_tried else "",
            waiting_since=inputs.waiting_since,
            now=inputs.now,
        )
    )
    failures = _with_new_failures(failures, plan, inputs.now)
    states = staging.host_states(staged, fleet.hosts)
    requests = staging.plan([staged, *others], fleet.hosts)
    return Decision(new, state, room, plan, requests, states, places, share, avoid, failures)


def drainable_hosts(
    staged: StagingState, others: Sequence[StagingState], fleet: Fleet
) -> frozenset[str]:
    """Return the hosts whose Pods may be replaced: those that have the image, and those that can only pull it cold."""
    if staged.mode == "Disabled":
        return fleet.usable
    states = staging.host_states(staged, fleet.hosts)
    return states.ready | staging.cold_hosts(staged, states, others)


def staging_state(view: PoolView) -> StagingState:
    """Return what staging needs to know about a pool, as its status describes it."""
    status, target = view.pool.status, rollout.target_of(view.pool)
    good = status.last_good_image
    is_new = bool(good) and not roll.is_same_image(target, good)
    is_judged = target in (status.canary_passed_image, status.promoted_image)
    is_tried = is_new and not is_judged and bool(view.pool.spec.rollout.canary.count)
    return StagingState(view.pool, target, good, is_tried, view.pods)


def _observed(
    view: PoolView, fleet: Fleet, others: Sequence[StagingState], inputs: Inputs
) -> rollout.Observed:
    return rollout.Observed(
        pool=view.pool,
        pods=view.pods,
        available_hosts=lambda target: _available_hosts(view, fleet, others, target),
        signals=inputs.signals,
        now=inputs.now,
    )


def _available_hosts(
    view: PoolView, fleet: Fleet, others: Sequence[StagingState], target: str
) -> int:
    staged = StagingState(
        view.pool, target, view.pool.status.last_good_image, is_trial=True, pods=view.pods
    )
    free = capacity.places(view.pool.spec, fleet.hosts, fleet.pods).free
    idle = {pod.node for pod in view.pods if pod.is_idle}
    hosts = drainable_hosts(staged, others, fleet)
    return sum(host in idle or free.get(host, 0) > 0 for host in hosts)


def _phase_room(pool: RunnerPool, new: Rollout, state: RollState) -> int:
    if new.phase in {"Staging", "Paused"}:
        return 0
    if new.phase == "Canary":
        return pool.spec.rollout.canary.count + new.more_canaries - state.trials
    return roll.UNLIMITED


def _target_slots(
    staged: StagingState, state: RollState, places: Places, hosts: frozenset[str]
) -> int | None:
    """Return on how many free places the target image starts without a pull; Pods that wait for a host take theirs first."""
    if staged.mode == "Disabled":
        return None
    unbound = sum(p.is_alive and not p.node and p.image == state.target for p in state.pods)
    waiting = unbound + len(state.announced)
    return max(0, sum(places.free.get(host, 0) for host in hosts) - waiting)


def _silent_pods(view: PoolView, signals: RollSignals | None) -> frozenset[str]:
    if signals is None or signals.is_awaited:
        return frozenset()
    return frozenset(pod.name for pod in view.pods if pod.name not in signals.first_polls)


def _unreachable_hosts(fleet: Fleet) -> frozenset[str]:
    unready = frozenset(host.name for host in fleet.hosts if host.unusable == NOT_READY)
    return unready if len(unready) > _MAX_UNREADY_SHARE * len(fleet.hosts) else frozenset()


def _shares(fleet: Fleet, places: Places) -> dict[str, int]:
    """Return how many Pods each pool may have on the places of the fleet."""
    demands = {
        each.pool.name: 0 if each.pool.deleting else each.pool.spec.replicas for each in fleet.pools
    }
    return capacity.fair_shares(places.capacity, demands)


def _used(fleet: Fleet) -> dict[str, int]:
    """Return how many places the Pods of each pool use, with those that are announced."""
    usable = fleet.usable
    return {
        each.pool.name: capacity.used(each.pods, usable) + len(each.state.unseen)
        for each in fleet.pools
    }


def _free(view: PoolView, fleet: Fleet, places: Places, share: int) -> int:
    """Return how many Pods the pool may create: places of its share that no Pod uses."""
    used = _used(fleet)
    return max(0, min(places.capacity - sum(used.values()), share - used[view.pool.name]))


def _owed(view: PoolView, fleet: Fleet, places: Places) -> int:
    """Return how many Pods beyond its share the pool has while siblings lack places of theirs, and none is free."""
    used, shares, own = _used(fleet), _shares(fleet, places), view.pool.name
    lacking = sum(max(0, shares[name] - used[name]) for name in used if name != own)
    free = max(0, places.capacity - sum(used.values()))
    return max(0, min(used[own] - shares[own], lacking - free))


def _host_failures(view: PoolView, now: datetime) -> tuple[HostFailures, ...]:
    """Return the failures by host without those that are long past, or that a Pod that works has disproved."""
    working = {pod.node for pod in view.pods if pod.is_alive and (pod.is_ready or pod.is_claimed)}
    return tuple(
        each
        for each in view.pool.status.host_failures
        if each.node not in working and now - each.last_at < AVOIDED_FOR
    )


def _with_new_failures(
    failures: tuple[HostFailures, ...], plan: PodPlan, now: datetime
) -> tuple[HostFailures, ...]:
    counts = {each.node: each for each in failures}
    stuck = [each.pod for each in plan.delete if each.why in FAILURES]
    for pod in (*plan.failed, *stuck):
        if pod.node:
            before = counts[pod.node].count if pod.node in counts else 0
            counts[pod.node] = HostFailures(
                node=pod.node, count=before + 1, last_at=now.replace(microsecond=0)
            )
    return tuple(counts[node] for node in sorted(counts))


def _avoided(failures: Sequence[HostFailures], fleet: Fleet) -> tuple[str, ...]:
    """Return the hosts that new Pods avoid; with fewer than three hosts none, because then there is no other place."""
    usable = fleet.usable
    worst = sorted(
        (each for each in failures if each.count >= FAILURES_TO_AVOID and each.node in usable),
        key=lambda each: (-each.count, each.node),
    )
    return tuple(sorted(each.node for each in worst[: len(usable) // 3]))
