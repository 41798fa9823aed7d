"""A fleet of plain values on which decisions are applied step by step, between random events; no API and no time.

After each decision it checks what must always hold, counted by itself instead of by the code under test.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from bramley.api.names import labels
from bramley.api.runner_pool import RunnerPool
from bramley.api.staging import StagedImage, StagingReport, State, parse_request, request_id
from bramley.runners import decision as decisions
from bramley.runners import pod_timeouts, pool_status
from bramley.runners.decision import Decision, Fleet, Inputs, PoolView
from bramley.runners.hosts import Host
from bramley.runners.pod_plan import PlannedPod
from bramley.runners.pods import RunnerPod, pod_name
from tests.unit.runners.builders import NOW, seconds

T = TypeVar("T")


def in_flight(pods: Sequence[RunnerPod], target: str) -> int:
    """Count the Pods in flight as the definition reads, from Pods alone."""
    idle = [pod for pod in pods if pod.is_idle]
    stale = [pod for pod in idle if pod.image != target]
    booting = [
        pod
        for pod in idle
        if pod.image == target and not pod.is_ready and pod.created_for != "Turnover"
    ]
    return sum(pod.is_marked for pod in stale) + len(booting) if stale else 0


def cap(percent: int, replicas: int) -> int:
    return max(1, percent * replicas // 100)


@dataclass(slots=True)
class SimulatedFleet:
    """Pools with their Pods, hosts, and a source of events."""

    rng: random.Random
    pools: dict[str, RunnerPool]
    hosts: dict[str, Host]
    has_dispatch: bool = True
    pods: dict[str, dict[str, RunnerPod]] = field(default_factory=dict)
    now: datetime = NOW
    names: set[str] = field(default_factory=set)
    waiting: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    decisions: int = 0
    most_in_flight: int = 0

    def view(self, name: str) -> PoolView:
        return PoolView(self.pools[name], tuple(self.of(name).values()))

    def of(self, pool: str) -> dict[str, RunnerPod]:
        return self.pods.setdefault(pool, {})

    def fleet(self) -> Fleet:
        return Fleet(tuple(map(self.view, sorted(self.pools))), tuple(self.hosts.values()))

    def change(self, pool: str, **spec: Any) -> None:
        """Change fields of the spec."""
        changed = msgspec.structs.replace(self.pools[pool].spec, **spec)
        self.pools[pool] = msgspec.structs.replace(self.pools[pool], spec=changed)

    def annotate(self, pool: str, **notes: str) -> None:
        metadata = msgspec.structs.replace(self.pools[pool].metadata, annotations=notes)
        self.pools[pool] = msgspec.structs.replace(self.pools[pool], metadata=metadata)

    def decide(self, name: str) -> Decision:
        """Decide about a pool, write its status, and do a part of the plan, as a controller that may be killed."""
        view, fleet = self.view(name), self.fleet()
        self.waiting = pod_timeouts.waiting_since(self.waiting, fleet.pods, self.now)
        inputs = Inputs(
            now=self.now,
            has_dispatch=self.has_dispatch,
            waiting_since={pod: since for pod, (_, since) in self.waiting.items()},
        )
        decision = decisions.decide(view, fleet, inputs)
        self._check(view, decision)
        # Not after each decision: that would triple the time of the tests.
        is_repeated = self.rng.random() < 0.2
        if is_repeated:
            self._check_order(view, fleet, inputs, decision)
        before = self._counts(name, decision.rollout.target)
        status = pool_status.next_status(view.pool, decision, fleet, pool_status.Facts(self.now))
        self.pools[name] = msgspec.structs.replace(view.pool, status=status)
        if is_repeated:
            self._check_again(name, inputs, decision)
        self._request_images(decision)
        self._perform(name, decision)
        self._check_caps(name, decision, before)
        self.decisions += 1
        return decision

    def _counts(self, name: str, target: str) -> dict[str, int]:
        targets = {each: pool.status.target_image for each, pool in self.pools.items()}
        targets[name] = target
        return {
            each: in_flight(list(self.of(each).values()), targets[each] or pool.spec.image)
            for each, pool in self.pools.items()
        }

    def _check(self, view: PoolView, decision: Decision) -> None:
        plan, old = decision.plan, view.pool.status.slots
        alive = [pod for pod in view.pods if pod.is_alive]
        unseen = len(decision.state.unseen)
        created = [each for each in plan.create if each.counter > _counter(old, each.slot)]
        assert all(each.pod.is_idle for each in plan.delete)
        assert all(pod.is_idle for pod in (*plan.mark, *plan.unmark))
        assert len({each.pod.name for each in plan.delete}) == len(plan.delete)
        assert len(created) <= max(0, decision.state.replicas - len(alive) - unseen)
        # Some of the others are held back if the cap has become smaller since they were announced.
        assert len(created) >= len(plan.create) - unseen
        scaled = [each for each in plan.delete if each.why is pod_timeouts.Why.SCALED_DOWN]
        # Beyond its share, a pool also gives up Pods for its siblings.
        kept = min(decision.state.replicas, decision.share)
        assert len(scaled) <= max(0, len(alive) + unseen - kept)
        for each in created:
            name = pod_name(view.pool, each.slot, each.counter)
            assert name not in self.names
            assert each.counter == _counter(old, each.slot) + 1
            self.names.add(name)
        self._check_places(decision, len(created))
        if view.pool.spec.rollout.staging.mode != "Disabled":
            self._check_marks(decision)
        if decision.rollout.phase in {"Staging", "Paused"}:
            assert set(plan.mark) <= set(decision.state.drained)

    def _check_places(self, decision: Decision, created: int) -> None:
        pods = [pod for view in self.fleet().pools for pod in view.pods if pod.is_alive]
        usable = self.fleet().usable
        unseen = sum(len(view.state.unseen) for view in self.fleet().pools)
        used = sum(not pod.node or pod.node in usable for pod in pods) + unseen
        assert created <= max(0, decision.places.capacity - used)

    def _check_marks(self, decision: Decision) -> None:
        target, no_room = decision.rollout.target, decision.states.no_room
        for pod in decision.plan.mark:
            if pod.node and pod not in decision.state.drained:
                assert self.hosts[pod.node].has_image(target) or pod.node in no_room

    def _check_order(
        self, view: PoolView, fleet: Fleet, inputs: Inputs, decision: Decision
    ) -> None:
        pods = list(view.pods)
        self.rng.shuffle(pods)
        pools = [
            replace(each, pods=tuple(pods)) if each.pool.name == view.pool.name else each
            for each in fleet.pools
        ]
        shuffled = next(each for each in pools if each.pool.name == view.pool.name)
        other = decisions.decide(shuffled, replace(fleet, pools=tuple(pools)), inputs)
        assert other.plan.slots == decision.plan.slots
        assert other.plan.tickets == decision.plan.tickets
        assert {d.pod.name for d in other.plan.delete} == {d.pod.name for d in decision.plan.delete}
        assert other.rollout == decision.rollout
        assert other.staging == decision.staging

    def _check_again(self, name: str, inputs: Inputs, first: Decision) -> None:
        """Check that a controller that continues from the written status does the same, and nothing twice."""
        again = decisions.decide(self.view(name), self.fleet(), inputs).plan
        assert set(again.create) == set(first.plan.create)
        assert again.tickets == first.plan.tickets

    def _request_images(self, decision: Decision) -> None:
        for name, request in decision.staging.items():
            text = request.text() if request.images else ""
            self.hosts[name] = replace(self.hosts[name], request=text)

    def _perform(self, name: str, decision: Decision) -> None:
        plan, pods = decision.plan, self.of(name)
        share = 0.5 if self.rng.random() < 0.1 else 1.0
        for pod in self._part(plan.mark, share):
            pods[pod.name] = replace(pod, is_marked=True)
        for pod in self._part(plan.unmark, share):
            pods[pod.name] = replace(pod, is_marked=False)
        for each in self._part(plan.delete, share):
            pods[each.pod.name] = replace(pods[each.pod.name], deleted_at=self.now)
        for planned in self._part(plan.create, share):
            created = pod_name(self.pools[name], planned.slot, planned.counter)
            pods.setdefault(created, self._created(created, planned))

    def _part(self, items: Iterable[T], share: float) -> list[T]:
        return [each for each in items if self.rng.random() < share]

    def _created(self, name: str, planned: PlannedPod) -> RunnerPod:
        return RunnerPod(
            name=name,
            image=planned.pending.image,
            uid=name,
            slot=planned.slot,
            counter=planned.counter,
            created_for=planned.pending.created_for,
            created_at=self.now,
        )

    def _check_caps(self, name: str, decision: Decision, before: dict[str, int]) -> None:
        after = self._counts(name, decision.rollout.target)
        if not decision.rollout.last_good:
            return
        limit = cap(decision.state.percent, decision.state.replicas)
        assert after[name] <= max(limit, before[name])
        percent = min(pool.spec.rollout.max_concurrent_percent for pool in self.pools.values())
        fleet = cap(percent, sum(pool.spec.replicas for pool in self.pools.values()))
        assert sum(after.values()) <= max(fleet, sum(before.values()))
        if decision.rollout.phase in {"Staging", "Paused"}:
            # What was announced in an earlier phase may still be created.
            assert after[name] <= max(before[name], decision.state.changing)
        self.most_in_flight = max(self.most_in_flight, after[name])

    def live(self, share: float, *, is_good: bool = True, jobs: bool = True) -> None:
        """Let about this share of the Pods and hosts change: boot, get and end jobs, pull, disappear."""
        self.now += seconds(self.rng.choice([1, 5, 20, 60]))
        for host in list(self.hosts.values()):
            if self.rng.random() < share:
                self._pull(host)
        for pool, pods in self.pods.items():
            for pod in list(pods.values()):
                if self.rng.random() < share:
                    self._live(pool, pod, is_good=is_good, jobs=jobs)

    def _pull(self, host: Host) -> None:
        images = parse_request(host.request).images
        golden = host.golden | set(map(labels.golden, images))
        reports = tuple(StagedImage(each, State.STAGED) for each in images)
        report = StagingReport(request_id(host.request), reports)
        self.hosts[host.name] = replace(host, golden=golden, report=report)

    def _live(self, pool: str, pod: RunnerPod, *, is_good: bool, jobs: bool) -> None:
        pods = self.of(pool)
        if not pod.is_alive:
            slots = self.pools[pool].status.slots
            current = slots[pod.slot] if 0 <= pod.slot < len(slots) else None
            is_freed = current is None or current.counter > pod.counter or not current.active
            if pod.is_deleting or is_freed:
                del pods[pod.name]
        elif not pod.node:
            pods[pod.name] = replace(pod, node=self._scheduled(pod))
        elif not pod.is_ready and not pod.is_claimed:
            pods[pod.name] = self._booted(pod, is_good=is_good)
        elif pod.is_claimed or pod.is_marked:
            pods[pod.name] = replace(
                pod, phase="Succeeded", is_ready=False, finished_at=self.now, exit_code=0
            )
        elif jobs and self.rng.random() < 0.5:
            pods[pod.name] = replace(pod, is_claimed=True)

    def _booted(self, pod: RunnerPod, *, is_good: bool) -> RunnerPod:
        host = self.hosts[pod.node]
        self.hosts[pod.node] = replace(host, golden=host.golden | {labels.golden(pod.image)})
        if is_good:
            started = replace(pod, started_at=self.now - seconds(30), ready_changed_at=self.now)
            return replace(started, phase="Running", is_ready=True)
        ended = replace(pod, started_at=self.now - seconds(5), finished_at=self.now)
        return replace(ended, phase="Failed", exit_code=1, reason="Error")

    def _scheduled(self, pod: RunnerPod) -> str:
        taken = [each.node for pods in self.pods.values() for each in pods.values() if each.node]
        free = [h for h in self.hosts.values() if h.is_usable and taken.count(h.name) < h.pods]
        best = [host for host in free if host.has_image(pod.image)] or free
        return self.rng.choice(best).name if best else ""


def _counter(slots: Sequence[Any], number: int) -> int:
    return int(slots[number].counter) if number < len(slots) else 0
