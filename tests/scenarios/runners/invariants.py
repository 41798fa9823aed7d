"""What must hold after every write of a pool controller, computed from what the server stores.

It counts by itself, without the code under test: Pods in flight against the caps of pool and fleet, marks only where the image is,
no claimed Pod deleted, no surplus Pod, no name used twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from bramley.api import conditions, names
from bramley.api.core import Node
from bramley.api.meta import Object
from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.apiserver.store.store import Store

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Count:
    """The roll of one pool at one moment; `in_flight` is without Pods that were Ready once and are not any more."""

    target: str
    replicas: int
    cap: int
    in_flight: int
    idle_stale: int
    # What the metrics show.
    rolling: int
    stale: int


@dataclass(slots=True)
class Invariants:
    """The invariants of all pools; `observe` records violations, `check` raises."""

    store: Store
    # Whether Pods may be marked on hosts without the image: staging is disabled, or a disk is full.
    allows_cold: bool = False
    violations: list[str] = field(default_factory=list)
    counts: dict[str, Count] = field(default_factory=dict)
    most_in_flight: dict[str, int] = field(default_factory=dict)
    fewest_ready: dict[str, int] = field(default_factory=dict)
    most_of_fleet: int = 0
    observations: int = 0
    marked: set[str] = field(default_factory=set)
    # How many Pods a pool may have: after a smaller `replicas`, the tickets of the larger one are still good.
    _most_pods: dict[str, int] = field(default_factory=dict)
    _before: dict[str, Pod] = field(default_factory=dict)
    _uids: dict[str, str] = field(default_factory=dict)
    _ever_ready: set[str] = field(default_factory=set)
    _fleet: tuple[object, int] = (None, 0)
    _decoded: dict[int, object] = field(default_factory=dict)

    def check(self) -> None:
        """Raise if an invariant was ever violated."""
        self.observe("check")
        assert not self.violations, "\n".join(self.violations[:5])

    def observe(self, label: str) -> None:
        """Record the invariants that the last write violates."""
        self.observations += 1
        pods = self.pods()
        pools = self.pools()
        nodes = {node.name: node for node in self._list("nodes", Node)}
        self._ever_ready |= {pod.uid for pod in pods.values() if is_ready(pod)}
        counts = {name: self._count(pool, pods) for name, pool in pools.items()}
        for name, new in counts.items():
            self._record(name, new, pods)
            self._check_cap(label, name, self.counts.get(name), new)
            self._check_surplus(label, pools[name], pods)
        self._check_fleet(label, pools, counts)
        for pod in pods.values():
            self._check_pod(label, pod, pools, nodes)
        self.counts, self._before = counts, pods

    def remember_ready(self) -> None:
        """Remember which Pods are Ready, before a test makes some of them unready."""
        self._ever_ready |= {pod.uid for pod in self.pods().values() if is_ready(pod)}

    def start_recording(self) -> None:
        """Forget how many Pods were in flight and Ready so far."""
        self.most_in_flight.clear()
        self.fewest_ready.clear()
        self.most_of_fleet = 0

    def pods(self) -> dict[str, Pod]:
        """Return the stored Pods by name."""
        return {pod.name: pod for pod in self._list("pods", Pod)}

    def pools(self) -> dict[str, RunnerPool]:
        """Return the stored pools by name."""
        return {pool.name: pool for pool in self._list("runnerpools.tuist.dev", RunnerPool)}

    def count(self, pool: str) -> Count:
        """Return the roll of a pool as it is stored."""
        return self._count(self.pools()[pool], self.pods())

    def _list(self, resource: str, kind: type[T]) -> list[T]:
        found: list[T] = []
        for record in self.store.list(resource):
            decoded = self._decoded.get(record.rv)
            if not isinstance(decoded, kind):
                decoded = self._decoded[record.rv] = msgspec.json.decode(record.body, type=kind)
            found.append(decoded)
        return found

    def _record(self, name: str, new: Count, pods: Mapping[str, Pod]) -> None:
        ready = sum(
            is_alive(pod) and is_ready(pod)
            for pod in pods.values()
            if pod.metadata.labels.get(labels.RUNNER_POOL) == name
        )
        self.most_in_flight[name] = max(self.most_in_flight.get(name, 0), new.in_flight)
        self.fewest_ready[name] = min(self.fewest_ready.get(name, ready), ready)

    def _count(self, pool: RunnerPool, pods: Mapping[str, Pod]) -> Count:
        target = pool.status.target_image or pool.spec.image
        alive = [pod for pod in pods.values() if of_pool(pod, pool) and is_alive(pod)]
        idle = [pod for pod in alive if not is_claimed(pod)]
        stale = [pod for pod in idle if image_of(pod) != target]
        marked = sum(labels.DRAIN_ELIGIBLE in pod.metadata.labels for pod in stale)
        unready = [
            pod
            for pod in idle
            if image_of(pod) == target
            and not is_ready(pod)
            and pod.metadata.annotations.get(names.annotations.CREATED_FOR) != "Turnover"
        ]
        booting = sum(pod.uid not in self._ever_ready for pod in unready)
        percent, replicas = pool.spec.rollout.max_concurrent_percent, pool.spec.replicas
        return Count(
            target=target,
            replicas=replicas,
            cap=max(1, percent * replicas // 100),
            in_flight=marked + booting if stale else 0,
            idle_stale=len(stale),
            rolling=marked + len(unready) if stale else 0,
            stale=sum(image_of(pod) != target for pod in alive),
        )

    def _check_cap(self, label: str, name: str, old: Count | None, new: Count) -> None:
        # While nothing is stale no cap applies; another target or size starts from what there is.
        if old is None or not old.idle_stale:
            return
        is_same = (old.target, old.replicas, old.cap) == (new.target, new.replicas, new.cap)
        if is_same and new.in_flight > max(new.cap, old.in_flight):
            self.violations.append(f"{label}: {name} has {new.in_flight} in flight, cap {new.cap}")

    def _check_fleet(
        self, label: str, pools: Mapping[str, RunnerPool], counts: Mapping[str, Count]
    ) -> None:
        if len(pools) < 2:
            return
        percent = min(pool.spec.rollout.max_concurrent_percent for pool in pools.values())
        cap = max(1, percent * sum(pool.spec.replicas for pool in pools.values()) // 100)
        in_flight = sum(count.in_flight for count in counts.values())
        self.most_of_fleet = max(self.most_of_fleet, in_flight)
        rolls = sorted((name, each.target, each.idle_stale > 0) for name, each in counts.items())
        facts = (cap, tuple(rolls))
        before, self._fleet = self._fleet, (facts, in_flight)
        if before[0] == facts and in_flight > max(cap, before[1]):
            self.violations.append(f"{label}: the fleet has {in_flight} in flight, cap {cap}")

    def _check_surplus(self, label: str, pool: RunnerPool, pods: Mapping[str, Pod]) -> None:
        alive = [pod for pod in pods.values() if of_pool(pod, pool) and is_alive(pod)]
        replicas = pool.spec.replicas
        has_tickets = any(slot.pending is not None for slot in pool.status.slots)
        if len(alive) <= replicas and not has_tickets:
            self._most_pods[pool.name] = replicas
        most = self._most_pods[pool.name] = max(replicas, self._most_pods.get(pool.name, 0))
        if len(alive) > most and any(pod.name not in self._before for pod in alive):
            self.violations.append(f"{label}: {len(alive)} Pods of {pool.name}, {most} desired")

    def _check_pod(
        self, label: str, pod: Pod, pools: Mapping[str, RunnerPool], nodes: Mapping[str, Node]
    ) -> None:
        if self._uids.setdefault(pod.name, pod.uid) != pod.uid:
            self.violations.append(f"{label}: the name {pod.name} was used twice")
            self._uids[pod.name] = pod.uid
        # Others delete claimed Pods too, such as the taint eviction of a dead host; the controller never does.
        is_deleted_now = label.startswith("DELETE ") and label.endswith(f"/pods/{pod.name} 200")
        if is_deleted_now and is_claimed(pod) and not is_ended(pod):
            self.violations.append(f"{label}: claimed Pod {pod.name} was deleted")
        if labels.DRAIN_ELIGIBLE in pod.metadata.labels and pod.uid not in self.marked:
            self.marked.add(pod.uid)
            self._check_mark(label, pod, pools, nodes)
        if pod.name not in self._before:
            self._check_announced(label, pod, pools)

    def _check_announced(self, label: str, pod: Pod, pools: Mapping[str, RunnerPool]) -> None:
        """Check that the status had the slot and the counter of a Pod before it was created."""
        pool = pools.get(pod.metadata.labels.get(labels.RUNNER_POOL, ""))
        slot, _, counter = pod.metadata.annotations.get(
            names.annotations.RUNNER_SLOT, ""
        ).partition("/")
        if pool is None or not counter:
            return
        slots = pool.status.slots
        if int(slot) >= len(slots) or slots[int(slot)].counter < int(counter):
            self.violations.append(f"{label}: {pod.name} was created before it was announced")

    def _check_mark(
        self, label: str, pod: Pod, pools: Mapping[str, RunnerPool], nodes: Mapping[str, Node]
    ) -> None:
        pool = pools.get(pod.metadata.labels[labels.RUNNER_POOL])
        node = nodes.get(pod.spec.node_name)
        if pool is None:
            return
        if label.endswith(f"/pods/{pod.name} 200") and not is_claimed(pod):
            tickets = {ticket.pod for ticket in pool.status.draining}
            if pod.name not in tickets:
                self.violations.append(f"{label}: {pod.name} was marked without a ticket")
        target = pool.status.target_image
        # Without a target the mark is of another controller.
        if node is None or self.allows_cold or not target:
            return
        if image_of(pod) != target and labels.golden(target) not in node.metadata.labels:
            self.violations.append(f"{label}: {pod.name} is marked, {node.name} lacks the image")


def of_pool(pod: Pod, pool: RunnerPool) -> bool:
    """Return whether a Pod belongs to a pool."""
    return pod.metadata.labels.get(labels.RUNNER_POOL) == pool.name


def is_ended(pod: Pod) -> bool:
    """Return whether a Pod has ended."""
    return pod.status.phase in {"Succeeded", "Failed"}


def is_alive(pod: Pod) -> bool:
    """Return whether a Pod has neither ended nor is being deleted."""
    return not pod.deleting and not is_ended(pod)


def is_claimed(pod: Pod) -> bool:
    """Return whether a Pod has a job."""
    return bool(pod.metadata.labels.get(labels.RUNNER_POOL_OWNER))


def is_ready(pod: Pod) -> bool:
    """Return whether a Pod is Ready."""
    return conditions.is_true(pod.status.conditions, "Ready")


def image_of(pod: Pod) -> str:
    """Return the image of a Pod."""
    return pod.spec.containers[0].image
