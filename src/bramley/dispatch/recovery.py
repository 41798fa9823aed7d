"""Periodic repair of the queue: lost Pods and runners, lost webhooks, jobs that got a pool later, expired rows.

Each pass observes, decides in `recovery_decisions.py` and acts by compare-and-set, so several replicas may run it at once. A
failure concerns one item; an account whose forge is unavailable or limits calls is skipped for a while, others are not.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from bramley.base import log
from bramley.base.clock import Clock
from bramley.base.errors import BramleyError, Forbidden, NotFound, RateLimited, Unavailable
from bramley.dispatch.forge import FailedDelivery, Forge, RunnerState
from bramley.dispatch.jobs import HELD, TERMINAL, Phase, Report, State
from bramley.dispatch.pool_matching import Route
from bramley.dispatch.recovery_decisions import (
    UNKNOWN_JOB_AGE,
    Action,
    EndClaim,
    Observation,
    PodState,
    RecordOnline,
    RecoveryKind,
    Release,
    Requeue,
    SeenClaim,
    SeenJob,
    Wait,
    job_action,
    next_step,
)
from bramley.dispatch.recovery_repositories import ActiveRepositories
from bramley.dispatch.store.records import Job, LiveClaim, Timeline
from bramley.dispatch.store.store import Store

__all__ = ["PodEvidence", "PodState", "Recovery", "RecoveryKind", "Settings"]

logger = log.get(__name__)

_UNFINISHED = (State.QUEUED, State.WAITING, State.CLAIMED, State.RUNNING)
_PAGE = 500
# The forge's calls that concern no account, such as the list of deliveries.
_NO_ACCOUNT = ""


class PodEvidence(Protocol):
    """What the API server knows of Pods."""

    async def pod_state(self, name: str, uid: str) -> PodState:
        """Return the state of the Pod with this name and uid; UNKNOWN instead of an error, GONE never from a cache."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """The intervals of the passes, and what bounds the calls of one pass."""

    claims_interval: timedelta = timedelta(seconds=30)
    sweep_interval: timedelta = timedelta(seconds=60)
    retention_interval: timedelta = timedelta(hours=1)
    unavailable_pause: timedelta = timedelta(seconds=30)
    stale_after: timedelta = timedelta(minutes=5)
    jobs_per_pass: int = 100
    repositories_per_pass: int = 20
    deliveries_per_pass: int = 100
    delivery_overlap: timedelta = timedelta(minutes=15)
    delivery_lookback: timedelta = timedelta(hours=24)
    redelivery_pause: timedelta = timedelta(minutes=10)
    unrouted_lookback: timedelta = timedelta(days=1)


@dataclass(slots=True, kw_only=True)
class Recovery:
    """Repairs the queue; `run` for ever, after the pools that `routing` reads are known."""

    store: Store
    forge: Forge
    pods: PodEvidence
    routing: Callable[[Sequence[str], str], Route]
    has_pool: Callable[[str], bool]
    clock: Clock
    on_recovered: Callable[[str], None]
    settings: Settings = field(default_factory=Settings)
    rng: random.Random = field(default_factory=random.Random)
    _paused_until: dict[str, datetime] = field(default_factory=dict)
    _swept_at: datetime | None = None  # the begin of the last complete sweep of deliveries
    _redelivered: dict[str, datetime] = field(default_factory=dict)
    _after_id: int = 0
    _repositories: ActiveRepositories = field(default_factory=ActiveRepositories)

    async def run(self) -> None:
        """Repeat all passes for ever."""
        settings = self.settings
        sweep = (self.sweep_deliveries, self.sweep_jobs, self.reroute_jobs)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(settings.claims_interval, self.check_claims))
            tasks.create_task(self._repeat(settings.sweep_interval, *sweep))
            tasks.create_task(self._repeat(settings.retention_interval, self.delete_expired))

    async def _repeat(self, interval: timedelta, *passes: Callable[[], Awaitable[None]]) -> None:
        seconds = interval.total_seconds()
        while True:
            # With jitter, so that replicas do not query the forge together.
            await asyncio.sleep(seconds * self.rng.uniform(0.8, 1.2))
            for each in passes:
                try:
                    await each()
                except BramleyError as error:
                    logger.warning("Recovery pass failed", reason=error.reason, error=str(error))

    async def check_claims(self) -> None:
        """Give back or end the claims whose Pod or runner is lost."""
        after = 0
        while page := await self.store.live_claims(after_handle=after, limit=_PAGE):
            for live in page:
                account = live.claim.account
                if not self._is_paused(account):
                    with self._failures(account, claim=live.claim.handle):
                        await self._check_claim(live)
            after = page[-1].claim.handle

    async def check_pod(self, pod_name: str) -> None:
        """Check the newest claim of one Pod, at once after it stopped."""
        claim = await self.store.claim_of_pod_name(pod_name)
        if claim is None or self._is_paused(claim.account):
            return
        if claim.ended_at is None or claim.finished_at is None:
            timeline = await self._find_timeline(claim.job_id or 0)
            with self._failures(claim.account, claim=claim.handle):
                await self._check_claim(LiveClaim(claim, timeline.job if timeline else None))

    async def _check_claim(self, live: LiveClaim) -> None:
        seen = SeenClaim(claim=live.claim, job=live.job, now=self.clock.now())
        step = next_step(seen)
        while isinstance(step, Observation):
            try:
                seen = await self._observe(seen, step)
            except (NotFound, Forbidden):
                seen = replace(seen, is_denied=True)
            step = next_step(seen)
        with log.bound(claim=live.claim.handle, pod=live.claim.pod.name, job=live.claim.job_id):
            await self._act(seen, step)

    async def _observe(self, seen: SeenClaim, observation: Observation) -> SeenClaim:
        claim = seen.claim
        if observation == Observation.POD:
            state = await self.pods.pod_state(claim.pod.name, claim.pod.uid)
            return replace(seen, pod=state)
        if seen.job is None:
            raise LookupError("the forge cannot be queried without a job")
        repository = seen.job.facts.repository
        if observation == Observation.JOB:
            report = await self.forge.job(repository, seen.job.id)
            return replace(seen, report=report, has_job=report is not None)
        if observation == Observation.REMOVAL and seen.runner_id is not None:
            is_removed = await self.forge.remove_runner(repository, seen.runner_id)
            return replace(seen, is_removed=is_removed)
        if claim.runner_id is not None:
            runner = await self.forge.runner_state(repository, claim.runner_id, claim.runner_name)
            return replace(seen, runner=runner, runner_id=claim.runner_id)
        # Without a stored JIT config no guest can have started a runner that was registered under this name.
        found = await self.forge.find_runner(repository, claim.runner_name)
        state_found = RunnerState.GONE if found is None else RunnerState.OFFLINE
        return replace(seen, runner=state_found, runner_id=found)

    async def _act(self, seen: SeenClaim, action: Action) -> None:
        handle, now = seen.claim.handle, self.clock.now()
        match action:
            case Wait(why):
                logger.debug("Leaving claim", reason=why)
            case RecordOnline():
                await self.store.runner_online(handle, now)
            case Release(outcome, kind):
                logger.info("Releasing claim", reason=outcome)
                if await self.store.release(handle, outcome, now):
                    self.on_recovered(kind)
            case EndClaim():
                await self._end_claim(seen, action)

    async def _end_claim(self, seen: SeenClaim, action: EndClaim) -> None:
        handle, now = seen.claim.handle, self.clock.now()
        logger.info("Ending claim", reason=action.outcome)
        if action.report is not None:
            state = await self._apply(action.report)
            # The end of the job finishes the claim; the Pod occupies its host until it is gone.
            if state in TERMINAL:
                self.on_recovered(action.kind)
                if seen.pod == PodState.GONE:
                    await self.store.end_claim(handle, action.outcome, now)
                return
        # The report may have given this claim another job, which has not started; the store then refuses.
        if await self.store.end_claim(handle, action.outcome, now):
            self.on_recovered(action.kind)

    async def sweep_deliveries(self) -> None:
        """Request another attempt of every webhook that was not delivered."""
        if self._is_paused(_NO_ACCOUNT):
            return
        settings, began = self.settings, self.clock.now()
        oldest = began - settings.delivery_lookback
        # The first sweep looks back as far as an outage may have lasted.
        since = (
            max(self._swept_at - settings.delivery_overlap, oldest) if self._swept_at else oldest
        )
        self._redelivered = {
            guid: at
            for guid, at in self._redelivered.items()
            if at > began - settings.redelivery_pause
        }
        with self._failures(_NO_ACCOUNT):
            failed = await self.forge.failed_deliveries(since)
            due = [each for each in failed if each.guid not in self._redelivered]
            due.sort(key=lambda each: each.delivered_at)
            for each in due[: settings.deliveries_per_pass]:
                await self._redeliver(each)
            if len(due) <= settings.deliveries_per_pass:
                self._swept_at = began

    async def _redeliver(self, delivery: FailedDelivery) -> None:
        try:
            await self.forge.redeliver(delivery.delivery_id)
        except (RateLimited, Unavailable):
            raise
        except BramleyError as error:
            # The forge has deleted this delivery or refuses it for good; the others must not wait for it.
            logger.warning("Redelivery refused", delivery=delivery.guid, reason=error.reason)
        else:
            self.on_recovered(RecoveryKind.REDELIVERED)
        self._redelivered[delivery.guid] = self.clock.now()

    async def sweep_jobs(self) -> None:
        """Compare jobs that did not change for a while with the forge, and find jobs whose webhooks were all lost."""
        settings = self.settings
        before = self.clock.now() - settings.stale_after
        stale = await self.store.stale_jobs(
            _UNFINISHED, before, after_id=self._after_id, limit=settings.jobs_per_pass
        )
        # The next pass continues here, so that jobs whose forge fails do not keep others from their turn.
        self._after_id = stale[-1].id if len(stale) == settings.jobs_per_pass else 0
        for job in stale:
            if not self._is_paused(job.facts.account) and not self._is_postponed(job):
                with self._failures(job.facts.account, job=job.id):
                    await self._compare(job)
        await self._find_missed_jobs()

    def _is_postponed(self, job: Job) -> bool:
        """Return whether the comparison of a job waits for requests that runners need more.

        An account that queues thousands of jobs would otherwise use up all requests of its installation.
        """
        return job.state not in HELD and self.forge.is_short_of_requests(job.facts.repository)

    async def _compare(self, job: Job) -> None:
        now = self.clock.now()
        if not job.pool and now - (job.facts.queued_at or job.updated_at) <= UNKNOWN_JOB_AGE:
            # Most jobs without a pool are for runners of others, and their end is not urgent.
            await self.store.touch_job(job.id, now)
            return
        report, is_denied = None, False
        try:
            report = await self.forge.job(job.facts.repository, job.id)
        except (NotFound, Forbidden):
            is_denied = True
        is_claimed = False
        if job.state in HELD and (report is None or report.phase <= Phase.QUEUED):
            # Read after the answer of the forge: the job may have been released meanwhile.
            timeline = await self.store.timeline(job.id)
            job = timeline.job
            is_claimed = any(claim.finished_at is None for claim in timeline.claims)
        seen = SeenJob(
            job=job, is_claimed=is_claimed, report=report, now=self.clock.now(), is_denied=is_denied
        )
        await self._repair(seen)

    async def _repair(self, seen: SeenJob) -> None:
        action = job_action(seen)
        if isinstance(action, Wait):
            await self.store.touch_job(seen.job.id, self.clock.now())
        elif isinstance(action, Requeue):
            logger.info("Requeueing job without claim", job=seen.job.id)
            if await self.store.requeue(seen.job.id, self.clock.now()):
                self.on_recovered(RecoveryKind.STRANDED_CLAIM_RELEASED)
        elif await self._apply(action.report) in TERMINAL:
            logger.info("Ended job", job=seen.job.id, conclusion=action.report.conclusion)
            self.on_recovered(action.kind)

    async def _find_missed_jobs(self) -> None:
        await self._repositories.refresh(self.store, self.clock.now())
        due = self._repositories.due(self.clock.now())
        for repository in due[: self.settings.repositories_per_pass]:
            account = repository.partition("/")[0].lower()
            if self._is_paused(account) or self.forge.is_short_of_requests(repository):
                continue
            # Marked before the call: a repository that fails must not be the first of every pass.
            self._repositories.mark(repository, self.clock.now())
            with self._failures(account, repository=repository):
                for report in await self.forge.unfinished_jobs(repository):
                    await self._add_missed(report)

    async def _add_missed(self, report: Report) -> None:
        timeline = await self._find_timeline(report.job_id)
        if timeline is not None:
            if report.phase > timeline.job.facts.phase and timeline.job.state not in TERMINAL:
                await self._apply(report)
        # Jobs of no pool are for runners of others.
        elif self.routing(report.labels, report.account).pool:
            logger.info("Adding job whose webhooks were missed", job=report.job_id)
            await self._apply(report)
            self.on_recovered(RecoveryKind.MISSED_JOB)

    async def _find_timeline(self, job_id: int) -> Timeline | None:
        try:
            return await self.store.timeline(job_id)
        except NotFound:
            return None

    async def reroute_jobs(self) -> None:
        """Give jobs without a pool, or in the queue of one that does not exist any more, the pool that accepts them now."""
        since = self.clock.now() - self.settings.unrouted_lookback
        for pool in ("", *(await self.store.queued_pools())):
            if not pool or not self.has_pool(pool):
                await self._reroute(pool, since)

    async def _reroute(self, pool: str, since: datetime) -> None:
        after = 0
        while jobs := await self.store.unstarted_jobs(pool, since, after_id=after, limit=_PAGE):
            for job in jobs:
                route = self.routing(job.facts.labels, job.facts.account)
                if route.pool not in ("", pool):
                    logger.info("Rerouting job", job=job.id, pool=route.pool)
                    await self.store.reroute(job.id, pool, route, self.clock.now())
            after = jobs[-1].id

    async def delete_expired(self) -> None:
        """Delete what is older than the retention."""
        while await self.store.delete_expired(self.clock.now()):
            pass

    async def _apply(self, report: Report) -> State:
        route = self.routing(report.labels, report.account)
        return await self.store.apply_report(report, route, self.clock.now())

    def _is_paused(self, account: str) -> bool:
        return self._paused_until.get(account, self.clock.now()) > self.clock.now()

    @contextlib.contextmanager
    def _failures(self, account: str, **subject: object) -> Iterator[None]:
        """Log an error of one item; pause the calls of its account if they are limited or cannot succeed now."""
        try:
            yield
        except BramleyError as error:
            pause = self.settings.unavailable_pause if isinstance(error, Unavailable) else None
            pause = error.after if isinstance(error, RateLimited) else pause
            if pause is not None:
                self._paused_until[account] = self.clock.now() + pause
            logger.warning(
                "Recovery failed, will retry", reason=error.reason, error=str(error), **subject
            )
