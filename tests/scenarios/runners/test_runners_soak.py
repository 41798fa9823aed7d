"""Every case of the tests that have a short form: `make soak` runs them, in parallel, and SEEDS sets how many seeds there are."""

from __future__ import annotations

import os

import pytest

from tests import virtual_time
from tests.scenarios.runners import disturbances, trials
from tests.scenarios.runners.crashes import CASES, checkpoints, roll

pytestmark = pytest.mark.soak

SEEDS = int(os.environ.get("SEEDS", "1000"))
_SEEDS_PER_TEST = 25
_TRIALS = 200
_PARTS = 4
LEAST_DETECTED = {"never-polls": 0.99, "exits-at-once": 0.99, "boots-slowly": 0.95}


@pytest.mark.parametrize("first", range(0, SEEDS, _SEEDS_PER_TEST))
def test_pool_survives_stale_caches_dead_controllers_and_a_second_leader(first: int) -> None:
    for seed in range(first, min(SEEDS, first + _SEEDS_PER_TEST)):
        virtual_time.run(disturbances.run(seed, count=14), seed=seed)


@pytest.mark.parametrize("name", LEAST_DETECTED)
def test_bad_images_are_detected(name: str) -> None:
    results = trials.run(name, _TRIALS)

    assert results.share(trials.KINDS[name].verdicts) >= LEAST_DETECTED[name]


def test_noisy_good_images_are_hardly_ever_rejected() -> None:
    results = trials.run("good-and-noisy", _TRIALS)

    assert results.share(frozenset({"RollCompleted"})) >= 0.99


@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("name", CASES)
def test_roll_survives_the_death_of_the_controller_at_every_write(name: str, part: int) -> None:
    for kill_at in range(1 + part, checkpoints(name) + 1, _PARTS):
        virtual_time.run(roll(CASES[name], kill_at))
