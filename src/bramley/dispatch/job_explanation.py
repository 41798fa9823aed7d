"""Why a job is where it is, and what happens next; pure.

The server collects the facts from the store, its caches and the forge. A queued job may wait for several things at once; the reason
is the one that has to change first.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from bramley.dispatch.job_views import current_claim
from bramley.dispatch.jobs import State
from bramley.dispatch.store.records import Claim, QueuePosition, Timeline

# While a pool rolls, runners of the old image get no more jobs and those of the new one start.
ROLLING_PHASES = frozenset({"Canary", "Rolling"})
_MINUTE = 60


class Reason(StrEnum):
    """What a job waits for, or how it ended."""

    NO_MATCHING_POOL = "NoMatchingPool"
    LIMIT_REACHED = "LimitReached"
    GITHUB_RATE_LIMIT = "GitHubRateLimit"
    GITHUB_REFUSED = "GitHubRefused"
    NO_IDLE_RUNNER = "NoIdleRunner"
    ROLL_IN_PROGRESS = "RollInProgress"
    OTHER_JOBS_FIRST = "OtherJobsFirst"
    HANDING_OUT = "HandingOut"
    WAITING_FOR_RUNNER = "WaitingForRunner"
    RUNNING = "Running"
    WAITING = "Waiting"
    COMPLETED = "Completed"
    CANCELLED = "Cancelled"


@dataclass(frozen=True, slots=True)
class ForgeBlock:
    """The forge gives an account no runners until a time; `message` is why, without credentials."""

    until: datetime
    message: str
    is_rate_limit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """Everything that an explanation depends on."""

    now: datetime
    timeline: Timeline
    position: QueuePosition
    # Of the job's account in all pools; None is no limit.
    account_limit: int | None = None
    pool_exists: bool = True
    # Pods of the pool that poll and have no claim, those that are not ready yet, and when the first of these is due.
    idle_pods: int = 0
    starting_pods: int = 0
    next_pod_at: datetime | None = None
    # `status.phase` of the pool.
    roll_phase: str = ""
    block: ForgeBlock | None = None

    @property
    def active_block(self) -> ForgeBlock | None:
        """Return the block of the account, if it has not ended."""
        return self.block if self.block is not None and self.block.until > self.now else None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one job, also its JSON; `reason` is one of `Reason`."""

    job_id: int
    state: str
    reason: str
    message: str
    details: dict[str, Any] = {}


# A reason, its sentence, and the facts that the sentence is built from.
_Found = tuple[Reason, str, dict[str, Any]]


def explain(facts: JobFacts) -> Explanation:
    """Return the reason why a job is where it is, as a code and as a sentence."""
    job = facts.timeline.job
    if job.state == State.QUEUED:
        reason, message, details = _queued(facts)
    elif job.state == State.CLAIMED:
        reason, message, details = _claimed(facts)
    else:
        reason, message, details = _elsewhere(facts)
    return Explanation(
        job_id=job.id,
        state=job.state.value,
        reason=reason.value,
        message=message,
        details={name: value for name, value in details.items() if value not in {None, ""}},
    )


def typical_boot(measured: Sequence[int], default: timedelta) -> timedelta:
    """Return how long a Pod of a pool takes to start, from the seconds that the pool measured, or the default without any."""
    return timedelta(seconds=statistics.median(measured)) if measured else default


def next_pod_due(
    starting: Iterable[datetime], typical_boot: timedelta | None, now: datetime
) -> datetime | None:
    """Return when the oldest Pod that starts is due, from the creation times of such Pods; None if that is not known."""
    oldest = min(starting, default=None)
    if oldest is None or typical_boot is None:
        return None
    # A Pod that takes longer than usual is due at any moment.
    return max(oldest + typical_boot, now)


def _queued(facts: JobFacts) -> _Found:
    found = _not_routed(facts) or _limited(facts) or _blocked(facts)
    if found is not None:
        return found
    if facts.idle_pods == 0:
        return _no_idle_runner(facts)
    pool, ahead = facts.timeline.job.pool, facts.position.ahead_of_account
    if ahead or facts.position.queued_in_pool > facts.idle_pods:
        message = (
            f"{_jobs(ahead)} of the same account and {_jobs(_of_others(facts))} of other accounts are queued in pool {pool}; "
            f"it has {_runners(facts.idle_pods, 'idle')}. Accounts take turns, so this job follows without any action."
        )
        return Reason.OTHER_JOBS_FIRST, message, _queue_details(facts)
    return (
        Reason.HANDING_OUT,
        f"pool {pool} has {_runners(facts.idle_pods, 'idle')}; the next one that polls gets this job.",
        _queue_details(facts),
    )


def _not_routed(facts: JobFacts) -> _Found | None:
    job = facts.timeline.job
    details: dict[str, Any] = {"labels": job.facts.labels, "pool": job.pool}
    if not job.pool:
        problem = job.problem or "no pool matches the labels of this job"
        advice = "Change runs-on of the workflow, or the dispatchLabel, runnerLabels or aliases of a pool."
        return Reason.NO_MATCHING_POOL, f"{problem}. {advice}", details
    if not facts.pool_exists:
        message = f"pool {job.pool}, which this job belongs to, does not exist. Create it again, or cancel the job."
        return Reason.NO_MATCHING_POOL, message, details
    return None


