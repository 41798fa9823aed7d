"""Why Pods are deleted, and after how long a Pod without progress is replaced; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from bramley.api.names import events
from bramley.runners.pods import RunnerPod

# Idle Pods are replaced when nothing happens for this long. A pull is no standstill: it takes as long as it takes.
UNSCHEDULED_TIMEOUT = timedelta(minutes=5)
START_TIMEOUT = timedelta(minutes=15)
FAILING_TIMEOUT = timedelta(minutes=5)
SILENT_TIMEOUT = timedelta(minutes=5)
# A marked Pod leaves at its next poll; one that does not is deleted. One that is Ready and has polled may have a job whose owner
# another dispatch server could not stamp, so it gets the time of a long job.
DRAIN_TIMEOUT = timedelta(minutes=5)
READY_DRAIN_TIMEOUT = timedelta(hours=6)


class Why(StrEnum):
    """Why a Pod is deleted; also the reason of the event."""

    DRAINED = events.POD_DRAINED
    SCALED_DOWN = events.POD_SCALED_DOWN
    NODE_DRAINED = events.POD_RETIRED_FOR_NODE_DRAIN
    UNSCHEDULABLE = events.POD_UNSCHEDULABLE
    START_TIMED_OUT = events.POD_START_TIMED_OUT
    NOT_RESPONDING = events.POD_NOT_RESPONDING
    POOL_DELETED = events.POD_OF_DELETED_POOL


FAILURES = frozenset({Why.UNSCHEDULABLE, Why.START_TIMED_OUT, Why.NOT_RESPONDING})


def timeout(pod: RunnerPod) -> tuple[timedelta | None, Why]:
    """Return after how long a Pod in this state is replaced, and the reason."""
    if pod.is_ready:
        return None, Why.NOT_RESPONDING
    if not pod.node:
        return UNSCHEDULED_TIMEOUT, Why.UNSCHEDULABLE
    if pod.phase == "Running":
        return SILENT_TIMEOUT, Why.NOT_RESPONDING
    if pod.is_pulling:
        return None, Why.START_TIMED_OUT
    if pod.waiting == events.CREATE_FAILED:
        return FAILING_TIMEOUT, Why.START_TIMED_OUT
    return START_TIMEOUT, Why.START_TIMED_OUT


def drain_timeout(pod: RunnerPod, *, has_polled: bool) -> timedelta:
    """Return after how long a marked Pod that does not leave is deleted."""
    return READY_DRAIN_TIMEOUT if pod.is_ready and has_polled else DRAIN_TIMEOUT


def waiting_since(
    before: Mapping[str, tuple[str, datetime]], pods: Iterable[RunnerPod], now: datetime
) -> dict[str, tuple[str, datetime]]:
    """Return for each idle Pod what it waits for and since when, given the same from the pass before."""
    after = {}
    for pod in pods:
        if pod.is_idle and not pod.is_ready:
            state = f"{pod.uid} {pod.node} {pod.phase} {pod.waiting}"
            known = before.get(pod.name)
            after[pod.name] = known if known is not None and known[0] == state else (state, now)
    return after
