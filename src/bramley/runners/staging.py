"""Which images each host pulls before a Pod needs them: one request per Node, merged over all pools of a fleet; pure.

A host that has the target image of a pool keeps it, and keeps the last good one until the roll is done. Hosts pull a few at a
time within the fleet's budget. Until the canaries were good, only as many hosts pull as the canaries need: a bad image then
costs a few pulls instead of one per host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from bramley.api.runner_pool import RunnerPool
from bramley.api.staging import NO_ACCESS, NO_ROOM, StagingRequest, State, parse_request, request_id
from bramley.base import errors
from bramley.runners import roll
from bramley.runners.hosts import Host
from bramley.runners.pods import RunnerPod

_MEGABYTE = 1e6
# Megabytes per second; 0 would not be a valid limit.
_LEAST_SHARE = 0.001
_UNKNOWN_FAILURE = "the host reported no reason"
# An image that so many hosts could not pull, and none could, does not exist; more hosts need not try.
_FAILED_PULLS_TO_STOP = 3
_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StagingState:
    """What staging needs to know about one pool."""

    pool: RunnerPool
    target: str
    last_good: str
    is_trial: bool
    pods: Sequence[RunnerPod]

    @property
    def mode(self) -> str:
        """Return the mode of staging."""
        return self.pool.spec.rollout.staging.mode

    @property
    def is_rolling(self) -> bool:
        """Return whether the pool has another image than its target somewhere.

        Also between two Pods of a pool with a single one: a request that is withdrawn cancels the pull, which would begin again
        with each job and never end.
        """
        return any(
            pod.is_alive and roll.is_stale(pod, self.target) for pod in self.pods
        ) or roll.is_between_pods(
            self.pods, self.target, self.last_good, replicas=self.pool.spec.replicas
        )

    @property
    def needs_both_images(self) -> bool:
        """Return whether hosts keep the last good image of the pool, or have not been requested to drop it yet."""
        return self.is_rolling or self.pool.status.roll_started_at is not None

    @property
    def stages(self) -> bool:
        """Return whether hosts pull the target image for this pool now."""
        return self.mode != "Disabled" and self.is_rolling

    @property
    def order(self) -> tuple[datetime, str]:
        """Return the rank among the pools of a fleet: the roll that began first."""
        return (self.pool.status.roll_started_at or _LATEST, self.pool.name)

    @property
    def max_pulls(self) -> int:
        """Return how many hosts may pull at once."""
        rollout = self.pool.spec.rollout
        limit = rollout.staging.max_concurrent
        return limit or roll.cap(rollout.max_concurrent_percent, self.pool.spec.replicas)


@dataclass(frozen=True, slots=True)
class HostStates:
    """How staging of one image stands on the usable hosts of a fleet."""

    ready: frozenset[str] = frozenset()
    pulling: frozenset[str] = frozenset()
    # The disk is too small for the image beside what it holds now.
    no_room: frozenset[str] = frozenset()
    failed: Mapping[str, str] | None = None

    @property
    def no_access(self) -> frozenset[str]:
        """Return the hosts that could not pull the image because they may not read the pool's pull secrets."""
        failed = self.failed or {}
        return frozenset(name for name, why in failed.items() if why.startswith(NO_ACCESS))

    @property
    def is_unavailable(self) -> bool:
        """Return whether several hosts could not pull the image and none could; hosts without access say nothing about it."""
        failed = len(self.failed or ()) - len(self.no_access)
        return not self.ready and failed >= _FAILED_PULLS_TO_STOP


def host_states(state: StagingState, hosts: Sequence[Host]) -> HostStates:
    """Return how staging of the target image stands; only hosts that take Pods count."""
    ready, pulling, no_room = set(), set(), set()
    failed: dict[str, str] = {}
    for host in hosts:
        if not host.is_usable:
            continue
        failure = _failure(host, state.target)
        if host.has_image(state.target):
            ready.add(host.name)
        elif failure.startswith(NO_ROOM):
            no_room.add(host.name)
        elif failure:
            failed[host.name] = failure
        elif host.is_requested(state.target):
            pulling.add(host.name)
    return HostStates(frozenset(ready), frozenset(pulling), frozenset(no_room), failed)


def _failure(host: Host, image: str) -> str:
    """Return why a host could not pull an image that it is requested to have; empty if it did not fail."""
    reported = host.staged(image)
    if reported is None or reported.state is not State.FAILED or not host.is_requested(image):
        return ""
    is_current = host.report is not None and host.report.request == request_id(host.request)
    # Another request may be one that there is room for.
    is_over = reported.message.startswith(NO_ROOM) and not is_current
    return "" if is_over else reported.message or _UNKNOWN_FAILURE


def cold_hosts(
    state: StagingState, states: HostStates, siblings: Sequence[StagingState]
) -> frozenset[str]:
    """Return the hosts that are drained without the image, because they cannot stage it.

    Their Pods do not refer to the pull secrets of the new image, as its Pods will; or their disk cannot hold both images. The
    latter never while an earlier roll of the same fleet is in progress: it frees the space of its old image when it is done.
    """
    if state.mode != "BestEffort" or not (states.no_room or states.no_access):
        return frozenset()
    # Also where a Pod has just ended, because its successor is being planned. Elsewhere the image can wait for a Pod.
    found = states.no_access & {pod.node for pod in state.pods}
    if any(each.needs_both_images and each.order < state.order for each in siblings):
        return found
    return states.no_room | found


