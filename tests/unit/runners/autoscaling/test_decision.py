from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from bramley.api.names import events
from bramley.runners.autoscaling import desired
from bramley.runners.autoscaling.decision import Decision, LowDemand, PoolState, decide
from bramley.runners.dispatch_client import ScalingSignals
from tests.unit.runners.autoscaling.test_desired import signals

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COOLDOWN = timedelta(seconds=300)


def a_pool(
    name: str = "a",
    *,
    replicas: int = 0,
    floor: int = 0,
    maximum: int = 20,
    demanded: ScalingSignals | None = None,
    low: LowDemand | None = None,
) -> PoolState:
    return PoolState(name, replicas, floor, maximum, COOLDOWN, demanded, low)


def simulate(pool: PoolState, demands: list[ScalingSignals], slots: int | None = None) -> list[int]:
    """Return the replicas after each decision; decisions are 60 s apart."""
    replicas = []
    for number, demanded in enumerate(demands):
        state = dataclasses.replace(pool, signals=demanded)
        decision = decide([state], slots, NOW + number * timedelta(seconds=60))[pool.name]
        pool = dataclasses.replace(pool, replicas=decision.replicas, low_demand=decision.low_demand)
        replicas.append(decision.replicas)
    return replicas


def only(state: PoolState, slots: int | None = None, *, now: datetime = NOW) -> Decision:
    return decide([state], slots, now)[state.name]


def test_pool_scales_up_at_once() -> None:
    decision = only(a_pool(replicas=1, floor=1, demanded=signals(claimed=1, queued=4)), 20)

    assert (decision.replicas, decision.reason) == (6, events.QUEUED_JOBS)
    assert "4 queued" in decision.message


def test_first_scale_down_waits_for_the_whole_cooldown() -> None:
    idle = [signals()] * 6

    assert simulate(a_pool(replicas=9), idle) == [9, 9, 9, 9, 9, 0]


def test_scale_down_keeps_what_was_needed_at_any_time_of_the_cooldown() -> None:
    varying = [signals(claimed=count) for count in (2, 1, 6, 0, 3, 1)]

    assert simulate(a_pool(replicas=9), varying)[-1] == 6


def test_demand_that_comes_back_restarts_the_cooldown() -> None:
    returning = [signals(claimed=count) for count in (2, 2, 2, 9, 2, 2, 2, 2, 2)]

    assert simulate(a_pool(replicas=9), returning) == [9] * 9


def test_second_scale_down_waits_for_another_cooldown() -> None:
    falling = [signals(claimed=count) for count in (6, 6, 6, 6, 6, 0, 0, 0, 0, 0, 0, 0)]

    assert simulate(a_pool(replicas=9), falling) == [9] * 5 + [6] * 6 + [0]


def test_cooling_pool_says_what_would_be_enough() -> None:
    decision = only(a_pool(replicas=9, demanded=signals(claimed=2)), 20)

    assert decision.reason == events.COOLING_DOWN
    assert decision.low_demand == LowDemand(NOW, 2)
    assert decision.message.startswith("9 runners: 2 are enough, but must be so for 300 s; ")


def test_lower_maximum_holds_at_once() -> None:
    assert only(a_pool(replicas=9, maximum=4, demanded=signals(claimed=9)), 20).replicas == 4


def test_pool_without_signals_keeps_its_replicas() -> None:
    decision = only(a_pool(replicas=7, floor=1), 3)

    assert (decision.replicas, decision.reason) == (7, events.SIGNALS_UNAVAILABLE)
    assert decision.low_demand is None


def test_slots_of_a_pool_without_signals_are_occupied() -> None:
    unknown = a_pool("unknown", replicas=6)
    other = a_pool("other", floor=5, demanded=signals(claimed=1))

    assert decide([unknown, other], 10, NOW)["other"].replicas == 4


def test_pool_that_gets_less_than_its_target_says_so() -> None:
    decision = only(a_pool(floor=5, demanded=signals(claimed=1)), 4)

    assert (decision.replicas, decision.target) == (4, 6)
    assert decision.reason == events.FLEET_FULL
    assert "6 are needed, but the fleet has 4 slots" in decision.message


