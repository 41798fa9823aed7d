"""What the autoscaler observes of a fleet: the demand for each pool, and the slots that its pools share.

Demand comes from the dispatch server, at most once per pool in a few seconds, however many pools of the fleet need it. The last
answer counts while the server does not answer, up to a maximum age.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bramley.api import conditions
from bramley.api.core import Node
from bramley.api.names import labels
from bramley.api.runner_pool import RunnerPool
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.runners.dispatch_client import ScalingSignals, Signals
from bramley.runners.hosts import NOT_READY, Host, capacity, host_of

logger = log.get(__name__)

_NEVER = float("-inf")
# As long as Kubernetes leaves Pods on such a Node: a Mac that restarts must not cost the fleet its warm runners.
NOT_READY_GRACE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class SignalSettings:
    """For how long an answer is shared, how old the last good one may be, and the deadline of a request."""

    memo: timedelta = timedelta(seconds=4)
    max_age: timedelta = timedelta(minutes=2)
    deadline: timedelta = timedelta(seconds=6)


@dataclass(slots=True)
class _Entry:
    """The last answer for one pool."""

    answer: ScalingSignals | None = None
    answered_at: float = _NEVER
    attempted_at: float = _NEVER
    is_failing: bool = False


class RecentSignals:
    """Returns recent signals of pools; never raises because the dispatch server is away."""

    def __init__(
        self, signals: Signals, *, clock: Clock, settings: SignalSettings | None = None
    ) -> None:
        self._signals = signals
        self._clock = clock
        self._settings = settings or SignalSettings()
        self._entries: dict[str, _Entry] = {}

    async def of_all(self, pools: Iterable[str]) -> dict[str, ScalingSignals | None]:
        """Return the signals of several pools, requested concurrently; None where no recent ones exist."""
        async with asyncio.TaskGroup() as group:
            tasks = {pool: group.create_task(self._of(pool)) for pool in pools}
        return {pool: task.result() for pool, task in tasks.items()}

    def forget(self, pool: str) -> None:
        """Drop the signals of a pool that is gone or not autoscaled any more."""
        self._entries.pop(pool, None)

    async def _of(self, pool: str) -> ScalingSignals | None:
        entry = self._entries.setdefault(pool, _Entry())
        if self._age(entry.attempted_at) >= self._settings.memo.total_seconds():
            await self._fetch(pool, entry)
        is_recent = self._age(entry.answered_at) <= self._settings.max_age.total_seconds()
        return entry.answer if is_recent else None

    async def _fetch(self, pool: str, entry: _Entry) -> None:
        try:
            async with asyncio.timeout(self._settings.deadline.total_seconds()):
                entry.answer = await self._signals.desired_replicas(pool)
        except (errors.BramleyError, TimeoutError) as error:
            # Once per outage: an endpoint that is away for hours would fill the log.
            if not entry.is_failing:
                logger.warning("Fetching scaling signals failed", pool=pool, error=str(error))
            entry.is_failing = True
        else:
            entry.answered_at = self._clock.monotonic()
            entry.is_failing = False
        # Also after a failure: an endpoint that is away must not be called more often than one that answers.
        entry.attempted_at = self._clock.monotonic()

    def _age(self, since: float) -> float:
        return self._clock.monotonic() - since


@dataclass(frozen=True, slots=True)
class SharingPools:
    """Autoscaled pools that share hosts, and the slots for them; None if the slots are unknown."""

    pools: tuple[RunnerPool, ...]
    slots: int | None


def sharing_pools(fleet: Sequence[RunnerPool], hosts: Sequence[Host]) -> list[SharingPools]:
    """Divide the autoscaled pools of a fleet into those that share its slots, and those that no slot is known for."""
    slots = {pool.name: slots_for(pool, hosts) for pool in fleet}
    scaled = [pool for pool in fleet if is_autoscaled(pool)]
    # No host is visible, or their Pods fit on none.
    alone = [SharingPools((pool,), None) for pool in scaled if not slots[pool.name]]
    sharing = [pool for pool in fleet if slots[pool.name]]
    if not sharing:
        return alone
    # Pods of different sizes: the largest decides, because a slot that is too small for it would be counted otherwise.
    total = min(slots[pool.name] for pool in sharing)
    occupied = sum(_fixed_replicas(pool) for pool in sharing if not is_autoscaled(pool))
    together = tuple(pool for pool in scaled if slots[pool.name])
    return [SharingPools(together, max(0, total - occupied)), *alone]


def is_autoscaled(pool: RunnerPool) -> bool:
    """Return whether the autoscaler sets the replicas of a pool."""
    spec = pool.spec
    is_enabled = spec.autoscaling.enabled and spec.autoscaling.max_replicas > 0
    return is_enabled and spec.os == labels.DARWIN and not pool.deleting


def slots_for(pool: RunnerPool, hosts: Iterable[Host]) -> int:
    """Return how many Pods of this pool fit on the usable hosts."""
    return capacity(hosts, cpu_milli=pool.spec.pod_cpu_milli, memory_mb=pool.spec.pod_memory_mb)


def observed_host(node: Node, now: datetime) -> Host:
    """Return the host of a Node; one that became not ready a moment ago still counts as usable."""
    host = host_of(node)
    if host.unusable != NOT_READY:
        return host
    ready = conditions.find(node.status.conditions, "Ready")
    since = ready.last_transition_time if ready is not None else None
    if since is None or now - since >= NOT_READY_GRACE:
        return host
    return dataclasses.replace(host, unusable="")


def _fixed_replicas(pool: RunnerPool) -> int:
    # A pool that is being deleted keeps only the runners that have a job.
    return pool.status.busy_replicas if pool.deleting else pool.spec.replicas
