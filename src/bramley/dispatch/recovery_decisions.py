"""What to do about a claim or a job that may have lost its Pod, its runner or its webhooks; pure.

A claim is reaped only on positive evidence of two witnesses: the API server about its Pod and the forge about its runner. An error
or an unknown answer of either is never evidence. `next_step` therefore returns either what to observe next, or what to do. The
forge is queried for the job only after its runner is gone, because a registered runner may still start the job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from bramley.dispatch.forge import RunnerState
from bramley.dispatch.jobs import HELD, TERMINAL, Phase, Report
from bramley.dispatch.store.records import Claim, Job

# A hand-out in progress has this long before its claim is checked; it exceeds the time after which another replica continues it.
HAND_OUT_GRACE = timedelta(seconds=30)
# A Pod has this long to get a JIT config, and its runner this long to come online.
ONLINE_TIMEOUT = timedelta(minutes=5)
# The forge may report a new job with delay; one that it does not know after this time does not exist.
UNKNOWN_JOB_AGE = timedelta(hours=1)
# GitHub cancels a job that no runner has started in a day, so a repository that was denied for as long has no job left.
DENIED_AGE = timedelta(days=1)

UNKNOWN = "unknown"


class PodState(StrEnum):
    """What the API server answered about a Pod with a name and uid."""

    ALIVE = "alive"
    ENDED = "ended"  # its phase is Succeeded or Failed, or it is being deleted
    GONE = "gone"  # the API server itself, no cache, answered 404 or another uid
    UNKNOWN = "unknown"  # the API server is unavailable


class RecoveryKind(StrEnum):
    """The repairs that are counted."""

    STALE_CLAIM = "stale_claim"  # released: no runner came online in time
    POD_MISSING_CLAIM = "pod_missing_claim"  # released: the Pod went before it had a runner
    ORPHAN_REQUEUED = "orphan_requeued"  # released: the Pod went before its runner started the job
    ORPHAN_COMPLETED = "orphan_completed"  # the end of a claimed or running job was missed
    COMPLETED_CLAIM = (
        "completed_claim"  # ended: the job needs no Pod, and the Pod or its runner is gone
    )
    STRANDED_CLAIM_RELEASED = (
        "stranded_claim_released"  # the forge does not know the job, or it had lost its claim
    )
    QUEUED_COMPLETED = "queued_completed"  # the end of a queued job was missed
    QUEUED_REAPED = "queued_reaped"  # the forge does not know the queued job
    REDELIVERED = "redelivered"  # a webhook was requested once more
    MISSED_JOB = "missed_job"  # every webhook of the job was missed


class Observation(StrEnum):
    """What has to be observed before a decision."""

    POD = "pod"
    RUNNER = "runner"
    REMOVAL = "removal"  # the runner is removed, which the forge refuses while it runs a job
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Wait:
    """Change nothing; the next pass looks again."""

    why: str


@dataclass(frozen=True, slots=True)
class RecordOnline:
    """Record that the runner is or was online."""


@dataclass(frozen=True, slots=True)
class Release:
    """Return the job to the queue and end the claim."""

    outcome: str
    kind: RecoveryKind


@dataclass(frozen=True, slots=True)
class EndClaim:
    """End the claim after applying what the forge knows of its job, if that is given."""

    outcome: str
    kind: RecoveryKind
    report: Report | None = None


Action = Wait | RecordOnline | Release | EndClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenClaim:
    """A claim, its job unless that is deleted, and what was observed so far; None was not observed."""

    claim: Claim
    job: Job | None
    now: datetime
    pod: PodState | None = None
    runner: RunnerState | None = None
    runner_id: int | None = None
    is_removed: bool | None = None
    report: Report | None = None
    has_job: bool | None = None
    is_denied: bool = False  # the forge denies the repository

    @property
    def is_alive(self) -> bool:
        """Return whether the Pod runs."""
        return self.pod == PodState.ALIVE


def next_step(seen: SeenClaim) -> Observation | Action:
    """Return what to observe next, or what to do with a claim."""
    if seen.pod is None:
        return Observation.POD
    if seen.pod == PodState.UNKNOWN:
        return Wait("the API server is unavailable")
    if seen.claim.finished_at is not None or seen.job is None:
        if seen.pod == PodState.GONE:
            return EndClaim("pod gone", RecoveryKind.COMPLETED_CLAIM)
        return _unused_runner_step(seen)
    if why := _why_too_early(seen):
        return Wait(why)
    return _reap_step(seen, seen.job)


def _reap_step(seen: SeenClaim, job: Job) -> Observation | Action:
    if seen.is_denied:
        return _denied(seen, job)
    if step := _runner_step(seen):
        return step
    if seen.claim.minted_at is None:
        # Without a stored JIT config no guest has one, so the job cannot have started on this runner.
        return _release(seen)
    return _job_step(seen, job)


def _unused_runner_step(seen: SeenClaim) -> Observation | Wait:
    """Remove a runner that outlived the job it was registered for, so that its guest ends and another Pod follows.

    The job was cancelled, or another runner has run it. Without this the Pod would wait for the next job of the same account.
    """
    finished_at = seen.claim.finished_at
    is_unused = seen.is_alive and seen.claim.minted_at is not None and seen.job is not None
    if not is_unused or finished_at is None or seen.now - finished_at <= ONLINE_TIMEOUT:
        return Wait("the Pod exists")
    if seen.is_denied or seen.is_removed is not None:
        return Wait("the Pod exists")
    if seen.runner is None:
        return Observation.RUNNER
    # The forge refuses the removal of a runner that got a job meanwhile.
    is_registered = seen.runner in (RunnerState.IDLE, RunnerState.OFFLINE)
    return Observation.REMOVAL if is_registered else Wait("the Pod exists")


def _why_too_early(seen: SeenClaim) -> str:
    claim = seen.claim
    if claim.minted_at is None:
        # The last write of the hand-out: it may be about to register the runner.
        if seen.now - (claim.stamped_at or claim.claimed_at) <= HAND_OUT_GRACE:
            return "the hand-out may be in progress"
        is_early = seen.now - claim.claimed_at <= ONLINE_TIMEOUT
    else:
        is_early = claim.online_at is not None or seen.now - claim.minted_at <= ONLINE_TIMEOUT
    return "the Pod runs" if seen.is_alive and is_early else ""


def _denied(seen: SeenClaim, job: Job) -> Action:
    if seen.is_alive or seen.now - seen.claim.claimed_at <= DENIED_AGE:
        return Wait("the forge denies the repository")
    return _end_unknown(seen, job)


def _runner_step(seen: SeenClaim) -> Observation | Action | None:
    """Return what has to happen until the runner is certainly not registered, then None."""
    if not seen.claim.runner_name or seen.runner == RunnerState.GONE or seen.is_removed:
        return None
    if seen.runner is None:
        return Observation.RUNNER
    is_online = seen.runner in (RunnerState.IDLE, RunnerState.BUSY) or seen.is_removed is False
    if not is_online:
        return Observation.REMOVAL
    if seen.is_alive and seen.claim.minted_at is not None:
        return RecordOnline()
    # The guest still runs although its Pod is gone, or GitHub has not noticed its end: it fails the job itself after a timeout.
    return Wait("the runner is online")


def _release(seen: SeenClaim) -> Release:
    if seen.is_alive:
        return Release("runner never online", RecoveryKind.STALE_CLAIM)
    was_minted = seen.claim.minted_at is not None
    kind = RecoveryKind.ORPHAN_REQUEUED if was_minted else RecoveryKind.POD_MISSING_CLAIM
    return Release("pod gone", kind)


def _job_step(seen: SeenClaim, job: Job) -> Observation | Action:
    if seen.has_job is None:
        return Observation.JOB
    report = seen.report
    if report is None:
        if seen.now - seen.claim.claimed_at <= ONLINE_TIMEOUT:
            return Wait("the forge may not report the job yet")
        return _end_unknown(seen, job)
    if report.phase == Phase.COMPLETED:
        return EndClaim("completed", RecoveryKind.ORPHAN_COMPLETED, report)
    if report.phase != Phase.IN_PROGRESS:
        return _release(seen)
    if report.runner_name in ("", seen.claim.runner_name):
        return Wait("the job is in progress on the lost runner until GitHub fails it")
    return EndClaim("runs elsewhere", RecoveryKind.COMPLETED_CLAIM, report)


def _end_unknown(seen: SeenClaim, job: Job) -> EndClaim:
    report = unknown_report(job, seen.now)
    return EndClaim("job unknown", RecoveryKind.STRANDED_CLAIM_RELEASED, report)


def unknown_report(job: Job, now: datetime) -> Report:
    """Return the report that ends a job which the forge does not have."""
    return replace(job.facts, phase=Phase.COMPLETED, conclusion=UNKNOWN, completed_at=now)


@dataclass(frozen=True, slots=True)
class Requeue:
    """Return a job to the queue that no claim holds."""


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """Apply a report to its job; `kind` is counted if the job ends by it."""

    report: Report
    kind: RecoveryKind


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenJob:
    """A job, whether an unfinished claim holds it, and what the forge knows of it."""

    job: Job
    is_claimed: bool
    report: Report | None
    now: datetime
    is_denied: bool = False


def job_action(seen: SeenJob) -> ApplyReport | Requeue | Wait:
    """Return what to do with a job after it was compared with the forge."""
    job = seen.job
    if job.state in TERMINAL:
        return Wait("the job ended")
    is_stranded = job.state in HELD and not seen.is_claimed
    if seen.report is None:
        return _absent(seen, is_stranded=is_stranded)
    if is_stranded and seen.report.phase <= Phase.QUEUED:
        return Requeue()
    is_held = job.state in HELD
    kind = RecoveryKind.ORPHAN_COMPLETED if is_held else RecoveryKind.QUEUED_COMPLETED
    return ApplyReport(seen.report, kind)


def _absent(seen: SeenJob, *, is_stranded: bool) -> ApplyReport | Wait:
    if seen.is_claimed:
        return Wait("a claim holds the job")
    age = seen.now - (seen.job.facts.queued_at or seen.job.updated_at)
    if age <= (DENIED_AGE if seen.is_denied else UNKNOWN_JOB_AGE):
        return Wait("the forge may not report the job yet")
    kind = RecoveryKind.STRANDED_CLAIM_RELEASED if is_stranded else RecoveryKind.QUEUED_REAPED
    return ApplyReport(unknown_report(seen.job, seen.now), kind)
