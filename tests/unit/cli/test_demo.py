"""`bramley demo job`: following a job under virtual time, and the whole command against peers on a loopback socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from bramley.base.errors import BramleyError, NotFound, TimedOut, Unavailable
from bramley.cli import demo, main
from bramley.cli.demo import Following
from bramley.dispatch import job_views
from bramley.dispatch.job_views import TimelineView
from bramley.dispatch.jobs import State
from bramley.dispatch.store.records import Timeline
from tests.unit.cli.dispatch_peer import Peer, a_peer
from tests.unit.dispatch.job_builders import START, a_claim, a_job, a_timeline, an_execution, at

Captured = pytest.CaptureFixture[str]
CLAIM = a_claim(claimed_at=at(0.25), stamped_at=at(0.3), minted_at=at(0.4), online_at=None)
CLAIMED = a_timeline(a_job(State.CLAIMED), CLAIM)
DONE = a_timeline(a_job(State.COMPLETED), CLAIM, execution=an_execution())
LONG = timedelta(minutes=2)


class Replayed:
    """Returns one timeline, or raises one error, after another; the last one stays."""

    def __init__(self, *steps: Timeline | BramleyError) -> None:
        self.steps = list(steps)

    async def timeline(self, job_id: int) -> TimelineView:
        assert job_id == 7
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, BramleyError):
            raise step
        return job_views.timeline_view(step)


async def followed(*steps: Timeline | BramleyError, limit: timedelta = LONG) -> list[str]:
    following = Following(Replayed(*steps), limit, START)
    return [f"{line.offset.total_seconds():.2f} {line.text}" async for line in following.lines(7)]


async def test_each_stage_is_one_line_with_its_offset() -> None:
    errors = (NotFound("unknown"), Unavailable("restarting"))
    running = a_timeline(a_job(State.RUNNING), CLAIM, execution=an_execution())

    assert await followed(*errors, a_timeline(a_job()), CLAIMED, running, DONE) == [
        "0.00 queued as job 7",
        "0.25 claimed by Pod macos-runner-1 on mac-1",
        "0.40 JIT config handed out",
        "0.80 started",
        "1.00 finished: success",
    ]


async def test_a_job_that_is_given_back_is_claimed_again() -> None:
    returned = a_claim(claimed_at=at(0.1), minted_at=None, finished_at=at(0.3), outcome="lost")
    again = a_timeline(
        a_job(State.COMPLETED), returned, a_claim(2, claimed_at=at(0.5)), execution=an_execution(2)
    )

    found = await followed(
        a_timeline(a_job(State.CLAIMED), a_claim(claimed_at=at(0.1), minted_at=None)),
        a_timeline(a_job(), returned),
        again,
    )

    texts = [line.partition(" ")[2] for line in found]
    assert texts[1] == "claimed by Pod macos-runner-1 on mac-1"
    assert "given back by Pod macos-runner-1: lost" in texts
    assert "claimed by Pod macos-runner-2 on mac-2" in texts


async def test_a_server_with_another_clock_does_not_give_negative_offsets() -> None:
    ahead = a_timeline(
        a_job(State.COMPLETED), a_claim(claimed_at=at(900)), execution=an_execution()
    )

    offsets = [float(line.partition(" ")[0]) for line in await followed(ahead)]

    assert offsets == sorted(offsets)
    assert offsets[-1] < 1


@pytest.mark.parametrize(
    ("step", "part"),
    [(a_timeline(a_job()), "bramley explain job/7"), (NotFound("unknown"), "gets webhooks")],
)
async def test_a_job_that_does_not_end_is_an_error_with_advice(
    step: Timeline | BramleyError, part: str
) -> None:
    with pytest.raises(TimedOut, match=part):
        await followed(step, limit=timedelta(seconds=30))


@pytest.fixture
def peer() -> Iterator[Peer]:
    with a_peer() as served:
        served.publish(url=served.url, **{"github-url": served.url})
        served.answer("POST /sim/jobs", {"id": 7, "status": "queued"})
        yield served


def run(peer: Peer, folder: Path, *options: str) -> int:
    return main.run(["demo", "job", "--kubeconfig", str(peer.kubeconfig(folder)), *options])


def test_the_command_queues_a_job_and_ends_with_it(
    peer: Peer, tmp_path: Path, capsys: Captured
) -> None:
    peer.answer("GET /api/v1/jobs/7", {"error": "unknown"}, "404 Not Found")
    peer.answer("GET /api/v1/jobs/7", msgspec.json.encode(job_views.timeline_view(DONE)))

    assert run(peer, tmp_path, "--seconds", "1") == 0

    assert capsys.readouterr().out.splitlines()[-1].endswith("finished: success")
    queued = next(each for each in peer.received if each.line.startswith("POST"))
    assert queued.header("authorization") == ""
    assert json.loads(queued.body) == {
        "repository": demo.REPOSITORY,
        "labels": ["tuist-macos"],
        "seconds": 1.0,
        "name": "demo",
    }


def test_a_failed_job_fails_the_command(peer: Peer, tmp_path: Path, capsys: Captured) -> None:
    failed = msgspec.structs.replace(job_views.timeline_view(DONE), conclusion="failure")
    peer.answer("GET /api/v1/jobs/7", msgspec.json.encode(failed))

    assert run(peer, tmp_path) == 1
    assert "bramley jobs logs 7" in capsys.readouterr().out
    assert run(peer, tmp_path, "-o", "json") == 1
    assert json.loads(capsys.readouterr().out)["conclusion"] == "failure"


def test_a_cluster_without_a_simulated_github_is_refused(tmp_path: Path, capsys: Captured) -> None:
    with a_peer() as peer:
        peer.publish(url=peer.url)

        assert run(peer, tmp_path) == 2
    assert "bramley up" in capsys.readouterr().err
