"""Runner Pods as the pool controller sees them, computed from Pods; pure.

A Pod is *alive* until it has ended or is being deleted, *claimed* once dispatch has stamped its owner, and *idle* while it is
alive and not claimed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import get_args

from bramley.api import conditions, names
from bramley.api.names import agent, events, labels, runners
from bramley.api.pod import ContainerState, Pod
from bramley.api.runner_pool import RunnerPool
from bramley.api.runner_pool_status import CreatedFor
from bramley.runtime.cache import Cache
from bramley.runtime.keys import Key

BY_POOL = "runner-pool"
_TERMINAL = ("Succeeded", "Failed")
_UNKNOWN_SLOT = -1
_REASONS: tuple[CreatedFor, ...] = get_args(CreatedFor)
# Ends that say nothing about the image.
_HOST_ENDS = (agent.HOST_REBOOTED, agent.STOPPED, agent.DEADLINE_EXCEEDED, "NodeLost", "Evicted")


@dataclass(frozen=True, slots=True)
class RunnerPod:
    """One Pod of a pool; `slot` is -1 for a Pod that another controller created."""

    name: str
    image: str = ""
    uid: str = ""
    resource_version: str = ""
    node: str = ""
    slot: int = _UNKNOWN_SLOT
    counter: int = 0
    created_for: CreatedFor = "ScaleUp"
    phase: str = "Pending"
    deleted_at: datetime | None = None
    is_claimed: bool = False
    is_marked: bool = False
    is_ready: bool = False
    created_at: datetime | None = None
    # When the Ready condition last changed, and when the VM started and ended.
    ready_changed_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    # Why the container waits, and why the Pod ended.
    waiting: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int | None = None

    @property
    def is_deleting(self) -> bool:
        """Return whether the Pod is being deleted."""
        return self.deleted_at is not None

    @property
    def is_terminal(self) -> bool:
        """Return whether the Pod has ended."""
        return self.phase in _TERMINAL

    @property
    def is_alive(self) -> bool:
        """Return whether the Pod has neither ended nor is being deleted."""
        return not self.is_deleting and not self.is_terminal

    @property
    def is_idle(self) -> bool:
        """Return whether the Pod is alive and has no job."""
        return self.is_alive and not self.is_claimed

    @property
    def has_started(self) -> bool:
        """Return whether the VM has ever run."""
        return self.started_at is not None or self.phase == "Running"

    @property
    def is_pulling(self) -> bool:
        """Return whether the host pulls the image for this Pod, or the Pod waits for a host or a slot of it."""
        waits_for_host = not self.node or self.waiting == agent.AWAITING_SLOT
        return self.is_alive and (waits_for_host or self.waiting == events.PULLING_IMAGE)

    @property
    def boot(self) -> timedelta | None:
        """Return the time from the start of the VM until the Pod was Ready; None while it is not."""
        if not self.is_ready or self.started_at is None or self.ready_changed_at is None:
            return None
        return max(self.ready_changed_at - self.started_at, timedelta())

    @property
    def boot_seconds(self) -> int | None:
        """Return the same in whole seconds."""
        return None if self.boot is None else round(self.boot.total_seconds())

    @property
    def is_failure(self) -> bool:
        """Return whether the Pod ended by itself without ever having had a job."""
        if not self.is_terminal or self.is_deleting or self.is_claimed or self.is_marked:
            return False
        return self.phase == "Failed" or self.ended_at_once

    @property
    def ended_at_once(self) -> bool:
        """Return whether the VM ended before or shortly after it could have been given a job."""
        if self.started_at is None or self.finished_at is None:
            return self.is_terminal
        return self.is_terminal and self.finished_at - self.started_at < _SHORTEST_LIFE

    @property
    def is_failure_of_image(self) -> bool:
        """Return whether the Pod failed and the cause may be its image."""
        return self.is_failure and self.reason not in _HOST_ENDS


_SHORTEST_LIFE = timedelta(seconds=60)


def pod_name(pool: RunnerPool, slot: int, counter: int) -> str:
    """Return the name of one Pod of a slot; a repeated create has the same name."""
    digits = hashlib.sha256(f"{pool.uid}/{slot}/{counter}".encode()).hexdigest()[:8]
    return runners.pod_name(pool.name, digits)


def slot_text(slot: int, counter: int) -> str:
    """Return the annotation that stores slot and counter of a Pod."""
    return f"{slot}/{counter}"


def parse_slot(text: str) -> tuple[int, int]:
    """Return slot and counter; slot -1 if there is no annotation, or it is not valid."""
    slot, _, counter = text.partition("/")
    if slot.isdecimal() and counter.isdecimal():
        return int(slot), int(counter)
    return _UNKNOWN_SLOT, 0


def is_claimed(pod: Pod) -> bool:
    """Return whether dispatch has given a job to a Pod."""
    stamps = (labels.RUNNER_POOL_OWNER, labels.RUNNER_ACCOUNT)
    return any(pod.metadata.labels.get(stamp) for stamp in stamps)


def is_terminal(pod: Pod) -> bool:
    """Return whether a Pod has ended."""
    return pod.status.phase in _TERMINAL


def ended_at(pod: Pod, now: datetime) -> datetime:
    """Return when a Pod ended: when its last container did, else when its deletion was requested, else now."""
    ends = [
        each.state.terminated.finished_at
        for each in pod.status.container_statuses
        if each.state.terminated is not None and each.state.terminated.finished_at is not None
    ]
    return max(ends, default=None) or pod.metadata.deletion_timestamp or now


def view(pod: Pod) -> RunnerPod:
    """Return what the controller uses of a Pod."""
    metadata, status = pod.metadata, pod.status
    slot, counter = parse_slot(metadata.annotations.get(names.annotations.RUNNER_SLOT, ""))
    ready = conditions.find(status.conditions, "Ready")
    state = status.container_statuses[0].state if status.container_statuses else ContainerState()
    started_at, finished_at = _times(state)
    return RunnerPod(
        name=pod.name,
        image=pod.spec.containers[0].image if pod.spec.containers else "",
        uid=pod.uid,
        resource_version=metadata.resource_version,
        node=pod.spec.node_name,
        slot=slot,
        counter=counter,
        created_for=_created_for(pod),
        phase=status.phase or "Pending",
        deleted_at=metadata.deletion_timestamp,
        is_claimed=is_claimed(pod),
        is_marked=metadata.labels.get(labels.DRAIN_ELIGIBLE) == labels.TRUE,
        is_ready=ready is not None and ready.status == "True",
        created_at=metadata.creation_timestamp,
        ready_changed_at=ready.last_transition_time if ready is not None else None,
        started_at=started_at,
        finished_at=finished_at,
        waiting=state.waiting.reason if state.waiting is not None else "",
        reason=_reason(pod, state),
        message=state.waiting.message if state.waiting is not None else status.message,
        exit_code=state.terminated.exit_code if state.terminated is not None else None,
    )


def _created_for(pod: Pod) -> CreatedFor:
    # A Pod of another controller counts like one that was created for more capacity.
    text = pod.metadata.annotations.get(names.annotations.CREATED_FOR, "")
    return next((reason for reason in _REASONS if reason == text), "ScaleUp")


def _times(state: ContainerState) -> tuple[datetime | None, datetime | None]:
    if state.terminated is not None:
        return state.terminated.started_at, state.terminated.finished_at
    return (state.running.started_at if state.running is not None else None), None


def _reason(pod: Pod, state: ContainerState) -> str:
    if state.terminated is not None and pod.status.reason in {"", agent.RUN_EXITED}:
        return state.terminated.reason
    return pod.status.reason


class PodViews:
    """The views of all Pods by pool, computed again only for pools whose Pods have changed."""

    def __init__(self, cache: Cache[Pod]) -> None:
        self._cache = cache
        self._views: dict[str, tuple[RunnerPod, ...]] = {}

    def on_change(self, _key: Key, old: Pod | None, new: Pod | None) -> None:
        """Drop the views of the pools that a Pod belongs to or belonged to; registered with the informer."""
        for pod in (old, new):
            if pod is not None:
                self._views.pop(pod.metadata.labels.get(labels.RUNNER_POOL, ""), None)

    def of_pool(self, pool: str) -> tuple[RunnerPod, ...]:
        """Return the Pods of a pool, sorted by name."""
        views = self._views.get(pool)
        if views is None:
            views = self._views[pool] = tuple(map(view, self._cache.by_index(BY_POOL, pool)))
        return views


def index_by_pool() -> Callable[[Pod], list[str]]:
    """Return the function that the index `BY_POOL` finds Pods by."""
    return lambda pod: [pod.metadata.labels.get(labels.RUNNER_POOL, "")]
