"""What the scheduler sees: keeps board and line true to the server's changes, and decides whom a change may help.

A Pod that fits nowhere is tried again when a Node could take it now, or when other Pods decide where it may go and they
changed; never because of a heartbeat. Handlers are called by informers and must not wait.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta

from bramley.api.core import Namespace, Node, Pod
from bramley.apiserver.controllers.scheduling import filters
from bramley.apiserver.controllers.scheduling.interpod_affinity import Neighbours
from bramley.apiserver.controllers.scheduling.nodes import NodeInfo
from bramley.apiserver.controllers.scheduling.pod_info import PodInfo
from bramley.apiserver.controllers.scheduling.scheduling_queue import SchedulingQueue
from bramley.apiserver.controllers.scheduling.snapshot import Snapshot
from bramley.base.clock import Clock
from bramley.runtime.keys import Key, key_of

SCHEDULER = "default-scheduler"
_ENDED = ("Succeeded", "Failed")

Wake = Callable[[Key, timedelta], None]


def waits_for_us(pod: Pod) -> bool:
    """Tell whether the Pod wants a Node, from this scheduler, and now."""
    spec = pod.spec
    return not (
        spec.node_name
        or pod.deleting
        or spec.scheduling_gates
        or spec.scheduler_name not in {"", SCHEDULER}
        or pod.status.phase in _ENDED
    )


class View:
    """The board, the line, the Pods that fit nowhere, and the Pods whose Node the server has not heard of yet."""

    def __init__(self, line: SchedulingQueue, *, clock: Clock, wake: Wake) -> None:
        self.board = Snapshot()
        self.line = line
        self.unfit: dict[Key, PodInfo] = {}
        self.assumed: dict[str, str] = {}
        self._clock = clock
        self._wake = wake

    def pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        """Take over what happened to a Pod."""
        if new is None or new.status.phase in _ENDED:
            gone = new or old
            if gone is not None:
                self._gone(key, gone.uid)
        elif new.spec.node_name:
            self._placed(key, old, new)
        elif new.uid in self.assumed:
            return
        elif waits_for_us(new):
            self._waits(key, old, new)
        else:
            self._drop(key)

    def node_changed(self, _key: Key, old: Node | None, new: Node | None) -> None:
        """Take over what happened to a Node."""
        if new is None:
            if old is not None:
                self.board.drop_node(old.name)
                self._neighbours_changed()
            return
        if old is not None and _offer(old) == _offer(new):
            return
        room = self.board.put_node(new)
        self._room_changed(room)
        if old is None or old.metadata.labels != new.metadata.labels:
            self._neighbours_changed()

    def namespace_changed(self, key: Key, old: Namespace | None, new: Namespace | None) -> None:
        """Take over what happened to a namespace's labels."""
        if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
            return
        self.board.put_namespace(key.name, None if new is None else new.metadata.labels)
        self._neighbours_changed()

    def assume(self, pod: PodInfo, node: str) -> None:
        """Count the Pod on the Node from now on, whatever the server knows."""
        self.assumed[pod.uid] = node
        self.unfit.pop(pod.key, None)
        self.board.put_pod(pod, node)

    def unassume(self, pod: Pod) -> None:
        """Take the Pod's Node away again and let it wait as before."""
        self.assumed.pop(pod.uid, None)
        room = self.board.take_pod(pod.uid)
        if waits_for_us(pod):
            # Whatever was wrong may still be, so this counts as a try in vain.
            self.line.tried(key_of(pod), self._clock.monotonic())
            self._queue(PodInfo.of(pod))
        if room is not None:
            self._room_changed(room)

    def in_vain(self, pod: PodInfo, nominated: str) -> None:
        """Note that the Pod fits nowhere, and which Node is being freed for it."""
        pod = self.unfit[pod.key] = dataclasses.replace(pod, nominated=nominated)
        self.line.tried(pod.key, self._clock.monotonic())
        self.board.nominate(pod, nominated)

    def try_again(self, pods: Iterable[PodInfo]) -> None:
        """Let Pods that fit nowhere wait in line again."""
        for pod in list(pods):
            self.unfit.pop(pod.key, None)
            self._queue(pod)

    def _waits(self, key: Key, old: Pod | None, new: Pod) -> None:
        known = old is not None and waits_for_us(old) and _wants(old) == _wants(new)
        if known and (key in self.unfit or key in self.line):
            return
        self.unfit.pop(key, None)
        pod = PodInfo.of(new)
        if new.status.nominated_node_name:
            self.board.nominate(pod, new.status.nominated_node_name)
        self._queue(pod)

    def _placed(self, key: Key, old: Pod | None, new: Pod) -> None:
        self.assumed.pop(new.uid, None)
        self._drop(key)
        is_known = self.board.place_of(new.uid) == new.spec.node_name
        if is_known and old is not None and _counts(old) == _counts(new):
            return
        before = self.board.take_pod(new.uid)
        self.board.put_pod(PodInfo.of(new), new.spec.node_name)
        if before is not None:
            self._room_changed(before)
        self._neighbours_changed()

    def _gone(self, key: Key, uid: str) -> None:
        self.assumed.pop(uid, None)
        self._drop(key)
        room = self.board.take_pod(uid)
        if room is not None:
            self._room_changed(room)
            self._neighbours_changed()

    def _drop(self, key: Key) -> None:
        self.line.remove(key)
        pod = self.unfit.pop(key, None)
        if pod is not None:
            self.board.nominate(pod, "")

    def _queue(self, pod: PodInfo) -> None:
        delay = self.line.add(pod, self._clock.monotonic())
        self._wake(pod.key, timedelta(seconds=delay))

    def _room_changed(self, room: NodeInfo) -> None:
        """Try those again who fit into this room now."""
        verdicts: dict[bytes, bool] = {}
        helped = []
        for pod in self.unfit.values():
            if pod.equivalence_key not in verdicts:
                verdicts[pod.equivalence_key] = room.is_there and _fits_alone(pod, room)
            if verdicts[pod.equivalence_key]:
                helped.append(pod)
        self.try_again(helped)

    def _neighbours_changed(self) -> None:
        """Try those again for whom other Pods matter; which ones these are is not worth finding out."""
        guarded = bool(self.board.anti_affinity_groups)
        self.try_again(pod for pod in self.unfit.values() if pod.has_neighbour_terms or guarded)


def _fits_alone(pod: PodInfo, room: NodeInfo) -> bool:
    around = Neighbours(pod, Counter(), Counter(), Counter(), lambda _: {})
    refused = filters.refusal(pod, room, around)
    return refused is None or refused is filters.NOT_NEAR


def _offer(node: Node) -> object:
    return (
        node.metadata.labels,
        node.spec.taints,
        node.spec.unschedulable,
        node.status.allocatable,
        node.status.capacity,
    )


def _wants(pod: Pod) -> object:
    return pod.spec, pod.metadata.labels


def _counts(pod: Pod) -> object:
    return pod.spec, pod.metadata.labels, pod.deleting
