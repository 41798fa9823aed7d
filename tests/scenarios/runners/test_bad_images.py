"""Bad images stop at the canary: the pool goes back to the last good image and shows why."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bramley.api import conditions, names
from bramley.api.core import Event
from bramley.api.meta import Condition
from bramley.api.names import conditions as types
from bramley.api.names import events
from bramley.api.runner_pool import Canary, Rollout, RunnerPool
from bramley.sim.fleet.images import ImageModel
from tests import virtual_time
from tests.scenarios.runners import trials
from tests.scenarios.runners.invariants import image_of, is_ready
from tests.scenarios.runners.world import NAMESPACE, NEW, NEWER, OLD, World


@pytest.mark.parametrize("name", [name for name, kind in trials.KINDS.items() if kind.verdicts])
def test_bad_image_is_rejected_by_its_canary(name: str) -> None:
    results = trials.run(name, trials.PER_WORLD)

    assert results.share(trials.KINDS[name].verdicts) == 1, results.ends


def test_noisy_good_image_is_accepted() -> None:
    results = trials.run("good-and-noisy", trials.PER_WORLD)

    assert results.ends == ["RollCompleted"] * trials.PER_WORLD


async def test_rejected_image_is_not_tried_again_until_it_is_promoted() -> None:
    kind = trials.KINDS["boots-slowly"]
    slow = ImageModel(size_bytes=4e9, boot_seconds=60)
    async with trials.a_pool({NEW: slow}, kind=kind) as world:
        assert await trials.try_image(world, NEW, OLD) == "CanaryBootSlow"
        found = (await world.kube.list(Event, namespace=NAMESPACE)).items
        rejections = [each.message for each in found if each.reason == events.IMAGE_REJECTED]
        assert [NEW in message for message in rejections] == [True]
        before = len(world.checkpoints.writes)

        await asyncio.sleep(7200)
        assert len(world.checkpoints.writes) == before

        await world.annotate({names.annotations.ROLLOUT_PROMOTE: NEW})
        await world.until_rolled(NEW)
        pool = await world.until_settled(NEW)
        assert pool.status.rejected_image == ""


async def test_new_image_after_a_rejected_one_is_tried() -> None:
    kind = trials.KINDS["exits-at-once"]
    bad, good = ImageModel(exits_after=3), ImageModel(boot_noise=trials.NOISE)
    async with trials.a_pool({NEW: bad, NEWER: good}, kind=kind) as world:
        assert await trials.try_image(world, NEW, OLD) == "CanaryExited"

        assert await trials.try_image(world, NEWER, OLD) == "RollCompleted"


async def test_image_that_never_gets_an_address_is_rejected_after_the_timeout_of_the_canary() -> (
    None
):
    kind = trials.KINDS["never-polls"]
    async with trials.a_pool({NEW: ImageModel(is_ready=False)}, kind=kind) as world:
        world.start_controller()
        await world.create_pool(rollout=Rollout(canary=Canary(timeout_seconds=120)))
        await world.until_settled(OLD)
        await world.patch({"image": NEW})
        began = virtual_time.clock().now()
        pool = await world.until(lambda pool: pool.status.roll_phase == "Rejected")

        condition = _rolled_out(pool)
        assert condition.reason == "CanaryNotReady"
        assert "120 s" in condition.message
        assert 120 < (virtual_time.clock().now() - began).total_seconds() < 240
        await world.until_settled(OLD)


async def test_restarted_controller_does_not_accept_a_canary_before_dispatch_has_answered() -> None:
    kind = trials.KINDS["never-polls"]
    async with trials.a_pool({NEW: ImageModel(polls=False)}, kind=kind) as world:
        await _rolling(world)
        await world.until(lambda pool: bool(pool.status.canaries))
        # The canary is Ready for longer than one that dispatch knows nothing of has to be.
        await asyncio.sleep(120)
        await world.controllers[-1].kill()

        world.start_controller(signals_delay=4)
        pool = await world.until(lambda pool: pool.status.roll_phase != "Canary")

        assert _rolled_out(pool).reason == "CanaryNotPolling"


async def test_image_whose_guests_stop_responding_after_the_trial_is_rejected() -> None:
    kind = trials.KINDS["good-and-noisy"]
    async with trials.a_pool({NEW: ImageModel()}, kind=kind) as world:
        await _rolling(world)
        await world.until(lambda pool: pool.status.roll_phase == "Rolling")

        while (pool := await world.pool()).status.roll_phase == "Rolling":
            for pod in await world.alive():
                if image_of(pod) == NEW and is_ready(pod):
                    world.invariants.remember_ready()
                    world.hosts.unready(pod.name)
            await asyncio.sleep(5)

        assert _rolled_out(pool).reason == "PodsFail"
        await world.until_settled(OLD)


async def test_roll_that_is_stuck_says_so_within_a_quarter_of_an_hour() -> None:
    """The canary worked; on the other hosts the guests of the image get no address, and boot again and again."""
    kind = trials.KINDS["good-and-noisy"]
    async with trials.a_pool({NEW: ImageModel()}, kind=kind) as world:
        await _rolling(world)
        await world.until(lambda pool: pool.status.roll_phase == "Rolling")
        for host in world.hosts.hosts.values():
            host.images.models = {**host.images.models, NEW: ImageModel(is_ready=False)}

        await asyncio.sleep(14 * 60)
        assert _rolled_out(await world.pool()).reason == "Rolling"
        await asyncio.sleep(2 * 60)

        condition = _rolled_out(await world.pool())
        assert condition.reason == "ProgressDeadlineExceeded"
        assert "is not ready; see bramley explain pool/macos" in condition.message


async def test_good_image_is_not_rejected_while_another_host_pulls_it_for_the_second_canary() -> (
    None
):
    kind = trials.KINDS["good-and-noisy"]
    async with trials.a_pool({NEW: ImageModel()}, kind=kind) as world:
        slow = ("mac-2", "mac-3", "mac-4")
        for host in slow:
            world.hosts.stall(host)
        await _rolling(world, rollout=Rollout(max_concurrent_percent=50, canary=Canary(count=2)))

        await asyncio.sleep(1500)
        message = _rolled_out(await world.pool()).message
        for host in slow:
            world.hosts.stall(host, is_stalled=False)
        pool = await world.until_rolled(NEW)

        assert "1 of 2 canaries are ready, 1 more to be placed on a host" in message
        assert pool.status.rejected_image == ""


async def _rolling(world: World, **spec: Any) -> None:
    """Start a pool, and a roll to the new image."""
    world.start_controller()
    await world.create_pool(**spec)
    await world.until_settled(OLD)
    await world.patch({"image": NEW})


def _rolled_out(pool: RunnerPool) -> Condition:
    found = conditions.find(pool.status.conditions, types.ROLLED_OUT)
    assert found is not None
    return found
