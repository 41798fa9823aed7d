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


# Seeds of faults that were found by `make soak`: a Pod that was bound to a host without the image while it was marked, and Pods
# that were announced under a larger cap and created by the next controller under a smaller one.
@pytest.mark.parametrize("seed", [162, 736])
def test_fault_that_was_found_once_does_not_return(seed: int) -> None:
    virtual_time.run(disturbances.run(seed, count=14), seed=seed)
