"""Decode the body of a `workflow_job` event into a report, within limits.

Identifiers and labels that are too long or contain control characters are refused with the name of the field. Texts that are
only shown (names of jobs, workflows and branches) are cut and cleaned instead, because they must not cost a job.
"""

from __future__ import annotations

import unicodedata
from datetime import datetime
from typing import Annotated

import msgspec

from bramley.base.errors import BadRequest
from bramley.dispatch.jobs import Phase, Report

MAX_BODY_BYTES = 256 * 1024
MAX_LABELS = 64
MAX_IDENTIFIER = 256
MAX_SHOWN = 512

_PHASES = {
    "waiting": Phase.WAITING,
    "queued": Phase.QUEUED,
    "in_progress": Phase.IN_PROGRESS,
    "completed": Phase.COMPLETED,
}
_Id = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class _Job(msgspec.Struct, frozen=True):
    id: _Id
    run_id: _Id
    labels: Annotated[list[str], msgspec.Meta(max_length=MAX_LABELS)]
    run_attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 1
    name: str | None = None
    workflow_name: str | None = None
    head_branch: str | None = None
    head_sha: str | None = None
    runner_name: str | None = None
    conclusion: str | None = None
    created_at: _Time | None = None
    started_at: _Time | None = None
    completed_at: _Time | None = None


class _Owner(msgspec.Struct, frozen=True):
    login: str


class _Repository(msgspec.Struct, frozen=True):
    full_name: str
    owner: _Owner


class _Event(msgspec.Struct, frozen=True):
    action: str
    workflow_job: _Job
    repository: _Repository


def decode(body: bytes) -> Report:
    """Return the report that the body of an event contains; raise BadRequest, which names the field, if it is invalid."""
    if len(body) > MAX_BODY_BYTES:
        raise BadRequest(f"body has {len(body)} bytes, the limit is {MAX_BODY_BYTES}")
    try:
        event = msgspec.json.decode(body, type=_Event)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"body is not a workflow_job event: {error}") from None
    phase = _PHASES.get(event.action)
    if phase is None:
        raise BadRequest(f"action must be one of {', '.join(_PHASES)}")
    return _report(event, phase)


def _report(event: _Event, phase: Phase) -> Report:
    job = event.workflow_job
    started = phase >= Phase.IN_PROGRESS
    ended = phase == Phase.COMPLETED
    return Report(
        job_id=job.id,
        phase=phase,
        account=identifier("repository.owner.login", event.repository.owner.login).lower(),
        repository=identifier("repository.full_name", event.repository.full_name),
        labels=tuple(identifier("workflow_job.labels", label) for label in job.labels),
        run_id=job.run_id,
        run_attempt=job.run_attempt,
        workflow=shown(job.workflow_name),
        name=shown(job.name),
        branch=shown(job.head_branch),
        sha=shown(job.head_sha),
        # GitHub sends a start time with queued jobs too; it is the time of their creation.
        runner_name=_optional("workflow_job.runner_name", job.runner_name) if started else "",
        conclusion=_optional("workflow_job.conclusion", job.conclusion) if ended else "",
        queued_at=job.created_at,
        started_at=job.started_at if started else None,
        completed_at=job.completed_at if ended else None,
    )


def identifier(field: str, text: str) -> str:
    """Return the text; raise BadRequest if it is empty, too long or has control characters."""
    if not text:
        raise BadRequest(f"{field} is empty")
    if len(text) > MAX_IDENTIFIER:
        raise BadRequest(f"{field} has {len(text)} characters, the limit is {MAX_IDENTIFIER}")
    if any(is_control(character) for character in text):
        raise BadRequest(f"{field} has control characters")
    return text


def shown(text: str | None) -> str:
    """Return the text cut to the limit, with control characters replaced."""
    cut = (text or "")[:MAX_SHOWN]
    return "".join("\ufffd" if is_control(character) else character for character in cut)


def _optional(field: str, text: str | None) -> str:
    return identifier(field, text) if text else ""


def is_control(character: str) -> bool:
    """Return whether a character changes how text is shown, instead of being shown."""
    # Also format characters, which reverse the direction of text, and surrogates, which no database stores.
    return unicodedata.category(character) in {"Cc", "Cf", "Cs"}
