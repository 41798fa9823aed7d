"""The scheduler as a controller: observe by informers, decide on the board, act by bindings, report by conditions and events.

Decisions are made one after the other in the order of the line, whoever's turn it is at the runtime's queue, and each counts
at once; writing them down may take its time. A Pod's Node is taken back only when the server certainly does not have it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from bramley.api import conditions
from bramley.api.core import Namespace, Node, Pod, PodCondition
from bramley.apiserver.controllers.following import sparing
from bramley.apiserver.controllers.scheduling import select_node
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo
from bramley.apiserver.controllers.scheduling.scheduler_cache import SCHEDULER, View, waits_for_us
from bramley.apiserver.controllers.scheduling.scheduling_queue import SchedulingQueue
from bramley.apiserver.controllers.scheduling.select_node import Decision, Fits, Unfit
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

# Deciding never waits, so without pauses many decisions in a row would keep everybody else from running.
_TURN_SECONDS = 0.005
_LONGEST_NOTE = 1024


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the scheduler acts with: `check` raises when this process may not act."""

    client: Client
    check: Callable[[], None]
    pods: Cache[Pod]
    recorder: Recorder
    clock: Clock
    dice: random.Random


class Scheduler:
    """Gives Pods their Nodes."""

    def __init__(self, view: View, around: Surroundings, *, retry: timedelta) -> None:
        self._view = view
        self._around = around
        self._retry = retry.total_seconds()
        self._decided: dict[Key, Decision] = {}
        self._alike: dict[bytes, Unfit] = {}
        self._alike_at = -1

    async def reconcile(self, pod: Pod) -> Outcome:
        """Find a Node for the Pod if it is its turn, and write down what was decided."""
        key = key_of(pod)
        if not waits_for_us(pod):
            self._decided.pop(key, None)
            return Settled()
        node = self._view.assumed.get(pod.uid)
        if node is not None and key not in self._decided:
            return await self._bind(pod, node)
        decision = await self._decision(key)
        if isinstance(decision, Fits):
            return await self._bind(pod, decision.node)
        if isinstance(decision, Unfit):
            await self._report(pod, decision)
        return self._look_again(key)

    async def _decision(self, key: Key) -> Decision | None:
        clock, line = self._around.clock, self._view.line
        turn = clock.monotonic()
        while key not in self._decided:
            if line.waits_for(key, clock.monotonic()) != 0:
                return None
            self._decide_next()
            if clock.monotonic() - turn > _TURN_SECONDS:
                await asyncio.sleep(0)
                turn = clock.monotonic()
        return self._decided.pop(key)

    def _decide_next(self) -> None:
        view = self._view
        pod = view.line.next(self._around.clock.monotonic())
        if pod is None:
            return
        decision = self._decide(pod)
        if isinstance(decision, Fits):
            view.assume(pod, decision.node)
        else:
            view.in_vain(pod, decision.nominated)
        self._decided[pod.key] = decision

    def _decide(self, pod: PodInfo) -> Decision:
        """Decide, or repeat what was decided about a Pod just like this one while nothing changed since."""
        board = self._view.board
        if self._alike_at != board.version:
            self._alike, self._alike_at = {}, board.version
        known = self._alike.get(pod.equivalence_key)
        if known is not None:
            return known
        decision = select_node.decide(pod, board, self._around.dice)
        if isinstance(decision, Unfit) and not decision.victims:
            self._alike[pod.equivalence_key] = decision
        return decision

    def _look_again(self, key: Key) -> Outcome:
        """Return when to look at a Pod again that waits, also if nothing changes until then."""
        view, now = self._view, self._around.clock.monotonic()
        delay = view.line.waits_for(key, now)
        if delay is None:
            pod, tried = view.unfit.get(key), view.line.last_tried(key)
            if pod is None or tried is None:
                return Settled()
            delay = tried + self._retry - now
            if delay <= 0:
                view.try_again([pod])
                return Settled()
        return CheckAgain(timedelta(seconds=delay), "the Pod fits nowhere")

    async def _bind(self, pod: Pod, node: str) -> Outcome:
        try:
            self._around.check()
            await self._around.client.bind(pod, node)
        except errors.NotFound:
            self._view.unassume(pod)
            return Settled()
        except errors.Conflict:
            return await self._settle_conflict(pod)
        except errors.Refused:
            self._view.unassume(pod)
            raise
        text = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        self._around.recorder.event(pod, "Scheduled", text, action="Binding")
        return Settled()

    async def _settle_conflict(self, pod: Pod) -> Outcome:
        """Look whether the Pod has a Node already, ours or another; the cache will show it then."""
        try:
            live = await self._around.client.get(Pod, pod.name, namespace=pod.namespace)
        except errors.NotFound:
            live = None
        if live is None or live.uid != pod.uid or not live.spec.node_name:
            self._view.unassume(pod)
        return Settled()

    async def _report(self, pod: Pod, decision: Unfit) -> None:
        try:
            await self._write(pod, decision)
            for victim in decision.victims:
                await self._preempt(victim, preemptor=pod, node=decision.nominated)
        except errors.NotFound:
            return
        except errors.BramleyError:
            # The decision stands; what is missing is that people and victims hear of it.
            self._decided[key_of(pod)] = decision
            raise
        note = decision.message[:_LONGEST_NOTE]
        self._around.recorder.warning(pod, "FailedScheduling", note, action="Scheduling")

    async def _write(self, pod: Pod, decision: Unfit) -> None:
        fact = PodCondition(
            type="PodScheduled", status="False", reason="Unschedulable", message=decision.message
        )
        status = _with_condition(pod, fact, self._around.clock)
        if decision.nominated != pod.status.nominated_node_name:
            status["nominatedNodeName"] = decision.nominated or None
        if status:
            await self._patch(pod, status)

    async def _preempt(self, victim: PodInfo, *, preemptor: Pod, node: str) -> None:
        """Delete a Pod for a more important one."""
        pod = self._around.pods.find(victim.key)
        if pod is None or pod.uid != victim.uid or pod.deleting:
            return
        fact = PodCondition(
            type="DisruptionTarget",
            status="True",
            reason="PreemptionByScheduler",
            message=f"{SCHEDULER}: preempting to accommodate a higher priority pod",
        )
        try:
            await self._patch(pod, _with_condition(pod, fact, self._around.clock))
            await self._around.client.delete(Pod, pod.name, namespace=pod.namespace, uid=pod.uid)
        except errors.NotFound:
            return
        text = f"Preempted by pod {preemptor.uid} on node {node}"
        self._around.recorder.event(pod, "Preempted", text, action="Preempting")

    async def _patch(self, pod: Pod, status: dict[str, Any]) -> None:
        self._around.check()
        await self._around.client.merge_patch(
            Pod,
            pod.name,
            {"status": status},
            namespace=pod.namespace,
            subresource="status",
            resource_version=pod.metadata.resource_version,
        )


