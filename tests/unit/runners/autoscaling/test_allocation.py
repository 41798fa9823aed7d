from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.runners.autoscaling.allocation import PoolDemand, allocate, divide

counts = st.integers(0, 30)
names = st.text("abcdefgh", min_size=1, max_size=3)
fleets = st.dictionaries(names, st.tuples(counts, counts, counts, counts), max_size=6).map(
    lambda pools: [PoolDemand(name, *values) for name, values in pools.items()]
)
capacities = st.integers(0, 100)


@pytest.mark.parametrize(
    ("demands", "capacity", "expected"),
    [
        pytest.param(
            [PoolDemand("a", 3, 1, 6), PoolDemand("b", 0, 2, 2)],
            20,
            {"a": 6, "b": 2},
            id="every pool gets its target while there is room",
        ),
        pytest.param(
            [PoolDemand("a", 8, 1, 9), PoolDemand("b", 4, 1, 5)],
            9,
            {"a": 8, "b": 4},
            id="load is granted in full beyond the capacity",
        ),
        pytest.param(
            [PoolDemand("a", 2, 1, 9), PoolDemand("b", 5, 1, 6)],
            10,
            {"a": 4, "b": 6},
            id="headroom is squeezed before floors",
        ),
        pytest.param(
            [PoolDemand("idle", 0, 20, 20), PoolDemand("busy", 15, 0, 15)],
            20,
            {"idle": 5, "busy": 15},
            id="an idle floor gives way to the load of another pool",
        ),
        pytest.param(
            [PoolDemand("a", 0, 10, 10), PoolDemand("b", 0, 5, 5)],
            6,
            {"a": 4, "b": 2},
            id="what does not fit is divided in proportion",
        ),
        pytest.param(
            [PoolDemand("a", 3, 2, 6), PoolDemand("b", 0, 4, 5)],
            0,
            {"a": 3, "b": 0},
            id="without capacity only load is granted",
        ),
        pytest.param(
            [PoolDemand("a", 9, 3, 4)], 20, {"a": 4}, id="the target limits load and floor"
        ),
        pytest.param(
            [PoolDemand("a", 1, 1, 2, held=6), PoolDemand("b", 0, 0, 4)],
            7,
            {"a": 6, "b": 1},
            id="runners that are held come before headroom",
        ),
        pytest.param(
            [PoolDemand("a", 1, 1, 2, held=6), PoolDemand("b", 3, 1, 4)],
            7,
            {"a": 3, "b": 4},
            id="runners that are held give way to load and floor",
        ),
        pytest.param([], 5, {}, id="no pools"),
    ],
)
def test_allocation(demands: list[PoolDemand], capacity: int, expected: dict[str, int]) -> None:
    assert allocate(demands, capacity) == expected


def test_no_slot_stays_unused_when_shares_are_not_whole() -> None:
    """Truncated shares of 5/3 slots would leave two of five unused."""
    floors = [PoolDemand(name, 0, 4, 4) for name in "abc"]

    assert allocate(floors, 5) == {"a": 2, "b": 2, "c": 1}


@given(fleets, capacities)
def test_share_is_between_load_and_target_or_what_is_held(
    demands: list[PoolDemand], capacity: int
) -> None:
    found = allocate(demands, capacity)

    for demand in demands:
        assert min(demand.load, demand.target) <= found[demand.pool]
        assert found[demand.pool] <= max(demand.target, demand.held)


@given(fleets, capacities)
def test_sum_is_the_capacity_unless_load_exceeds_it_or_less_is_needed(
    demands: list[PoolDemand], capacity: int
) -> None:
    load = sum(demand.rounds[0] for demand in demands)
    needed = sum(demand.rounds[-1] for demand in demands)

    assert sum(allocate(demands, capacity).values()) == max(load, min(capacity, needed))


@given(fleets, capacities)
def test_another_slot_takes_at_most_one_runner_from_a_pool(
    demands: list[PoolDemand], capacity: int
) -> None:
    """Largest remainder may move one slot; the sum never falls."""
    before, after = allocate(demands, capacity), allocate(demands, capacity + 1)

    assert sum(after.values()) >= sum(before.values())
    assert all(after[pool] >= before[pool] - 1 for pool in before)


@given(fleets, capacities, st.integers())
def test_order_of_pools_does_not_matter(
    demands: list[PoolDemand], capacity: int, seed: int
) -> None:
    shuffled = random.Random(seed).sample(demands, len(demands))

    assert allocate(shuffled, capacity) == allocate(demands, capacity)


@given(st.dictionaries(names, counts, min_size=1), st.integers(0, 200))
def test_division_differs_from_the_exact_share_by_less_than_one(
    requested: dict[str, int], slots: int
) -> None:
    total = sum(requested.values())
    shares = divide(slots, requested)

    assert sum(shares.values()) == min(slots, total)
    for pool, count in requested.items():
        exact = count if total <= slots else slots * count / total
        assert abs(shares[pool] - exact) < 1
        assert shares[pool] <= count
