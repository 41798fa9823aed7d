"""Bad images stop at the canary: the pool goes back to the last good image and shows why."""

from __future__ import annotations

import asyncio

import pytest

from bramley.api import conditions, names
from bramley.api.core import Event
from bramley.api.names import conditions as types
from bramley.api.names import events
from bramley.api.runner_pool import Canary, Rollout
from bramley.sim.fleet.images import ImageModel
from tests import virtual_time
from tests.scenarios.runners import trials
from tests.scenarios.runners.world import NAMESPACE, NEW, NEWER, OLD


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
        assert [NEW in each.message for each in found if each.reason == events.IMAGE_REJECTED]
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

        condition = conditions.find(pool.status.conditions, types.ROLLED_OUT)
        assert condition is not None
        assert condition.reason == "CanaryNotReady"
        assert "120 s" in condition.message
        assert 120 < (virtual_time.clock().now() - began).total_seconds() < 240
        await world.until_settled(OLD)
