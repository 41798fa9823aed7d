"""Pools that are disturbed in many ways at once, a few seeds; `make soak` runs many more."""

from __future__ import annotations

import pytest

from tests import virtual_time
from tests.scenarios.runners import disturbances

_SEEDS = 50
_SEEDS_PER_TEST = 5


@pytest.mark.parametrize("first", range(0, _SEEDS, _SEEDS_PER_TEST))
def test_pool_survives_stale_caches_dead_controllers_and_a_second_leader(first: int) -> None:
    for seed in range(first, first + _SEEDS_PER_TEST):
        virtual_time.run(disturbances.run(seed, count=4), seed=seed)