def plan(states: Sequence[StagingState], hosts: Sequence[Host]) -> dict[str, StagingRequest]:
    """Return the request of each usable host, by name; the first pools in order come first in each."""
    ordered = sorted(states, key=lambda state: state.order)
    pulls: dict[str, frozenset[str]] = {}
    failed: set[str] = set()
    for state in ordered:
        if state.stages:
            pulls[state.pool.name] = _hosts_that_pull(state, hosts, _union(pulls))
            failed |= (host_states(state, hosts).failed or {}).keys()
    # Hosts whose pull has failed try again, so they have their part of the budget.
    pulling = _union(pulls) | failed
    budget = _bytes_per_second(ordered)
    share = budget / _MEGABYTE / max(1, len(pulling))
    limit = max(round(share, 3), _LEAST_SHARE) if budget else None
    requests = {}
    for host in hosts:
        if host.is_usable:
            images = _images(host, ordered, pulls)
            own_limit = limit if host.name in pulling else _unchanged_limit(host, images)
            requests[host.name] = _with_secrets(StagingRequest(images, own_limit), ordered)
    return requests


def _with_secrets(request: StagingRequest, states: Sequence[StagingState]) -> StagingRequest:
    """Return a request with the pull secrets of all pools that have one of its images."""
    pools = [
        state.pool
        for state in states
        if state.pool.spec.image_pull_secrets
        and (state.target in request.images or state.last_good in request.images)
    ]
    names = (each.name for pool in pools for each in pool.spec.image_pull_secrets if each.name)
    secrets = tuple(dict.fromkeys(names))
    if not secrets:
        return request
    # A controller has the pools of one namespace.
    namespace = pools[0].namespace or ""
    return msgspec.structs.replace(request, namespace=namespace, pull_secrets=secrets)


def _union(pulls: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*pulls.values())


def _unchanged_limit(host: Host, images: tuple[str, ...]) -> float | None:
    """Return the limit that a host has: one that pulls nothing does not need another, and a changed request is tried again."""
    try:
        request = parse_request(host.request)
    except errors.BadRequest:
        return None
    return request.megabytes_per_second if request.images == images else None


def _hosts_that_pull(
    state: StagingState, hosts: Sequence[Host], others: frozenset[str]
) -> frozenset[str]:
    """Return the hosts that pull for a pool; `others` pull for pools whose roll began before, and count as well."""
    states = host_states(state, hosts)
    pulling = set(states.pulling)
    if states.is_unavailable:
        return frozenset(pulling)
    excluded = {*states.ready, *pulling, *states.no_room, *(states.failed or ()), *others}
    waiting = [host for host in hosts if host.is_usable and host.name not in excluded]
    idle = {pod.node for pod in state.pods if pod.is_idle}
    # Hosts with an idle Pod first: their Pod can be replaced at once.
    waiting.sort(key=lambda host: (host.name not in idle, host.name))
    count = state.max_pulls - len(pulling | others)
    if state.is_trial:
        # One more than the canaries, in case its Pod gets a job meanwhile.
        needed = state.pool.spec.rollout.canary.count + 1
        count = min(count, needed - len(idle & {*states.ready, *pulling}))
    return frozenset(pulling | {host.name for host in waiting[: max(0, count)]})


def _images(
    host: Host,
    ordered: Sequence[StagingState],
    pulls: Mapping[str, frozenset[str]],
) -> tuple[str, ...]:
    staged = [state for state in ordered if state.mode != "Disabled"]
    rolling = [state for state in staged if state.pool.name in pulls]
    targets = [
        state.target
        for state in staged
        if host.has_image(state.target)
        or host.name in pulls.get(state.pool.name, ())
        or (state.pool.name in pulls and _was_refused(host, state))
    ]
    kept = [
        state.last_good
        for state in rolling
        if state.last_good
        and host.has_image(state.last_good)
        # The image of a Pod to come has no room beside it.
        and not _was_dropped(host, state)
        and not _is_cold(host, state, ordered)
    ]
    return tuple(dict.fromkeys((*targets, *kept)))


def _is_cold(host: Host, state: StagingState, ordered: Sequence[StagingState]) -> bool:
    # Most hosts have no report of a failure.
    if not _failure(host, state.target).startswith(NO_ROOM):
        return False
    return host.name in cold_hosts(state, host_states(state, [host]), _others(state, ordered))


def _was_refused(host: Host, state: StagingState) -> bool:
    """Return whether the request must stay as it is, because a changed one would be tried again at once."""
    return host.staged(state.target) is not None and host.is_requested(state.target)


def _was_dropped(host: Host, state: StagingState) -> bool:
    """Return whether the host was requested to replace the last good image; until it has reported, that must not change."""
    return host.is_requested(state.target) and not host.is_requested(state.last_good)


def _others(state: StagingState, states: Sequence[StagingState]) -> list[StagingState]:
    return [each for each in states if each is not state]


def _bytes_per_second(states: Sequence[StagingState]) -> int:
    """Return the budget of the fleet: the lowest of its pools; 0 means unlimited."""
    budgets = (state.pool.spec.rollout.staging.max_bytes_per_second for state in states)
    return min((budget for budget in budgets if budget), default=0)
