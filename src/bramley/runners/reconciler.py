"""The reconciler of RunnerPools: observe the fleet, decide, write the status, then act.

The order is what makes it safe. The status with its tickets is written first, by compare-and-set on the version that the
decision was based on; only then are Pods created, marked and deleted. So a controller that was killed in between is continued by
the next one, and one that decided on an old state, or lost its lease without noticing, fails at the status. Pools that share
hosts share a cap, so a decision waits until the caches show the writes of all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from bramley.api import conditions
from bramley.api.core import Node
from bramley.api.meta import Condition
from bramley.api.names import conditions as types
from bramley.api.names import finalizers, labels
from bramley.api.runner_pool import RunnerPool
from bramley.api.runner_pool_status import RunnerPoolStatus
from bramley.api.staging import StagingRequest
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.runners import decision as decisions
from bramley.runners import pod_timeouts, pool_status, staging
from bramley.runners.decision import Decision, Fleet, Inputs, PoolView
from bramley.runners.hosts import Host, host_of
from bramley.runners.judgement import RollSignals
from bramley.runners.metrics import PoolMetrics
from bramley.runners.pod_actions import FailedWrite, PodActions, raise_any
from bramley.runners.pods import PodViews
from bramley.runtime.events import Recorder
from bramley.runtime.informer import Informer
from bramley.runtime.keys import Key
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from bramley.runtime.writes import FencedKube

logger = log.get(__name__)

NAME = "runner-pools"
BY_FLEET = "fleet"
BY_LABEL = "dispatch-label"
# How soon a cache that lags behind is checked again.
_CACHE_PERIOD = timedelta(seconds=1)
# Siblings free places and room without an event of this pool.
_SIBLING_PERIOD = timedelta(seconds=5)
_PERIOD = timedelta(seconds=30)
# A time that has passed, and whose action is refused, must not be checked without a pause.
_REFUSED_PERIOD = timedelta(seconds=5)
# The pool's name is the value of a label.
_MAX_NAME_LENGTH = 63


@dataclass(frozen=True, slots=True)
class Observations:
    """The caches that the controller decides on."""

    pools: Informer[RunnerPool]
    pods: Informer[Any]
    nodes: Informer[Node]
    views: PodViews
    # The host of each Node, as long as the Node is unchanged.
    known_hosts: dict[str, tuple[Node, Host]] = field(default_factory=dict)

    def fleet(self, pool: RunnerPool) -> Fleet:
        """Return the fleet of a pool, with this state of the pool itself, which may be newer than the cache."""
        selector = pool.spec.fleet_selector
        others = [
            each for each in self.pools.cache.by_index(BY_FLEET, selector) if each.name != pool.name
        ]
        pools = sorted((pool, *others), key=lambda each: each.name)
        return Fleet(
            pools=tuple(PoolView(each, self.views.of_pool(each.name)) for each in pools),
            hosts=self.hosts(selector),
        )

    def same_label(self, pool: RunnerPool) -> tuple[str, ...]:
        """Return the names of other pools that have the dispatch label of this one."""
        found = self.pools.cache.by_index(BY_LABEL, pool.spec.dispatch_label)
        return tuple(each.name for each in found if each.name != pool.name and not each.deleting)

    def hosts(self, selector: str) -> tuple[Host, ...]:
        """Return the hosts of a fleet."""
        return tuple(map(self._host, self.nodes.cache.by_index(BY_FLEET, selector)))

    def _host(self, node: Node) -> Host:
        known = self.known_hosts.get(node.name)
        if known is None or known[0] is not node:
            known = self.known_hosts[node.name] = (node, host_of(node))
        return known[1]


@dataclass(slots=True, eq=False)
class PoolReconciler:
    """Keeps the Pods of pools, and rolls their images."""

    kube: FencedKube
    observations: Observations
    actions: PodActions
    recorder: Recorder
    metrics: PoolMetrics
    clock: Clock
    # What dispatch reports about a pool's roll; None if nothing is known.
    signals: Callable[[str], RollSignals | None]
    # The epoch of this process's leadership; 0 without leader election.
    epoch: Callable[[], int]
    # Continues under an epoch above a stored one; raises LeaseLost if a later leader has stored it.
    raise_epoch: Callable[[int], Awaitable[None]]
    has_dispatch: bool = True
    _waiting: dict[Key, dict[str, tuple[str, Any]]] = field(default_factory=dict)
    _written_at: dict[Key, float] = field(default_factory=dict)
    _failed_writes: dict[Key, list[FailedWrite]] = field(default_factory=dict)
    _behind: dict[Key, int] = field(default_factory=dict)

    async def reconcile(self, pool: RunnerPool) -> Outcome:
        """Converge one pool."""
        if pool.spec.os != labels.DARWIN or len(pool.name) > _MAX_NAME_LENGTH:
            return await self._leave_alone(pool)
        if pool.deleting:
            return await self._release(pool)
        # A patch of the metadata alone, so that fields which this version does not know are kept.
        pool = await self.kube.add_finalizer(pool, finalizers.POOL_DRAIN)
        fleet = self.observations.fleet(pool)
        wait = await self._wait_for_fleet(fleet)
        if wait is not None:
            return wait
        # Again: waiting may have taken a while.
        fleet = self.observations.fleet(pool)
        view = next(each for each in fleet.pools if each.pool.name == pool.name)
        decision = decisions.decide(view, fleet, self._inputs(view))
        return await self._apply(view, fleet, decision)

    def forget(self, key: Key) -> None:
        """Drop what is kept for a pool that is gone."""
        for kept in (self._waiting, self._written_at, self._failed_writes, self._behind):
            kept.pop(key, None)
        self.metrics.forget(key.name)

    def _inputs(self, view: PoolView) -> Inputs:
        key, now = _key(view.pool), self.clock.now()
        waiting = pod_timeouts.waiting_since(self._waiting.get(key, {}), view.pods, now)
        self._waiting[key] = waiting
        return Inputs(
            now=now,
            signals=self.signals(view.pool.name),
            has_dispatch=self.has_dispatch,
            waiting_since={name: since for name, (_, since) in waiting.items()},
        )

    async def _wait_for_fleet(self, fleet: Fleet) -> Outcome | None:
        """Return when to check again unless the caches show everything that the decision must be based on."""
        for view in fleet.pools:
            owner = (NAME, _key(view.pool))
            writes = self.kube.writes
            if writes.has_written(owner) and not await writes.wait_until_observed(owner):
                return CheckAgain(
                    _CACHE_PERIOD, f"the cache lacks writes for pool {view.pool.name}"
                )
        if not all(self._has_observed(view.pool) for view in fleet.pools):
            self.observations.pods.refresh()
            return CheckAgain(_CACHE_PERIOD, "the cache of Pods is older than the last decision")
        return await self._take_over(fleet)

    def _has_observed(self, pool: RunnerPool) -> bool:
        """Return whether the cache of Pods is at least as new as the one that the last decision was based on."""
        key, version = _key(pool), pool.status.pods_resource_version
        updater = self.observations.pods.updater
        if not version.isdecimal() or updater.version >= int(version):
            self._behind.pop(key, None)
            return True
        # The second list from now on was requested after the decision. If even that is older, the server was restored.
        return updater.lists >= self._behind.setdefault(key, updater.lists) + 2

    async def _take_over(self, fleet: Fleet) -> Outcome | None:
        """Write the epoch of this leader to every pool of the fleet, before it acts on any of them.

        From then on a write of an earlier leader, which may still be under way, fails because of its old version.
        """
        if not self.epoch():
            return None
        pools = [each.pool for each in fleet.pools]
        if any(pool.status.controller_epoch > self.epoch() for pool in pools):
            # Of all pools, so that it is raised once.
            known = [*pools, *self.observations.pools.cache.all()]
            await self.raise_epoch(max(pool.status.controller_epoch for pool in known))
        epoch = self.epoch()
        behind = [pool for pool in pools if pool.status.controller_epoch < epoch]
        for pool in behind:
            await self._write(pool, {"controllerEpoch": epoch})
        return CheckAgain(timedelta(), "took over the pools of the fleet") if behind else None

    async def _apply(self, view: PoolView, fleet: Fleet, decision: Decision) -> Outcome:
        pool, key = view.pool, _key(view.pool)
        facts = pool_status.Facts(
            self.clock.now(),
            self.epoch() or pool.status.controller_epoch,
            next(((each.reason, each.message) for each in self._failed_writes.get(key, ())), None),
            self.observations.same_label(pool),
        )
        status = pool_status.next_status(pool, decision, fleet, facts)
        self.metrics.observe(view, fleet, decision)
        plan = decision.plan
        written = await self._write_status(view, status, must_write=bool(plan.create))
        if written is not True and (plan.mark or plan.unmark or plan.delete):
            await self._verify(pool)
        # Only now: a decision whose status was refused did not happen.
        self.metrics.count(pool.name, decision)
        for event in pool_status.pool_events(pool, decision):
            self.recorder.event(pool, event.reason, event.message, type=event.type)
        failed = await self.actions.perform(pool, decision)
        self._failed_writes[key] = failed
        # Whatever failed so far: hosts pull for all pools of the fleet.
        unrequested = await self._stage(fleet, decision.staging)
        outcome = self._outcome(decision, None if isinstance(written, bool) else written)
        return _after_failures([*failed, *unrequested], outcome)

    async def _write_status(
        self, view: PoolView, status: RunnerPoolStatus, *, must_write: bool
    ) -> bool | timedelta:
        """Write what has changed; return whether it was written, or by when it must be.

        Before Pods are created it is written in any case: a create that was announced long ago must not be repeated by a
        controller that does not know what has happened since.
        """
        pool, key = view.pool, _key(view.pool)
        changes = pool_status.patch(pool.status, status)
        if not changes and not must_write:
            return False
        since = self.clock.monotonic() - self._written_at.get(key, float("-inf"))
        delay = pool_status.longest_delay(pool.status, status, changes)
        if not must_write and since < delay.total_seconds():
            return delay
        versions = [
            int(pod.resource_version) for pod in view.pods if pod.resource_version.isdecimal()
        ]
        changes["podsResourceVersion"] = str(max(versions, default=0))
        changes["lastReconcile"] = msgspec.to_builtins(self.clock.now().replace(microsecond=0))
        await self._write(pool, changes)
        self._written_at[key] = self.clock.monotonic()
        return True

    async def _verify(self, pool: RunnerPool) -> None:
        """Raise Conflict if the pool has changed since the decision, for actions that come without a write of the status."""
        live = await self.kube.get(RunnerPool, pool.name, namespace=pool.namespace)
        if live.metadata.resource_version != pool.metadata.resource_version:
            raise errors.Conflict(f"pool {pool.name} has changed since the decision")

    async def _write(self, pool: RunnerPool, changes: dict[str, Any]) -> None:
        await self.kube.merge_patch(
            RunnerPool,
            pool.name,
            {"status": changes},
            namespace=pool.namespace,
            subresource="status",
            # Compare-and-set: the tickets in the status are only worth something if every decision has seen the last ones.
            resource_version=pool.metadata.resource_version,
            uid=pool.uid,
        )

    async def _stage(
        self, fleet: Fleet, requests: Mapping[str, StagingRequest]
    ) -> list[FailedWrite]:
        """Request the images of the hosts whose request has changed; return what failed."""
        texts = {name: each.text() if each.images else "" for name, each in requests.items()}
        current = {host.name: host.request for host in fleet.hosts}
        changed = {name: text for name, text in texts.items() if text != current[name]}
        return await self.actions.request_images(changed)

    def _outcome(self, decision: Decision, delay: timedelta | None) -> Outcome:
        room = decision.room
        if decision.state.is_in_progress and room.fleet <= 0 < min(room.pool, room.phase):
            period = min(_SIBLING_PERIOD, delay or _SIBLING_PERIOD)
            return CheckAgain(period, "other pools of the fleet roll")
        if delay is not None:
            return self._again(decision, delay, "changes of the status wait for others")
        if decision.plan.missing or decision.rollout.phase not in {"Idle", "Rejected"}:
            return self._again(decision, _PERIOD, f"phase {decision.rollout.phase}")
        return Settled() if decision.again_at is None else self._again(decision, _PERIOD, "timeout")

    def _again(self, decision: Decision, most: timedelta, why: str) -> Outcome:
        if decision.again_at is None:
            return CheckAgain(most, why)
        return CheckAgain(min(most, max(decision.again_at - self.clock.now(), timedelta())), why)

    async def _release(self, pool: RunnerPool) -> Outcome:
        """Delete the idle Pods of a pool that is being deleted; those with a job end first."""
        if finalizers.POOL_DRAIN not in pool.metadata.finalizers:
            return Settled()
        fleet = self.observations.fleet(pool)
        pods = self.observations.views.of_pool(pool.name)
        raise_any(await self.actions.retire(pool, [pod for pod in pods if pod.is_idle]))
        if any(not pod.is_deleting for pod in pods):
            return CheckAgain(_PERIOD, "Pods of the deleted pool have not ended")
        states = [
            decisions.staging_state(view)
            for view in fleet.siblings(PoolView(pool))
            if not view.pool.deleting
        ]
        raise_any(await self._stage(fleet, staging.plan(states, fleet.hosts)))
        await self.kube.remove_finalizer(pool, finalizers.POOL_DRAIN)
        return Settled()

    async def _leave_alone(self, pool: RunnerPool) -> Outcome:
        """Report a pool that this controller does not reconcile."""
        if pool.spec.os != labels.DARWIN:
            reason, text = "UnsupportedOS", f"pools of os {pool.spec.os} are not reconciled"
        else:
            reason = "NameTooLong"
            text = f"metadata.name has more than {_MAX_NAME_LENGTH} characters; create the pool under a shorter name"
        condition = Condition(type=types.SUPPORTED, status="False", reason=reason, message=text)
        found = conditions.put(pool.status.conditions, condition, now=self.clock.now())
        if found != pool.status.conditions:
            # Nothing else of the status: another controller may reconcile the pool.
            await self._write(pool, {"conditions": msgspec.to_builtins(found)})
        return Settled()


def _after_failures(failed: Sequence[FailedWrite], outcome: Outcome) -> Outcome:
    """Return the outcome after writes that failed; refused ones are tried again, because timers of the pool must not wait."""
    if not all(isinstance(each.error, errors.Refused) for each in failed):
        raise_any(failed)
    if not failed:
        return outcome
    reason, error = failed[0].reason, failed[0].message
    logger.warning("Writing for pool refused", reason=reason, error=error, count=len(failed))
    after = outcome.after if isinstance(outcome, CheckAgain) else _PERIOD
    return CheckAgain(max(after, _REFUSED_PERIOD), f"{reason}: {error}")


def _key(pool: RunnerPool) -> Key:
    return Key(pool.namespace or "", pool.name)
