"""The progress of a roll in numbers, for `bramley rollout status` and `bramley status`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from bramley.api import conditions
from bramley.api.names import conditions as types
from bramley.api.runner_pool import RunnerPool
from bramley.api.runner_pool_status import RollPhase
from bramley.runners import roll, rollout


class RollProgress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far a pool is on its way to its target image; all from its status."""

    pool: str
    namespace: str
    phase: RollPhase
    fleet: str
    image: str
    target: str
    last_good: str
    rejected: str
    # Why the image was rejected, or what the roll waits for.
    reason: str
    message: str
    desired: int
    replicas: int
    ready: int
    busy: int
    stale: int
    updated: int
    in_flight: int
    cap: int
    staged_hosts: int
    hosts: int
    started_at: datetime | None
    is_observed: bool

    @property
    def is_done(self) -> bool:
        """Return whether nothing is left to roll."""
        return self.is_observed and self.phase == "Idle"

    @property
    def is_rejected(self) -> bool:
        """Return whether the image of the spec was rejected or undone."""
        return self.is_observed and self.phase == "Rejected"


def progress(pool: RunnerPool, *, hosts: int) -> RollProgress:
    """Return the progress of a pool on a fleet with so many hosts."""
    status, spec = pool.status, pool.spec
    rolled_out = conditions.find(status.conditions, types.ROLLED_OUT)
    return RollProgress(
        pool=pool.name,
        namespace=pool.namespace or "",
        phase=status.roll_phase,
        fleet=spec.fleet_selector,
        image=spec.image,
        target=rollout.target_of(pool),
        last_good=status.last_good_image,
        rejected=status.rejected_image,
        reason=rolled_out.reason if rolled_out else "",
        message=rolled_out.message if rolled_out else "",
        desired=spec.replicas,
        replicas=status.observed_replicas,
        ready=status.ready_replicas,
        busy=status.busy_replicas,
        stale=status.stale_replicas,
        updated=max(0, status.observed_replicas - status.stale_replicas),
        in_flight=status.rolling_replicas,
        cap=roll.cap(spec.rollout.max_concurrent_percent, spec.replicas),
        staged_hosts=status.staged_hosts,
        hosts=hosts,
        started_at=status.roll_started_at,
        is_observed=rollout.is_observed(pool),
    )
