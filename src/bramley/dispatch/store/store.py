"""The store of dispatch: every operation by name, with its inputs checked.

Contract: a call that returns has been committed durably, one that raises has changed nothing, except that after Unavailable the
result is unknown and the call may be repeated. Every call may be made by several replicas at once on PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from bramley.base.errors import BadRequest
from bramley.base.secret import Secret
from bramley.dispatch.fair_share import NO_POLICY, Policy
from bramley.dispatch.jobs import Report, State
from bramley.dispatch.pool_matching import Route
from bramley.dispatch.store import claims, inbox, job_updates, logs, reports
from bramley.dispatch.store.operations import Database
from bramley.dispatch.store.records import (
    Claim,
    Delivery,
    Job,
    JobFilter,
    LiveClaim,
    Pod,
    PoolStats,
    QueuePosition,
    RollSignals,
    ScalingSignals,
    Timeline,
)
from bramley.dispatch.wakeups import Wakeups
from bramley.dispatch.webhook_payload import MAX_BODY_BYTES, identifier, shown

MAX_JIT_CHARACTERS = 64 * 1024


@dataclass(frozen=True, slots=True)
class Store:
    """The queue of jobs on a database."""

    database: Database

    @property
    def wakeups(self) -> Wakeups:
        """Return the waiting polls of this process, which are woken when jobs are queued."""
        return self.database.wakeups

    async def receive(self, guid: str, event: str, body: bytes, now: datetime) -> bool:
        """Store a webhook delivery; return False if it, or one with the same content, is known."""
        if len(body) > MAX_BODY_BYTES:
            raise BadRequest(f"body has {len(body)} bytes, the limit is {MAX_BODY_BYTES}")
        identifier("delivery guid", guid)
        identifier("event", event)
        return await self.database.run(partial(inbox.receive, guid, event, body, now))

    async def pending_deliveries(
        self, limit: int = 100, *, after_id: int = 0
    ) -> tuple[Delivery, ...]:
        """Return the oldest deliveries that are not processed, by id."""
        return await self.database.run(partial(inbox.pending, after_id, limit))

    async def process(
        self, delivery_id: int, report: Report, route: Route, now: datetime
    ) -> State | None:
        """Apply a delivery's report exactly once; return the job's state, or None if it was processed before."""
        return await self.database.run(partial(inbox.process, delivery_id, report, route, now))

    async def skip(self, delivery_id: int, outcome: str, now: datetime) -> bool:
        """Mark a delivery that concerns no job."""
        return await self.database.run(partial(inbox.skip, delivery_id, shown(outcome), now))

    async def apply_report(self, report: Report, route: Route, now: datetime) -> State:
        """Apply what a query of GitHub returned; return the job's state."""
        return await self.database.run(partial(job_updates.apply_report, report, route, now))

    async def claim(
        self,
        pod: Pod,
        pool: str,
        now: datetime,
        *,
        policy: Policy = NO_POLICY,
        excluded: frozenset[str] = frozenset(),
    ) -> Claim | None:
        """Return the Pod's claim, a new one if it has none, or None without a job; raise Gone if the Pod has had its runner.

        Accounts that are excluded get no new claim.
        """
        _check_pod(pod, pool)
        return await self.database.run(
            partial(claims.claim, pod, pool, policy, now, excluded=excluded)
        )

    async def find_claim(self, pod_uid: str) -> Claim | None:
        """Return the newest claim of a Pod, also one that ended."""
        return await self.database.run(partial(claims.find_claim, pod_uid))

    async def claim_of_pod_name(self, pod_name: str) -> Claim | None:
        """Return the newest claim of the Pods with a name, also one that ended."""
        return await self.database.run(partial(claims.claim_of_pod_name, pod_name))

    async def live_claims(
        self, *, after_handle: int = 0, limit: int = 500
    ) -> tuple[LiveClaim, ...]:
        """Return claims whose job or Pod has not ended, by handle, with their jobs."""
        return await self.database.run(partial(claims.live_claims, after_handle, limit))

    async def stamp(self, handle: int, runner_name: str, now: datetime) -> bool:
        """Record that the Pod has its owner label, and the runner's name; False if the claim has moved on."""
        identifier("runner name", runner_name)
        return await self.database.run(partial(claims.stamp, handle, runner_name, now))

    async def restamp(self, handle: int, old_name: str, new_name: str, now: datetime) -> bool:
        """Replace the runner's name of a claim without a JIT config; False if the claim or its name has moved on."""
        identifier("runner name", new_name)
        return await self.database.run(partial(claims.restamp, handle, old_name, new_name, now))

    async def mint(
        self, handle: int, runner_name: str, jit: Secret, runner_id: int, now: datetime
    ) -> bool:
        """Store the JIT config of the runner of a stamped claim; False if the claim or its name has moved on."""
        if not 0 < len(jit.reveal()) <= MAX_JIT_CHARACTERS or not jit.reveal().isascii():
            raise BadRequest("the JIT config is empty, too long or not ASCII")
        return await self.database.run(
            partial(claims.mint, handle, runner_name, jit, runner_id, now)
        )

    async def runner_online(self, handle: int, now: datetime) -> bool:
        """Record that GitHub sees the runner, and delete its JIT config; False if that was done before."""
        return await self.database.run(partial(claims.runner_online, handle, now))

    async def release(self, handle: int, outcome: str, now: datetime) -> bool:
        """End a claim and return its job to the queue unless the job has started; False if the claim has moved on."""
        return await self.database.run(partial(claims.release, handle, shown(outcome), now))

    async def end_claim(self, handle: int, outcome: str, now: datetime) -> bool:
        """Finish and end the claim of a Pod that is gone; its job is not queued.

        False if the claim had ended, or if it holds a job that has not started: `release` returns that to the queue.
        """
        return await self.database.run(partial(claims.end_claim, handle, shown(outcome), now))

    async def pod_stopped(
        self, pod_name: str, ended_at: datetime, now: datetime
    ) -> tuple[Claim, ...]:
        """End the claims of a Pod; return those whose job may have started, to be checked with GitHub."""
        identifier("Pod name", pod_name)
        return await self.database.run(partial(claims.pod_stopped, pod_name, ended_at, now))

    async def first_poll(self, pod: Pod, pool: str, now: datetime) -> bool:
        """Record the first poll of a Pod; False for later ones, which write nothing."""
        _check_pod(pod, pool)
        return await self.database.run(partial(claims.first_poll, pod, pool, now))

    async def cancel(self, job_id: int, now: datetime) -> bool:
        """Cancel a job that has not ended."""
        return await self.database.run(partial(job_updates.cancel, job_id, now))

    async def requeue(self, job_id: int, now: datetime) -> bool:
        """Return a claimed or running job to the queue and end its claim; False for a job in another state."""
        return await self.database.run(partial(claims.requeue_job, job_id, now))

    async def reroute(
        self, job_id: int, old_pool: str, route: Route, now: datetime
    ) -> State | None:
        """Give a job the pool of a route; return its state, or None if it ended, has another pool than the old one, or gets none.

        A job that a Pod has stays in its pool.
        """
        return await self.database.run(partial(job_updates.reroute, job_id, old_pool, route, now))

    async def touch_job(self, job_id: int, now: datetime) -> None:
        """Record that a job was compared with GitHub, so that `stale_jobs` returns others first."""
        await self.database.run(partial(job_updates.touch_job, job_id, now))

    async def queued_pools(self) -> tuple[str, ...]:
        """Return the pools that have queued jobs."""
        return await self.database.run(reports.queued_pools)

    async def unstarted_jobs(
        self, pool: str, since: datetime, *, after_id: int = 0, limit: int = 500
    ) -> tuple[Job, ...]:
        """Return the jobs of a pool that no Pod has, by id; without a pool, those that have not ended and changed since a time."""
        return await self.database.run(
            partial(reports.unstarted_jobs, pool, since, after_id, limit)
        )

    async def stale_jobs(
        self, states: Sequence[State], before: datetime, *, after_id: int = 0, limit: int = 500
    ) -> tuple[Job, ...]:
        """Return jobs in these states, not ended, that did not change since a time, by id."""
        return await self.database.run(partial(reports.stale_jobs, states, before, after_id, limit))

    async def jobs(self, selection: JobFilter) -> tuple[Job, ...]:
        """Return the selected jobs, those with the highest ids first."""
        return await self.database.run(partial(reports.jobs, selection))

    async def timeline(self, job_id: int) -> Timeline:
        """Return everything about a job; raise NotFound for an unknown one."""
        return await self.database.run(partial(reports.timeline, job_id))

    async def ended_timelines(
        self, since: datetime, *, after_id: int = 0, limit: int = 500
    ) -> tuple[Timeline, ...]:
        """Return everything about the jobs of any state that changed since a time, by id."""
        return await self.database.run(partial(reports.ended_timelines, since, after_id, limit))

    async def save_log(self, handle: int, text: str, now: datetime) -> None:
        """Keep the last lines of the `runner.log` of a claim's Pod, at most 64 KiB."""
        await self.database.run(partial(logs.save, handle, text, now))

    async def find_log(self, job_id: int) -> str | None:
        """Return the log of the newest Pod that had a job and whose log is kept."""
        return await self.database.run(partial(logs.find, job_id))

    async def queue_stats(
        self, now: datetime, *, policy: Policy = NO_POLICY
    ) -> tuple[PoolStats, ...]:
        """Return the jobs of each pool that has any which have not ended, or has claims."""
        return await self.database.run(partial(reports.queue_stats, policy, now))

    async def queue_position(self, job_id: int) -> QueuePosition:
        """Return what is before a job in the queue; raise NotFound for an unknown one."""
        return await self.database.run(partial(reports.queue_position, job_id))

    async def scaling_signals(
        self, pool: str, now: datetime, *, policy: Policy = NO_POLICY
    ) -> ScalingSignals:
        """Return the demand for a pool."""
        return await self.database.run(partial(reports.scaling_signals, pool, policy, now))

    async def roll_signals(self, pool: str, since: datetime) -> RollSignals:
        """Return the first polls of a pool's Pods, and the jobs that ended since a time, by image."""
        return await self.database.run(partial(reports.roll_signals, pool, since))

    async def delete_expired(self, now: datetime) -> int:
        """Delete a batch of what is older than the retention; call again until it returns 0."""
        return await self.database.run(partial(reports.delete_expired, now))

    async def close(self) -> None:
        """Close the database."""
        await self.database.close()


def _check_pod(pod: Pod, pool: str) -> None:
    identifier("Pod name", pod.name)
    identifier("Pod uid", pod.uid)
    identifier("pool", pool)
    for field, text in (("host", pod.host), ("image", pod.image)):
        if text:
            identifier(field, text)
