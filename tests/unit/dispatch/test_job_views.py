from __future__ import annotations

import csv
import dataclasses
import io

import msgspec
import pytest

from bramley.dispatch import job_views
from bramley.dispatch.job_views import ClaimView, JobView, TimelineView
from bramley.dispatch.jobs import State
from bramley.dispatch.store.records import Timeline
from tests.unit.dispatch.job_builders import JIT, a_claim, a_job, a_timeline, an_execution, at

DONE = a_timeline(a_job(State.COMPLETED), a_claim(), execution=an_execution())


def row(timeline: Timeline) -> dict[str, str]:
    text = job_views.csv_header() + job_views.csv_row(timeline)
    return next(iter(csv.DictReader(io.StringIO(text))))


def test_a_finished_job_has_every_stage_in_order() -> None:
    found = list(job_views.stages(DONE))

    names = ["queued", "claimed", "stamped", "jit", "online", "started", "finished"]
    assert [name for name, _ in found] == names
    assert [when for _, when in found] == [at(second) for second in (0, 1, 2, 3, 4, 5, 9)]


def test_a_queued_job_has_no_stages_of_the_claim_that_gave_it_back() -> None:
    returned = a_timeline(a_job(), a_claim(finished_at=at(6), ended_at=at(6), outcome="requeued"))

    assert list(job_views.stages(returned)) == [("queued", at(0))]
    assert job_views.timeline_view(returned).pod == ""
    assert [each.outcome for each in job_views.timeline_view(returned).claims] == ["requeued"]


def test_a_cancelled_job_finished_when_it_was_cancelled() -> None:
    cancelled = a_timeline(a_job(State.CANCELLED))

    assert list(job_views.stages(cancelled))[-1] == ("finished", at(10))


def test_the_pod_is_that_of_the_claim_that_ran_the_job() -> None:
    timeline = a_timeline(a_job(State.COMPLETED), a_claim(1), a_claim(2), execution=an_execution(1))

    view = job_views.timeline_view(timeline)

    assert (view.pod, view.host, view.image) == ("macos-runner-1", "mac-1", "image:1")


def test_a_job_on_a_runner_of_others_has_no_pod() -> None:
    foreign = a_timeline(a_job(State.COMPLETED), a_claim(), execution=an_execution(None))

    view = job_views.timeline_view(foreign)

    assert (view.pod, view.host, view.runner_name) == ("", "", "runner-1")
    assert view.execution is not None
    assert not view.execution.is_ours


def test_a_view_survives_json_with_snake_case_keys() -> None:
    view = job_views.timeline_view(DONE)
    encoded = msgspec.json.encode(view)

    assert msgspec.json.decode(encoded, type=TimelineView) == view
    keys = set(msgspec.json.decode(encoded))
    assert keys == {*JobView.__struct_fields__, "claims", "execution", "stages"}
    assert b'"queued_at":"2026-01-01T12:00:00Z"' in encoded
    assert set(msgspec.json.decode(encoded)["claims"][0]) == set(ClaimView.__struct_fields__)


def test_no_view_contains_the_jit_config() -> None:
    shown = [
        msgspec.json.encode(job_views.timeline_view(DONE)).decode(),
        msgspec.json.encode(job_views.list_view([DONE])).decode(),
        job_views.json_line(DONE).decode(),
        job_views.csv_row(DONE),
    ]

    assert not any(JIT in text for text in shown)


def test_a_list_has_the_host_of_each_job() -> None:
    listed = job_views.list_view([DONE, a_timeline(a_job())])

    assert [each.host for each in listed.jobs] == ["mac-1", ""]


def test_an_export_has_one_row_per_job() -> None:
    found = row(DONE)

    assert list(found) == list(job_views.EXPORT_COLUMNS)
    assert found["id"] == "7"
    assert found["labels"] == "tuist-macos,ARM64"
    assert found["minted_at"] == "2026-01-01T12:00:03Z"
    assert found["host"] == "mac-1"
    assert found["claims"] == "1"
    assert job_views.csv_row(a_timeline(a_job())).count("\r\n") == 1


@pytest.mark.parametrize(
    "start", ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\t", "\r", "\n"]
)
def test_a_name_is_not_a_formula_in_a_spreadsheet(start: str) -> None:
    hostile = a_timeline(a_job(name=f"{start}HYPERLINK(1)", branch="a,b\n=1", labels=("=1", "b")))

    found = row(hostile)

    assert found["name"] == f"'{start}HYPERLINK(1)"
    assert found["labels"] == "'=1,b"
    assert found["branch"] == "a,b\n=1"


def test_a_negative_priority_stays_a_number() -> None:
    low = dataclasses.replace(a_job(), priority=-3)

    assert row(a_timeline(low))["priority"] == "-3"


def test_json_lines_have_a_timeline_each() -> None:
    lines = (job_views.json_line(DONE) * 2).splitlines()

    views = [msgspec.json.decode(line, type=TimelineView) for line in lines]
    assert views == [job_views.timeline_view(DONE)] * 2


def test_a_reader_ignores_fields_of_a_newer_server() -> None:
    view = msgspec.json.decode(b'{"id": 1, "state": "paused", "colour": "red"}', type=JobView)

    assert not view.has_ended
    assert view.queued_at is None
