from __future__ import annotations

import json
from typing import Any

import pytest

from bramley.base.errors import BadRequest
from bramley.dispatch import webhook_payload
from bramley.dispatch.jobs import Phase


def a_body(action: str = "queued", **job: Any) -> bytes:
    values = {
        "id": 7,
        "run_id": 3,
        "labels": ["tuist-macos"],
        "name": "build",
        "created_at": "2026-01-01T00:00:00Z",
        "started_at": "2026-01-01T00:00:00Z",
        "runner_name": None,
        "conclusion": None,
    }
    repository = {"full_name": "Acme/app", "owner": {"login": "Acme"}}
    event = {"action": action, "workflow_job": values | job, "repository": repository}
    return json.dumps(event).encode()


def test_a_queued_job_has_no_start_although_github_sends_one() -> None:
    report = webhook_payload.decode(a_body())

    assert report.phase == Phase.QUEUED
    assert (report.account, report.repository) == ("acme", "Acme/app")
    assert report.queued_at is not None
    assert report.started_at is None


def test_a_completed_job_has_runner_and_conclusion() -> None:
    report = webhook_payload.decode(a_body("completed", runner_name="r-1", conclusion="failure"))

    assert (report.phase, report.runner_name, report.conclusion) == (
        Phase.COMPLETED,
        "r-1",
        "failure",
    )


def test_names_that_are_only_shown_are_cleaned_and_cut() -> None:
    report = webhook_payload.decode(a_body(head_branch="a\x1b[31m\u202eb", name="n" * 5000))

    assert report.branch == "a\ufffd[31m\ufffdb"
    assert len(report.name) == webhook_payload.MAX_SHOWN


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (a_body(labels=["a\nb"]), "workflow_job.labels"),
        (a_body(labels=["a" * 300]), "workflow_job.labels"),
        (a_body(labels=["a"] * 65), "labels"),
        (a_body(id=0), "id"),
        (a_body(id=2**63), "id"),
        (a_body("completed", runner_name="a\x00"), "workflow_job.runner_name"),
        (a_body("requested"), "action"),
        (b"\xff", "body"),
        (b"[" * 100_000, "body"),
        (b" " * (webhook_payload.MAX_BODY_BYTES + 1), "body"),
        (a_body(created_at="2026-01-01T00:00:00"), "created_at"),
    ],
)
def test_invalid_bodies_are_refused_with_the_field(body: bytes, named: str) -> None:
    with pytest.raises(BadRequest, match=named):
        webhook_payload.decode(body)
