"""What a run of dispatch left behind at GitHub, in the guests and in the database, and the check that no job was lost or doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

COMPLETED = "completed"
SUCCESS = "success"


@dataclass(frozen=True, slots=True)
class HandedOut:
    """A JIT config that a guest received."""

    pod: str
    jit: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Run:
    """A runner that a guest started: its job, or None if it never got one."""

    pod: str
    jit: str = field(repr=False)
    job_id: int | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class JobState:
    """How a job ended, by the record of GitHub or of the database."""

    state: str
    conclusion: str
    runner_name: str


@dataclass(slots=True)
class History:
    """The records of all parties; `acknowledged` are the GUIDs of webhooks that were answered with 2xx."""

    handed_out: list[HandedOut] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)
    at_github: dict[int, JobState] = field(default_factory=dict)
    stored: dict[int, JobState] = field(default_factory=dict)
    # The outcome of each stored webhook by its GUID; empty if it was not processed.
    deliveries: dict[str, str] = field(default_factory=dict)
    unfinished_claims: list[int] = field(default_factory=list)
    # Pods whose job was run by the runner of another Pod before theirs started.
    displaced: set[str] = field(default_factory=set)
    failed_webhooks: int = 0


def violations(history: History) -> list[str]:
    """Return what is wrong with a history after everything has settled; empty if nothing is."""
    return [
        *_lost_and_doubled(history),
        *_shared_configurations(history),
        *_runners_without_job(history),
        *_differences(history),
        *_unprocessed(history),
        *(f"claim {handle} is not finished" for handle in history.unfinished_claims),
    ]


def _lost_and_doubled(history: History) -> Iterator[str]:
    ran = Counter(run.job_id for run in history.runs if run.job_id is not None)
    for job_id, job in history.at_github.items():
        if (job.state, job.conclusion) != (COMPLETED, SUCCESS):
            yield f"job {job_id} is lost: {job.state} {job.conclusion} at GitHub"
        if ran[job_id] != 1:
            yield f"job {job_id} ran on {ran[job_id]} guests"
    for run in history.runs:
        job_of_run = history.at_github.get(run.job_id or 0)
        if job_of_run is not None and job_of_run.runner_name.rpartition("-")[0] != run.pod:
            yield f"job {run.job_id} ran on {run.pod}, at GitHub on {job_of_run.runner_name}"
    yield from (f"unknown job {each} ran" for each in ran if each not in history.at_github)


def _shared_configurations(history: History) -> Iterator[str]:
    for jit in _repeated({(each.jit, each.pod) for each in history.handed_out}):
        pods = sorted({each.pod for each in history.handed_out if each.jit == jit})
        yield f"one runner was given to {', '.join(pods)}"
    for pod in _repeated({(each.pod, each.jit) for each in history.handed_out}):
        yield f"Pod {pod} was given several runners"


def _repeated(pairs: Iterable[tuple[str, str]]) -> list[str]:
    counts = Counter(first for first, _ in pairs)
    return [first for first, count in counts.items() if count > 1]


def _runners_without_job(history: History) -> Iterator[str]:
    """Yield runners that got no job although no webhook was missed: as many jobs were given to a second Pod.

    GitHub gives a job to any runner. While the webhooks of a job are missed, it may run on the runner that was registered for another
    one, and get a runner itself later, which then has no job.
    """
    started = {run.jit for run in history.runs}
    for each in history.handed_out:
        if each.jit not in started:
            yield f"the runner of Pod {each.pod} never started"
    for run in history.runs:
        if run.refusal:
            yield f"the runner of Pod {run.pod} was refused: {run.refusal}"
        elif run.job_id is None and run.pod not in history.displaced:
            yield f"the runner of Pod {run.pod} got no job"
    unused = sum(run.job_id is None for run in history.runs)
    if unused > history.failed_webhooks:
        yield f"{unused} runners got no job, and {history.failed_webhooks} webhooks failed"


def _differences(history: History) -> Iterator[str]:
    for job_id, expected in history.at_github.items():
        found = history.stored.get(job_id)
        if found != expected:
            yield f"job {job_id} is {found} in the database, {expected} at GitHub"
    yield from (
        f"job {each} is not known at GitHub" for each in history.stored.keys() - history.at_github
    )


def _unprocessed(history: History) -> Iterator[str]:
    for guid in sorted(history.acknowledged - history.deliveries.keys()):
        yield f"webhook {guid} was acknowledged and is not stored"
    for guid, outcome in history.deliveries.items():
        if not outcome:
            yield f"webhook {guid} was stored and is not processed"