def _limited(facts: JobFacts) -> _Found | None:
    limit, active = facts.account_limit, facts.position.active_of_account
    if limit is None or active < limit:
        return None
    account = facts.timeline.job.facts.account
    message = (
        f"account {account} has {_jobs(active)} on runners and a limit of {limit}. "
        "The job starts when one of them ends, or when the limit in the accounts file is raised."
    )
    details = {"account": account, "limit": limit, "active": active}
    return Reason.LIMIT_REACHED, message, details | _queue_details(facts)


def _blocked(facts: JobFacts) -> _Found | None:
    block = facts.active_block
    if block is None:
        return None
    account = facts.timeline.job.facts.account
    details = {"account": account, "blocked_until": block.until, "error": block.message}
    wait = _length(block.until - facts.now)
    if block.is_rate_limit:
        message = f"GitHub limits the requests for account {account}: {block.message}. Runners are registered again in {wait}."
        return Reason.GITHUB_RATE_LIMIT, message, details
    message = (
        f"GitHub refused to register a runner for account {account}: {block.message}. "
        f"Check the App's installation and its permissions; the next attempt is in {wait}."
    )
    return Reason.GITHUB_REFUSED, message, details


def _no_idle_runner(facts: JobFacts) -> _Found:
    pool = facts.timeline.job.pool
    due = _due(facts)
    details = {**_queue_details(facts), "next_runner_at": facts.next_pod_at}
    if facts.roll_phase in ROLLING_PHASES:
        return (
            Reason.ROLL_IN_PROGRESS,
            f"pool {pool} rolls to a new image and has no idle runner; {due}. See: bramley rollout status pool/{pool}",
            {**details, "phase": facts.roll_phase},
        )
    busy = facts.position.active_in_pool
    message = (
        f"pool {pool} has no idle runner, {_jobs(busy)} on runners and {_jobs(facts.position.queued_in_pool)} queued; {due}. "
        f"See: bramley explain pool/{pool}"
    )
    return Reason.NO_IDLE_RUNNER, message, details


def _due(facts: JobFacts) -> str:
    if not facts.starting_pods:
        return "no runner is starting, so the next one is due when a job ends or the pool grows"
    starting = f"{_runners(facts.starting_pods, 'starting')}"
    if facts.next_pod_at is None:
        return f"{starting}, due at an unknown time"
    wait = facts.next_pod_at - facts.now
    return f"{starting}, the next one due {f'in about {_length(wait)}' if wait > timedelta() else 'at any moment'}"


def _claimed(facts: JobFacts) -> _Found:
    claim = current_claim(facts.timeline)
    if claim is None or claim.minted_at is None:
        blocked = _blocked(facts)
        if blocked is not None:
            return blocked
        where = f" for {_place(claim)}" if claim else ""
        message = f"the job is reserved{where}, and a runner is being registered with GitHub."
        return Reason.HANDING_OUT, message, _claim_details(claim)
    since = claim.online_at or claim.minted_at
    progress = (
        "is online, and GitHub has not reported the start of the job yet"
        if claim.online_at
        else "has its configuration and is not online yet"
    )
    message = f"runner {claim.runner_name} in {_place(claim)} {progress}, for {_length(facts.now - since)}."
    return Reason.WAITING_FOR_RUNNER, message, _claim_details(claim)


def _elsewhere(facts: JobFacts) -> _Found:
    job, claim = facts.timeline.job, current_claim(facts.timeline)
    where = f" in {_place(claim)}" if claim else ""
    if job.state == State.WAITING:
        message = "GitHub holds the job back, for an approval, an environment or a concurrency group; it is not queued yet."
        return Reason.WAITING, message, {}
    if job.state == State.RUNNING:
        started = job.facts.started_at
        since = f" for {_length(facts.now - started)}" if started else ""
        runner = f" on runner {job.facts.runner_name}" if job.facts.runner_name else ""
        return Reason.RUNNING, f"the job runs{runner}{where}{since}.", _claim_details(claim)
    details = {"conclusion": job.facts.conclusion, **_claim_details(claim)}
    if job.state == State.CANCELLED:
        return Reason.CANCELLED, f"the job was cancelled{where}.", details
    conclusion = job.facts.conclusion or "an unknown conclusion"
    return Reason.COMPLETED, f"the job ended{where} with {conclusion}.", details


def _of_others(facts: JobFacts) -> int:
    # This job and those of its account that come first are queued too.
    return max(facts.position.queued_in_pool - facts.position.ahead_of_account - 1, 0)


def _queue_details(facts: JobFacts) -> dict[str, Any]:
    return {
        "pool": facts.timeline.job.pool,
        "ahead_of_account": facts.position.ahead_of_account,
        "queued_in_pool": facts.position.queued_in_pool,
        "active_in_pool": facts.position.active_in_pool,
        "idle_runners": facts.idle_pods,
        "starting_runners": facts.starting_pods,
    }


def _claim_details(claim: Claim | None) -> dict[str, Any]:
    if claim is None:
        return {}
    return {"pod": claim.pod.name, "host": claim.pod.host, "runner_name": claim.runner_name}


def _place(claim: Claim) -> str:
    return f"Pod {claim.pod.name}" + (f" on {claim.pod.host}" if claim.pod.host else "")


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _runners(count: int, state: str) -> str:
    return f"1 {state} runner" if count == 1 else f"{count} {state} runners"


def _length(duration: timedelta) -> str:
    seconds = max(0, round(duration.total_seconds()))
    return f"{seconds} s" if seconds < 2 * _MINUTE else f"{seconds // _MINUTE} min"
