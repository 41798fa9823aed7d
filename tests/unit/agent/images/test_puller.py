"""Failing pulls: an overloaded or hanging registry, a full disk, and a Pod that waits behind another pull."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent.images.image_requests import ImageRequest, Pulling, Ready
from bramley.agent.images.pull_monitor import PullControl, Stalled
from bramley.agent.images.puller import PullSettings
from bramley.agent.tart.failures import NoSpace, Throttled
from tests.unit.agent.images.image_world import ImageWorld, image_world, pinned, until

B, C = pinned("b"), pinned("c")


@pytest.mark.parametrize("code", [429, 503])
async def test_short_registry_failure_is_retried(world: ImageWorld, code: int) -> None:
    world.mac.settings.fault("pull", "status", code=code, percent=30, times=2)
    await world.ready(B)

    pulls = world.called("pull")
    assert len(pulls) == 3
    assert [pull.split()[-1] for pull in pulls] == ["8", "4", "2"]


async def test_long_registry_failure_fails_the_pull(world: ImageWorld) -> None:
    world.mac.settings.fault("pull", "status", code=429, percent=0)
    answer = await world.failed(B)

    assert isinstance(answer.error, Throttled)
    assert len(world.called("pull")) == 5


async def test_missing_image_is_not_retried(world: ImageWorld) -> None:
    await world.failed("ghcr.io/tuist/none:1")

    assert len(world.called("pull")) == 1


async def test_stalled_pull_is_killed_and_resumed(world: ImageWorld) -> None:
    world.mac.settings.fault("pull", "stall", percent=90, times=1)
    began = asyncio.get_running_loop().time()
    await world.ready(B)
    took = asyncio.get_running_loop().time() - began

    whole = 20e9 / 2 / 125e6
    assert len(world.called("pull")) == 2
    assert took < whole + 300 + whole * 0.2
    assert world.metrics.tart_timeouts.of("pull")._value.get() == 1


async def test_pull_that_stalls_every_time_is_a_failure_and_leaves_no_process(
    world: ImageWorld,
) -> None:
    world.mac.settings.fault("pull", "stall", percent=10)
    answer = await world.failed(B)

    assert isinstance(answer.error, Stalled)
    assert world.mac.table.living() == []


async def test_slow_pull_is_not_stalled(world: ImageWorld) -> None:
    world.mac.settings.timings(bytes_per_second=4e6)
    await world.ready(B)

    assert len(world.called("pull")) == 1


async def test_pull_has_a_deadline_even_while_it_progresses(tmp_path: Path) -> None:
    settings = PullSettings(max_duration=timedelta(minutes=1))
    async with image_world(tmp_path, settings=settings) as world:
        answer = await world.failed(B)

        assert answer.error.reason == "TimedOut"
        assert world.mac.table.living() == []


async def test_full_disk_is_cleared_once_and_the_pull_retried(tmp_path: Path) -> None:
    queries: list[str] = []

    async def reclaim(needed: int | None = None) -> bool:
        queries.append("room")
        return True

    async with image_world(tmp_path, reclaim=reclaim) as world:
        world.mac.settings.fault("pull", "no_space", times=1)
        await world.ready(B)

        assert queries == ["room"]
        assert len(world.called("pull")) == 2


async def test_full_disk_without_a_collector_is_a_failure(tmp_path: Path) -> None:
    async with image_world(tmp_path, reclaim=None) as world:
        world.mac.settings.fault("pull", "no_space", times=1)
        answer = await world.failed(B)

        assert isinstance(answer.error, NoSpace)
        assert len(world.called("pull")) == 1
        assert world.images.present() == []


async def test_pulls_from_one_registry_take_turns(world: ImageWorld) -> None:
    world.request(B, "pod-1")
    world.request(C, "pod-2")
    await asyncio.sleep(5)

    assert len(world.called("pull")) == 1
    await asyncio.gather(world.ready(B, "pod-1"), world.ready(C, "pod-2"))


def stage(world: ImageWorld, image: str, limit: float) -> Ready | Pulling:
    request = ImageRequest(image, "staging")
    answer = world.images.request(request, on_change=lambda: None, control=PullControl(limit=limit))
    assert isinstance(answer, Ready | Pulling)
    return answer


@pytest.mark.parametrize("megabytes", [10, 60])
async def test_bandwidth_limit_of_a_staged_pull_is_kept_and_used(
    tmp_path: Path, megabytes: int
) -> None:
    settings = PullSettings(staging_concurrency=8)
    async with image_world(tmp_path, settings=settings) as world:
        loop = asyncio.get_running_loop()
        began = loop.time()
        stage(world, B, megabytes * 1e6)
        samples: list[tuple[float, int]] = []
        while not isinstance(answer := stage(world, B, megabytes * 1e6), Ready):
            samples.append((loop.time() - began, answer.percent or 0))
            await asyncio.sleep(1)

        size = 20e9 / 2
        ideal = size / (megabytes * 1e6)
        assert ideal * 0.97 <= loop.time() - began <= ideal * 1.1
        # At no time more than the limit allows, except for the percents in transit when it was stopped.
        step = 2 * size / 100
        assert all(
            size * percent / 100 <= megabytes * 1e6 * (seconds + 2) + step
            for seconds, percent in samples
        )


async def test_limited_pull_that_stalled_resumes_without_a_debt(world: ImageWorld) -> None:
    world.mac.settings.fault("pull", "stall", percent=90, times=1)
    began = asyncio.get_running_loop().time()
    stage(world, B, 20e6)
    await until(lambda: isinstance(stage(world, B, 20e6), Ready), seconds=20_000)

    assert len(world.called("pull")) == 2
    assert asyncio.get_running_loop().time() - began < 500 + 300 + 60


async def test_new_limit_counts_from_now_on(world: ImageWorld) -> None:
    stage(world, B, 20e6)
    await asyncio.sleep(250)
    halfway = stage(world, B, 5e6)
    await asyncio.sleep(200)
    later = stage(world, B, 5e6)

    assert isinstance(halfway, Pulling)
    assert isinstance(later, Pulling)
    # A gigabyte of the ten in 200 s.
    assert 8 <= (later.percent or 0) - (halfway.percent or 0) <= 12


async def test_pod_that_needs_a_staged_image_lifts_its_limit(world: ImageWorld) -> None:
    stage(world, B, 1e6)
    await asyncio.sleep(300)
    began = asyncio.get_running_loop().time()
    await world.ready(B)

    # One stream of 29 MB/s is what staging opened.
    assert asyncio.get_running_loop().time() - began < 20e9 / 2 / 29e6 + 30
    assert len(world.called("pull")) == 1


async def test_pod_does_not_wait_behind_an_image_that_is_only_staged(world: ImageWorld) -> None:
    stage(world, B, 15e6)
    await asyncio.sleep(60)
    began = asyncio.get_running_loop().time()
    await world.ready(C, "pod-1")
    assert asyncio.get_running_loop().time() - began < 100

    await until(lambda: isinstance(stage(world, B, 15e6), Ready), seconds=20_000)
    assert [call.split()[2] for call in world.called("pull")] == [B, C, B]


async def test_cancelled_stage_leaves_no_process_and_no_files(world: ImageWorld) -> None:
    stage(world, B, 20e6)
    await asyncio.sleep(60)
    assert world.left_in_tmp()
    await world.images.cancel(B)

    assert world.mac.table.living() == []
    assert world.left_in_tmp() == []
    assert world.images.present() == []


async def test_stage_that_a_pod_waits_for_is_not_cancelled(world: ImageWorld) -> None:
    stage(world, B, 20e6)
    await asyncio.sleep(10)
    world.request(B, "pod-1")
    await world.images.cancel(B)

    await world.ready(B, "pod-1")
    assert len(world.called("pull")) == 1


async def test_stage_is_cancelled_before_it_has_begun(world: ImageWorld) -> None:
    stage(world, B, 20e6)
    await world.images.cancel(B)
    await asyncio.sleep(10)

    assert world.called("pull") == []
