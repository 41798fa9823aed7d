"""The scheduler as a controller: decides on the snapshot, binds Pods to Nodes, and reports by conditions and events.

Decisions are made one after the other in the order of the scheduling queue, whichever key the runtime reconciles, and each
counts in the snapshot at once; the writes follow later. An assumed Pod is forgotten only when the server certainly did not
bind it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from bramley.api import conditions
from bramley.api.core import Namespace, Node, Pod, PodCondition
from bramley.apiserver.controllers.objects import log_errors, patch_object
from bramley.apiserver.controllers.scheduling import select_node
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo
from bramley.apiserver.controllers.scheduling.scheduler_cache import (
    SCHEDULER,
    SchedulerCache,
    needs_scheduling,
)
from bramley.apiserver.controllers.scheduling.scheduling_queue import SchedulingQueue
from bramley.apiserver.controllers.scheduling.select_node import Decision, Selected, Unschedulable
from bramley.apiserver.controllers.timings import Timings
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.cache import Cache
from bramley.runtime.controller import Controller
from bramley.runtime.events import Recorder
from bramley.runtime.keys import Key, key_of
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from bramley.runtime.worker import Workers

# Deciding never awaits; after this time the event loop gets a turn, so that many decisions in a row block nothing.
_YIELD_AFTER_SECONDS = 0.005
_MAX_NOTE_LENGTH = 1024
_LEAST_DELAY = timedelta(milliseconds=1)


@dataclass(slots=True)
class Scheduler:
    """Binds Pods to Nodes; `check` raises when this process may not write."""

    cache: SchedulerCache
    client: Client
    pods: Cache[Pod]
    recorder: Recorder
    check: Callable[[], None]
    clock: Clock
    rng: random.Random
    retry: timedelta
    # Decisions about Pods other than the one whose reconcile made them.
    _decided: dict[Key, Decision] = field(default_factory=dict)
    # Equal Pods get equal answers while the snapshot has this version.
    _unschedulable: dict[bytes, Unschedulable] = field(default_factory=dict)
    _unschedulable_version: int = -1

    async def reconcile(self, pod: Pod) -> Outcome:
        """Find a Node for the Pod if it is due, and write the decision."""
        key = key_of(pod)
        if not needs_scheduling(pod):
            self._decided.pop(key, None)
            return Settled()
        node = self.cache.assumed.get(pod.uid)
        # An earlier binding failed or is not observed yet: it is repeated, and the server refuses a second one.
        if node is not None and key not in self._decided:
            return await self._bind(pod, node)
        decision = await self._decision(key)
        if isinstance(decision, Selected):
            return await self._bind(pod, decision.node)
        if isinstance(decision, Unschedulable):
            await self._report(pod, decision)
        return self._next_check(key)

    async def _decision(self, key: Key) -> Decision | None:
        clock, queue = self.clock, self.cache.queue
        started = clock.monotonic()
        while key not in self._decided:
            if queue.seconds_until_due(key, clock.monotonic()) != 0:
                return None
            self._decide_next()
            if clock.monotonic() - started > _YIELD_AFTER_SECONDS:
                await asyncio.sleep(0)
                started = clock.monotonic()
        return self._decided.pop(key)

    def _decide_next(self) -> None:
        # No await from here to the end: the snapshot must not change between the decision and its effect.
        pod = self.cache.queue.pop(self.clock.monotonic())
        if pod is None:
            return
        decision = self._decide(pod)
        if isinstance(decision, Selected):
            self.cache.assume(pod, decision.node)
        else:
            self.cache.mark_unschedulable(pod, decision.nominated_node)
        self._decided[pod.key] = decision

    def _decide(self, pod: PodInfo) -> Decision:
        """Decide, or repeat the decision about an equal Pod if nothing has changed since."""
        snapshot = self.cache.snapshot
        if self._unschedulable_version != snapshot.version:
            self._unschedulable, self._unschedulable_version = {}, snapshot.version
        cached = self._unschedulable.get(pod.equivalence_key)
        if cached is not None:
            return cached
        decision = select_node.decide(pod, snapshot, self.rng)
        if isinstance(decision, Unschedulable) and not decision.victims:
            self._unschedulable[pod.equivalence_key] = decision
        return decision

    def _next_check(self, key: Key) -> Outcome:
        """Return when to try a pending Pod again if nothing changes until then."""
        cache, now = self.cache, self.clock.monotonic()
        delay = cache.queue.seconds_until_due(key, now)
        if delay is None:
            pod, tried = cache.unschedulable.get(key), cache.queue.last_attempt(key)
            if pod is None or tried is None:
                return Settled()
            delay = tried + self.retry.total_seconds() - now
            if delay <= 0:
                cache.requeue([pod])
                return Settled()
        # A timer may fire a little early; the rest must not round to zero, which would repeat at once and for ever.
        after = max(timedelta(seconds=delay), _LEAST_DELAY)
        return CheckAgain(after, "no Node is feasible for the Pod")

    async def _bind(self, pod: Pod, node: str) -> Outcome:
        try:
            # After a timeout the Pod stays assumed, because the server may have bound it.
            self.check()
            await self.client.bind(pod, node)
        except errors.NotFound:
            self.cache.forget(pod)
            return Settled()
        except errors.Conflict:
            return await self._resolve_conflict(pod)
        except errors.Refused:
            self.cache.forget(pod)
            raise
        text = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        self.recorder.event(pod, "Scheduled", text, action="Binding")
        return Settled()

    async def _resolve_conflict(self, pod: Pod) -> Outcome:
        """Forget the Pod unless it has a Node already, this one or another; then the informer will deliver that."""
        try:
            live = await self.client.get(Pod, pod.name, namespace=pod.namespace)
        except errors.NotFound:
            live = None
        if live is None or live.uid != pod.uid or not live.spec.node_name:
            self.cache.forget(pod)
        return Settled()

    async def _report(self, pod: Pod, decision: Unschedulable) -> None:
        try:
            # Before the victims are deleted: after a restart the nomination shows for which Pod the Node was freed.
            await self._write_status(pod, decision)
            for victim in decision.victims:
                await self._preempt(victim, preemptor=pod, node=decision.nominated_node)
        except errors.NotFound:
            return
        except errors.BramleyError:
            # The decision stands; the next reconcile of the Pod writes it again.
            self._decided[key_of(pod)] = decision
            raise
        note = decision.message[:_MAX_NOTE_LENGTH]
        self.recorder.warning(pod, "FailedScheduling", note, action="Scheduling")

    async def _write_status(self, pod: Pod, decision: Unschedulable) -> None:
        condition = PodCondition(
            type="PodScheduled", status="False", reason="Unschedulable", message=decision.message
        )
        status = self._with_condition(pod, condition)
        if decision.nominated_node != pod.status.nominated_node_name:
            status["nominatedNodeName"] = decision.nominated_node or None
        if status:
            await self._patch(pod, status)

    async def _preempt(self, victim: PodInfo, *, preemptor: Pod, node: str) -> None:
        """Delete a Pod for one of higher priority."""
        pod = self.pods.find(victim.key)
        # The victim may have ended or been replaced since the decision.
        if pod is None or pod.uid != victim.uid or pod.deleting:
            return
        condition = PodCondition(
            type="DisruptionTarget",
            status="True",
            reason="PreemptionByScheduler",
            message=f"{SCHEDULER}: preempting to accommodate a higher priority pod",
        )
        try:
            await self._patch(pod, self._with_condition(pod, condition))
            await self.client.delete(Pod, pod.name, namespace=pod.namespace, uid=pod.uid)
        except errors.NotFound:
            return
        text = f"Preempted by pod {preemptor.uid} on node {node}"
        self.recorder.event(pod, "Preempted", text, action="Preempting")

    async def _patch(self, pod: Pod, status: dict[str, Any]) -> None:
        self.check()
        patch = {"status": status}
        await patch_object(self.client, pod, patch, subresource="status", only="version")

    def _with_condition(self, pod: Pod, condition: PodCondition) -> dict[str, Any]:
        """Return the patch of a status that sets the condition; empty if it is set."""
        generation = pod.metadata.generation or None
        condition = msgspec.structs.replace(condition, observed_generation=generation)
        before = pod.status.conditions
        after = conditions.put(before, condition, now=self.clock.now())
        return {} if after == before else {"conditions": msgspec.to_builtins(after)}


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the scheduler to a manager."""
    queue = SchedulingQueue(
        backoff=timings.scheduling_backoff, max_backoff=timings.scheduling_max_backoff
    )
    workers: list[Workers[Pod]] = []

    def enqueue(key: Key, delay: timedelta) -> None:
        for each in workers:
            each.queue.add_after(key, delay)

    cache = SchedulerCache(queue, clock=clock, enqueue=enqueue)
    pods = manager.informer(Pod)
    # Must be registered before the controller's own handler: the snapshot has to know a Pod before its key is reconciled.
    pods.on_change(log_errors(cache.pod_changed))
    manager.informer(Node).on_change(log_errors(cache.node_changed))
    manager.informer(Namespace).on_change(log_errors(cache.namespace_changed))
    scheduler = Scheduler(
        cache,
        client,
        pods=pods.cache,
        recorder=manager.recorder(SCHEDULER),
        check=manager.check,
        clock=clock,
        rng=random.Random(0),
        retry=timings.scheduling_retry,
    )
    workers.append(manager.add(Controller(scheduler, name="scheduler").for_kind(Pod)))
