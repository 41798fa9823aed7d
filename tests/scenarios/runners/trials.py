"""Trials of bad and good images, one after another in one pool.

Each trial has an image of its own. Boots vary by the name of the Pod, so a seed decides how fast canaries and their predecessors
were.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from bramley.api import conditions
from bramley.api.names import conditions as types
from bramley.api.names import metrics
from bramley.api.runner_pool import RunnerPool
from bramley.sim.fleet.hosts import FleetSettings
from bramley.sim.fleet.images import ImageModel
from tests import virtual_time
from tests.scenarios.runners.world import GB, OLD, World, a_world

HOSTS = 4
PER_WORLD = 10
NOISE = 0.25
_BOOT = 9.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of image, and the verdicts that detect it; none for a good one."""

    verdicts: frozenset[str] = frozenset()
    polls: bool = True
    slowdown: float = 1.0
    exits_after: tuple[float | None, ...] = (None,)
    has_signals: bool = True

    def model(self, rng: random.Random) -> ImageModel:
        """Return the image of one trial."""
        return ImageModel(
            size_bytes=4 * GB,
            boot_seconds=_BOOT * self.slowdown,
            boot_noise=NOISE,
            polls=self.polls,
            exits_after=rng.choice(self.exits_after),
        )


KINDS = {
    "never-polls": Kind(frozenset({"CanaryNotPolling"}), polls=False),
    # Before and after its address is known.
    "exits-at-once": Kind(
        frozenset({"CanaryExited"}), exits_after=(0.5, 5.0, 12.0, 20.0), has_signals=False
    ),
    "boots-slowly": Kind(frozenset({"CanaryBootSlow"}), slowdown=5.0),
    "good-and-noisy": Kind(),
}


@dataclass(slots=True)
class Results:
    """How many trials there were, and their ends: the reason of the condition RolledOut."""

    ends: list[str] = field(default_factory=list)

    def share(self, expected: frozenset[str]) -> float:
        """Return the share of trials that ended so."""
        return sum(end in expected for end in self.ends) / len(self.ends)


def trial_image(number: int) -> str:
    """Return the image of one trial."""
    return f"ghcr.io/example/runner@sha256:{number + 16:064x}"


def run(name: str, count: int) -> Results:
    """Run so many trials of one kind, ten in each world."""
    results = Results()
    for seed in range(0, count, PER_WORLD):
        trials = range(seed, min(count, seed + PER_WORLD))
        virtual_time.run(_run_world(KINDS[name], trials, results), seed=seed)
    return results


async def _run_world(kind: Kind, trials: range, results: Results) -> None:
    rng = random.Random(f"{kind}/{trials.start}")
    images: dict[str, ImageModel] = {trial_image(each): kind.model(rng) for each in trials}
    async with a_pool(images, kind=kind, seed=trials.start) as world:
        good = OLD
        for number in trials:
            end = await try_image(world, trial_image(number), good)
            results.ends.append(end)
            if end == "RollCompleted":
                good = trial_image(number)


def a_pool(
    images: Mapping[str, ImageModel], *, kind: Kind, seed: int = 0
) -> AbstractAsyncContextManager[World]:
    """Return a world with the old image and those of trials."""
    old = ImageModel(size_bytes=4 * GB, boot_seconds=_BOOT, boot_noise=NOISE)
    settings = FleetSettings(hosts=HOSTS, on_disk=(OLD,), seed=seed)
    return a_world(settings, {OLD: old, **images}, seed=seed, has_signals=kind.has_signals)


async def try_image(world: World, new: str, good: str) -> str:
    """Roll to an image and return how it ended; the pool has all its Pods again, with the right image."""
    if not world.controllers:
        world.start_controller()
        await world.create_pool()
        await world.until_settled(good)
    world.invariants.start_recording()
    await world.patch({"image": new})
    pool = await world.until(lambda pool: _has_ended(pool, new), within=36_000)
    # Soon: the canaries of a rejected image must not keep their places for hours.
    await world.until_settled(good if pool.status.roll_phase == "Rejected" else new, within=1800)
    # The cap is one Pod.
    assert world.invariants.fewest_ready["macos"] >= HOSTS - 1
    condition = conditions.find((await world.pool()).status.conditions, types.ROLLED_OUT)
    assert condition is not None
    if condition.status == "False":
        _check_report(world, new, good, condition.reason, condition.message)
    return condition.reason


def _has_ended(pool: RunnerPool, new: str) -> bool:
    status = pool.status
    is_rejected = status.roll_phase == "Rejected" and status.rejected_image == new
    return is_rejected or (status.last_good_image == new and status.roll_phase == "Idle")


def _check_report(world: World, new: str, good: str, reason: str, message: str) -> None:
    """Check that the rejection is explained by the condition and the metric."""
    assert new in message
    assert good in message
    assert (world.metric(metrics.POOL_CANARY_VERDICTS.name, verdict=reason) or 0) >= 1