def test_unknown_slots_give_each_pool_its_own_target() -> None:
    busy, idle = a_pool("busy", demanded=signals(claimed=9)), a_pool("idle", floor=3, replicas=3)
    idle = dataclasses.replace(idle, signals=signals())

    decisions = decide([busy, idle], None, NOW)

    assert {name: each.replicas for name, each in decisions.items()} == {"busy": 9, "idle": 3}


def test_cooling_runners_give_way_at_once_to_load_of_another_pool() -> None:
    idle = a_pool("idle", replicas=9, floor=1, demanded=signals())
    busy = a_pool("busy", floor=1, demanded=signals(queued=4))

    decisions = decide([idle, busy], 9, NOW)

    assert {name: each.replicas for name, each in decisions.items()} == {"idle": 4, "busy": 5}


def test_headroom_of_another_pool_waits_for_the_cooldown_and_is_then_given() -> None:
    first = a_pool("first", replicas=6, demanded=signals(p95=6))
    second = a_pool("second", demanded=signals(p95=6))

    early = decide([first, second], 6, NOW)
    first = dataclasses.replace(first, low_demand=early["first"].low_demand)
    late = decide([first, second], 6, NOW + COOLDOWN)

    assert (early["first"].replicas, early["second"].replicas) == (6, 0)
    assert (late["first"].replicas, late["second"].replicas) == (3, 3)


# Little load and much headroom: load may exceed the slots, so with much of it nothing else would be tested.
demand = st.builds(
    signals,
    claimed=st.integers(0, 4),
    queued=st.integers(0, 2),
    p95=st.integers(0, 30),
    occupied=st.integers(0, 4),
    withheld=st.integers(0, 1),
)
states = st.lists(
    st.builds(
        PoolState,
        name=st.text("abc", min_size=1, max_size=2),
        replicas=st.integers(0, 30),
        floor=st.integers(0, 5),
        maximum=st.integers(1, 30),
        cooldown=st.sampled_from([timedelta(), COOLDOWN]),
        signals=st.none() | demand,
        low_demand=st.none()
        | st.builds(
            LowDemand,
            st.sampled_from([NOW - COOLDOWN, NOW - COOLDOWN / 2]),
            st.integers(0, 30),
        ),
    ),
    unique_by=lambda state: state.name,
    max_size=5,
)


@given(states, st.none() | st.integers(0, 60))
def test_decision_is_within_load_and_maximum(pools: list[PoolState], slots: int | None) -> None:
    decisions = decide(pools, slots, NOW)

    for state in pools:
        decision = decisions[state.name]
        if state.signals is None:
            assert decision.replicas == state.replicas
        else:
            assert decision.replicas <= state.maximum
            assert decision.replicas >= min(desired.load(state.signals), state.maximum)


@given(states, st.integers(0, 60))
def test_one_pass_never_gives_out_more_than_the_slots_except_for_load(
    pools: list[PoolState], slots: int
) -> None:
    decisions = decide(pools, slots, NOW)

    known = [state for state in pools if state.signals is not None]
    unknown = sum(state.replicas for state in pools if state.signals is None)
    load = sum(
        min(desired.load(each.signals), each.maximum) for each in known if each.signals is not None
    )
    given_out = sum(decisions[state.name].replicas for state in known)
    assert given_out <= max(load, slots - unknown)


@given(states, st.integers(0, 60))
def test_applied_decisions_are_repeated_by_the_next_pass(
    pools: list[PoolState], slots: int
) -> None:
    """Without a change of demand the pools of a fleet do not take slots from each other in turns."""
    pools = [dataclasses.replace(state, cooldown=COOLDOWN, low_demand=None) for state in pools]
    first = decide(pools, slots, NOW)
    applied = [
        dataclasses.replace(
            state,
            replicas=first[state.name].replicas,
            low_demand=first[state.name].low_demand,
        )
        for state in pools
    ]

    second = decide(applied, slots, NOW + COOLDOWN / 2)

    assert {name: each.replicas for name, each in second.items()} == {
        name: each.replicas for name, each in first.items()
    }


@given(states, st.none() | st.integers(0, 60))
def test_order_of_pools_does_not_matter(pools: list[PoolState], slots: int | None) -> None:
    assert decide(pools[::-1], slots, NOW) == decide(pools, slots, NOW)
