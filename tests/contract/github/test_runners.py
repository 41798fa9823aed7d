"""Registration, list and removal of runners, and the jobs that they get."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from bramley.base import errors
from bramley.github.installation import RunnerSpec
from bramley.sim.github.faults import Fault
from bramley.sim.github.records import Repository
from tests.github_peer import ACME, APP, DOTFILES, Peer

SHORT = timedelta(milliseconds=20)


def repository(peer: Peer) -> Repository:
    return peer.github.accounts["acme"].repositories["app"]


async def test_runner_is_registered_in_the_organisation(peer: Peer) -> None:
    installation = peer.installation()

    created = await installation.create_jit_runner(ACME, RunnerSpec("r-1", ["macos"]))

    assert (created.owner, created.name) == (ACME, "r-1")
    assert created.jit_config.reveal() not in repr(created)
    (listed,) = await installation.runners(ACME)
    assert (listed.id, listed.name, listed.is_online) == (created.runner_id, "r-1", False)
    assert [label.name for label in listed.labels] == ["macos"]
    assert await installation.runner(ACME, created.runner_id) == listed


async def test_runner_of_a_user_is_registered_in_the_repository(peer: Peer) -> None:
    installation = peer.installation("jane")

    created = await installation.create_jit_runner(DOTFILES, RunnerSpec("r-1", ["macos"]))

    assert created.owner == DOTFILES
    assert [each.name for each in await installation.runners(DOTFILES)] == ["r-1"]


async def test_taken_name_and_invalid_runners_are_refused(peer: Peer) -> None:
    installation = peer.installation()
    await installation.create_jit_runner(ACME, RunnerSpec("r-1", ["macos"]))

    with pytest.raises(errors.AlreadyExists):
        await installation.create_jit_runner(ACME, RunnerSpec("r-1", ["macos"]))
    for invalid in (
        RunnerSpec("x" * 65, ["macos"]),
        RunnerSpec("r-2", []),
        RunnerSpec("r-2", ["macos"], runner_group_id=9),
    ):
        with pytest.raises(errors.BadRequest):
            await installation.create_jit_runner(ACME, invalid)


async def test_lost_answer_to_a_registration_is_not_repeated(peer: Peer) -> None:
    peer.github.faults.add(
        Fault(kind="status", status=502, path="*/generate-jitconfig", is_processed=True)
    )
    installation = peer.installation()

    with pytest.raises(errors.GitHubUnavailable):
        await installation.create_jit_runner(ACME, RunnerSpec("r-1", ["macos"]))

    assert [each.name for each in await installation.runners(ACME)] == ["r-1"]


async def test_all_pages_of_runners_are_read_and_one_is_found_by_name(peer: Peer) -> None:
    for number in range(250):
        peer.github.actions.register("/orgs/acme", f"r-{number}", ["macos"], 1)
    installation = peer.installation()

    assert len({each.id for each in await installation.runners(ACME)}) == 250
    assert [each.name for each in await installation.runners(ACME, name="r-7")] == ["r-7"]


async def test_absent_runner_is_not_found_and_a_busy_one_is_not_removed(peer: Peer) -> None:
    installation = peer.installation()
    idle = await installation.create_jit_runner(ACME, RunnerSpec("idle", ["macos"]))
    await installation.remove_runner(ACME, idle.runner_id)
    with pytest.raises(errors.NotFound):
        await installation.remove_runner(ACME, idle.runner_id)
    with pytest.raises(errors.NotFound):
        await installation.runner(ACME, idle.runner_id)

    busy = await installation.create_jit_runner(ACME, RunnerSpec("busy", ["macos"]))
    job = peer.github.actions.queue_job(repository(peer), labels=["macos"])
    peer.github.actions.connect(busy.jit_config.reveal())

    assert (await installation.workflow_job(APP, job.id)).runner_name == "busy"
    with pytest.raises(errors.BadRequest, match="still running a job"):
        await installation.remove_runner(ACME, busy.runner_id)


async def test_runner_groups_are_listed(peer: Peer) -> None:
    peer.github.accounts["acme"].groups.append("macs")

    groups = await peer.installation().runner_groups(ACME)

    assert [(group.id, group.name, group.default) for group in groups] == [
        (1, "Default", True),
        (2, "macs", False),
    ]


async def test_life_of_a_job_is_visible(peer: Peer) -> None:
    installation, actions = peer.installation(), peer.github.actions
    job = actions.queue_job(repository(peer), labels=["macos"], duration=SHORT)
    assert (await installation.workflow_job(APP, job.id)).status == "queued"
    assert [run.id for run in await installation.workflow_runs(APP, status="queued")] == [
        job.run.id
    ]
    created = await installation.create_jit_runner(ACME, RunnerSpec("r-1", ["macos", "arm64"]))

    await asyncio.wait_for(actions.run_runner(created.jit_config.reveal()), 30)

    (seen,) = await installation.jobs_of_run(APP, job.run.id)
    assert (seen.status, seen.conclusion, seen.runner_name) == ("completed", "success", "r-1")
    run = await installation.workflow_run(APP, job.run.id)
    assert (run.status, run.conclusion) == ("completed", "success")
    assert await installation.workflow_runs(APP, status="in_progress") == []
    assert await installation.runners(ACME) == []
    with pytest.raises(errors.NotFound):
        await installation.workflow_job(DOTFILES, job.id)


async def test_unchanged_list_is_answered_by_its_etag(peer: Peer) -> None:
    installation = peer.installation()
    await installation.runner_groups(ACME)
    before = peer.client.rate_limits.budget(installation.scope)

    groups = await installation.runner_groups(ACME)

    assert [group.name for group in groups] == ["Default"]
    assert peer.client.rate_limits.budget(installation.scope) == before
