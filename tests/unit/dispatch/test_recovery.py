"""The passes of the recovery on the SQLite store, with witnesses whose answers the test sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from bramley.base.errors import GitHubUnavailable, Gone
from bramley.dispatch.forge import RunnerState
from bramley.dispatch.jobs import State
from bramley.dispatch.recovery import PodState
from tests.unit.dispatch.recovery_world import MINUTE, POOL, SECOND, a_pod, a_world


async def test_runner_that_never_comes_online_is_removed_and_its_pod_gets_no_other(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        await world.queue(1)
        await world.mint(1)
        await world.pass_time(5 * MINUTE)
        await world.recovery.check_claims()
        assert await world.job_state(1) == State.CLAIMED

        await world.pass_time(SECOND)
        await world.recovery.check_claims()

        assert world.forge.runners == {}
        assert await world.job_state(1) == State.QUEUED
        assert world.recovered == ["stale_claim"]
        with pytest.raises(Gone):
            await world.store.claim(a_pod(1), POOL, world.now)
        assert (await world.claim(2)).job_id == 1


async def test_vm_that_died_before_its_start_gives_the_job_back(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.queue(1)
        await world.mint(1)
        world.set_pod(1, PodState.GONE)

        await world.recovery.check_pod("runner-1")

        assert world.forge.runners == {}
        assert await world.job_state(1) == State.QUEUED
        assert world.recovered == ["orphan_requeued"]


async def test_nothing_is_reaped_while_github_is_unavailable(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.queue(1)
        await world.queue(2, account="other")
        for number in (1, 2):
            await world.mint(number)
            world.set_pod(number, PodState.GONE)
        await world.pass_time(6 * MINUTE)
        world.forge.errors["acme"] = GitHubUnavailable("no answer")

        await world.recovery.check_claims()
        await world.recovery.sweep_jobs()

        states = {await world.job_state(1), await world.job_state(2)}
        assert states == {State.CLAIMED, State.QUEUED}
        assert await world.job_state(1) == State.CLAIMED

        world.forge.errors.clear()
        await world.pass_time(MINUTE)
        await world.recovery.check_claims()
        assert await world.job_state(1) == State.QUEUED


@pytest.mark.parametrize("runner", RunnerState)
async def test_nothing_is_reaped_while_the_api_server_is_unavailable(
    tmp_path: Path, runner: RunnerState
) -> None:
    async with a_world(tmp_path) as world:
        await world.queue(1)
        await world.mint(1, runner)
        world.set_pod(1, PodState.UNKNOWN)
        await world.pass_time(60 * MINUTE)

        await world.recovery.check_claims()

        assert await world.job_state(1) == State.CLAIMED
        assert not world.forge.calls
        assert world.recovered == []


async def test_runner_of_a_cancelled_job_is_removed_so_that_its_pod_ends(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.queue(1)
        await world.mint(1)
        await world.store.cancel(1, world.now)
        await world.pass_time(5 * MINUTE)
        await world.recovery.check_claims()
        assert world.forge.runners

        await world.pass_time(SECOND)
        await world.recovery.check_claims()

        assert world.forge.runners == {}
        assert await world.job_state(1) == State.CANCELLED


async def test_jobs_that_wait_are_not_compared_while_runners_need_the_requests(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        await world.queue(1, 2)
        await world.mint(1, RunnerState.BUSY)
        await world.pass_time(6 * MINUTE)
        world.forge.is_short = True

        await world.recovery.sweep_jobs()
        assert dict(world.forge.calls) == {"job": 1}, "only the job that a Pod has"

        world.forge.is_short = False
        await world.recovery.sweep_jobs()
        assert dict(world.forge.calls) == {"job": 2, "unfinished_jobs": 1}


async def test_queued_jobs_of_a_pool_that_is_gone_move_to_the_one_that_accepts_them(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        await world.queue(1, 2)
        await world.claim(1)
        world.pool = "renamed"

        await world.recovery.reroute_jobs()
        assert (await world.store.timeline(2)).job.pool == POOL, "the pool still exists"

        world.pools = {"renamed"}
        await world.recovery.reroute_jobs()
        pools = [(await world.store.timeline(number)).job.pool for number in (1, 2)]
        assert pools == [POOL, "renamed"]