def _with_condition(pod: Pod, fact: PodCondition, clock: Clock) -> dict[str, Any]:
    """Return the patch of a status that adds the condition; nothing if it is there."""
    fact = msgspec.structs.replace(fact, observed_generation=pod.metadata.generation or None)
    before = pod.status.conditions
    after = conditions.put(before, fact, now=clock.now())
    return {} if after == before else {"conditions": msgspec.to_builtins(after)}


def add(manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
    """Add the scheduler to a manager."""
    line = SchedulingQueue(backoff=timings.scheduling_backoff, most=timings.scheduling_backoff_most)
    workers: list[Workers[Pod]] = []

    def wake(key: Key, delay: timedelta) -> None:
        for each in workers:
            each.queue.add_after(key, delay)

    view = View(line, clock=clock, wake=wake)
    pods = manager.informer(Pod)
    # Before the controller's own handler, so that the board knows of a Pod before its key is taken.
    pods.on_change(sparing(view.pod_changed))
    manager.informer(Node).on_change(sparing(view.node_changed))
    manager.informer(Namespace).on_change(sparing(view.namespace_changed))
    around = Surroundings(
        client=client,
        check=manager.check,
        pods=pods.cache,
        recorder=manager.recorder(SCHEDULER),
        clock=clock,
        dice=random.Random(0),
    )
    scheduler = Scheduler(view, around, retry=timings.scheduling_retry)
    workers.append(manager.add(Controller(scheduler, name="scheduler").for_kind(Pod)))
