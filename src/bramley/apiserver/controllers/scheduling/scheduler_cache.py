"""`SchedulerCache`: applies changes of Pods, Nodes and namespaces to the snapshot and the scheduling queue.

An unschedulable Pod is queued again when a Node changes so that the Pod would fit, or when its affinity depends on other Pods
and those change; never because of a heartbeat. Informers call the handlers, which must not block.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta

from bramley.api.core import Namespace, Node, Pod
from bramley.apiserver.controllers.scheduling import filters
from bramley.apiserver.controllers.scheduling.interpod_affinity import AffinityCounts
from bramley.apiserver.controllers.scheduling.node_info import NodeInfo
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo
from bramley.apiserver.controllers.scheduling.scheduling_queue import SchedulingQueue
from bramley.apiserver.controllers.scheduling.snapshot import Snapshot
from bramley.base.clock import Clock
from bramley.runtime.keys import Key, key_of

SCHEDULER = "default-scheduler"
_ENDED = ("Succeeded", "Failed")

EnqueueAfter = Callable[[Key, timedelta], None]


def needs_scheduling(pod: Pod) -> bool:
    """Return whether this scheduler has to find a Node for the Pod."""
    spec = pod.spec
    return not (
        spec.node_name
        or pod.deleting
        or spec.scheduling_gates
        or spec.scheduler_name not in {"", SCHEDULER}
        or pod.status.phase in _ENDED
    )


class SchedulerCache:
    """The snapshot, the queue, the unschedulable Pods, and the Pods whose binding the server has not confirmed yet."""

    def __init__(self, queue: SchedulingQueue, *, clock: Clock, enqueue: EnqueueAfter) -> None:
        self.snapshot = Snapshot()
        self.queue = queue
        self.unschedulable: dict[Key, PodInfo] = {}
        self.assumed: dict[str, str] = {}
        self._clock = clock
        self._enqueue = enqueue

    def pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        """Apply a change of a Pod."""
        if new is None or new.status.phase in _ENDED:
            last_state = new or old
            if last_state is not None:
                self._pod_removed(key, last_state.uid)
        elif new.spec.node_name:
            self._pod_assigned(key, old, new)
        elif new.uid in self.assumed:
            # An event from before the binding: the Pod already counts on its Node.
            return
        elif needs_scheduling(new):
            self._pod_pending(key, old, new)
        else:
            self._drop_pending(key)

    def node_changed(self, _key: Key, old: Node | None, new: Node | None) -> None:
        """Apply a change of a Node."""
        if new is None:
            if old is not None:
                self.snapshot.remove_node(old.name)
                self._requeue_by_affinity()
            return
        # Heartbeats change only conditions; they must not requeue Pods.
        if old is not None and _node_fields(old) == _node_fields(new):
            return
        self._requeue_fitting(self.snapshot.update_node(new))
        if old is None or old.metadata.labels != new.metadata.labels:
            self._requeue_by_affinity()

    def namespace_changed(self, key: Key, old: Namespace | None, new: Namespace | None) -> None:
        """Apply a change of a namespace's labels."""
        if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
            return
        self.snapshot.set_namespace_labels(key.name, None if new is None else new.metadata.labels)
        self._requeue_by_affinity()

    def assume(self, pod: PodInfo, node: str) -> None:
        """Count the Pod on the Node from now on, before the server confirms it."""
        self.assumed[pod.uid] = node
        self.unschedulable.pop(pod.key, None)
        self.snapshot.add_pod(pod, node)

    def forget(self, pod: Pod) -> None:
        """Undo `assume`, and queue the Pod again."""
        self.assumed.pop(pod.uid, None)
        node = self.snapshot.remove_pod(pod.uid)
        if needs_scheduling(pod):
            # The binding may fail again for the same reason, so this counts as an attempt and backs off.
            self.queue.record_attempt(key_of(pod), self._clock.monotonic())
            self._queue(PodInfo.of(pod))
        if node is not None:
            self._requeue_fitting(node)

    def mark_unschedulable(self, pod: PodInfo, nominated_node: str) -> None:
        """Record that no Node is feasible, and the Node that is being freed for the Pod, if any."""
        pod = dataclasses.replace(pod, nominated_node=nominated_node)
        self.unschedulable[pod.key] = pod
        self.queue.record_attempt(pod.key, self._clock.monotonic())
        self.snapshot.nominate(pod, nominated_node)

    def requeue(self, pods: Iterable[PodInfo]) -> None:
        """Move unschedulable Pods back to the queue."""
        for pod in list(pods):
            self.unschedulable.pop(pod.key, None)
            self._queue(pod)

    def _pod_pending(self, key: Key, old: Pod | None, new: Pod) -> None:
        is_unchanged = (
            old is not None
            and needs_scheduling(old)
            and (old.spec, old.metadata.labels) == (new.spec, new.metadata.labels)
        )
        if is_unchanged and (key in self.unschedulable or key in self.queue):
            return
        self.unschedulable.pop(key, None)
        pod = PodInfo.of(new)
        if new.status.nominated_node_name:
            self.snapshot.nominate(pod, new.status.nominated_node_name)
        self._queue(pod)

    def _pod_assigned(self, key: Key, old: Pod | None, new: Pod) -> None:
        self.assumed.pop(new.uid, None)
        self._drop_pending(key)
        is_counted = self.snapshot.node_of(new.uid) == new.spec.node_name
        if is_counted and old is not None and _counted_fields(old) == _counted_fields(new):
            return
        # The server decides: another scheduler may have bound the Pod to another Node than the assumed one.
        before = self.snapshot.remove_pod(new.uid)
        self.snapshot.add_pod(PodInfo.of(new), new.spec.node_name)
        if before is not None:
            self._requeue_fitting(before)
        self._requeue_by_affinity()

    def _pod_removed(self, key: Key, uid: str) -> None:
        self.assumed.pop(uid, None)
        self._drop_pending(key)
        node = self.snapshot.remove_pod(uid)
        if node is not None:
            self._requeue_fitting(node)
            self._requeue_by_affinity()

    def _drop_pending(self, key: Key) -> None:
        self.queue.remove(key)
        pod = self.unschedulable.pop(key, None)
        if pod is not None:
            self.snapshot.nominate(pod, "")

    def _queue(self, pod: PodInfo) -> None:
        delay = self.queue.add(pod, self._clock.monotonic())
        self._enqueue(pod.key, timedelta(seconds=delay))

    def _requeue_fitting(self, node: NodeInfo) -> None:
        """Requeue the unschedulable Pods that fit on this Node now."""
        fits: dict[bytes, bool] = {}
        helped = []
        for pod in self.unschedulable.values():
            if pod.equivalence_key not in fits:
                fits[pod.equivalence_key] = node.exists and _fits_without_affinity(pod, node)
            if fits[pod.equivalence_key]:
                helped.append(pod)
        self.requeue(helped)

    def _requeue_by_affinity(self) -> None:
        """Requeue all unschedulable Pods that other Pods may affect; finding out which ones do costs more."""
        any_repelling = bool(self.snapshot.anti_affinity_groups)
        self.requeue(
            pod
            for pod in self.unschedulable.values()
            if pod.has_required_pod_affinity or any_repelling
        )


def _fits_without_affinity(pod: PodInfo, node: NodeInfo) -> bool:
    counts = AffinityCounts(pod, Counter(), Counter(), Counter(), lambda _: {})
    rejection = filters.run_filters(pod, node, counts)
    return rejection is None or rejection is filters.POD_AFFINITY


def _node_fields(node: Node) -> object:
    return (
        node.metadata.labels,
        node.spec.taints,
        node.spec.unschedulable,
        node.status.allocatable,
        node.status.capacity,
    )


def _counted_fields(pod: Pod) -> object:
    return pod.spec, pod.metadata.labels, pod.deleting
