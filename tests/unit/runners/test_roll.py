from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.api.runner_pool_status import CreatedFor, PendingPod, Slot
from bramley.runners import roll
from bramley.runners.pods import RunnerPod
from bramley.runners.roll import RollState
from tests.unit.runners.builders import (
    NEW,
    NOW,
    OLD,
    a_booting_pod,
    a_failed_pod,
    a_pod,
    an_ended_pod,
    image,
    seconds,
)

STALE = a_pod("stale")


def a_state(*pods: RunnerPod, **changes: Any) -> RollState:
    """Return the roll of a pool of 40 with a cap of 2, with one stale Pod that is idle."""
    defaults: dict[str, Any] = {"percent": 5, "replicas": 40, "target": NEW}
    return RollState(pods=(STALE, *pods), **{**defaults, **changes})


def announcing(image: str, created_for: CreatedFor) -> Slot:
    return Slot(counter=1, active=True, pending=PendingPod(image=image, created_for=created_for))


@pytest.mark.parametrize(
    ("replicas", "percent", "expected"),
    [
        (9, 5, 1),
        (20, 5, 1),
        (21, 5, 1),
        (40, 5, 2),
        (100, 5, 5),
        (40, 10, 4),
        (10, 5, 1),
        (0, 5, 1),
        (-3, 5, 1),
        (9, 0, 1),
        (5, 40, 2),
        (39, 5, 1),
        (59, 5, 2),
        (7, 100, 7),
    ],
)
def test_cap_is_the_percentage_rounded_down_and_at_least_one(
    replicas: int, percent: int, expected: int
) -> None:
    assert roll.cap(percent, replicas) == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(a_state(), 0, id="a stale Pod that is neither marked nor announced"),
        pytest.param(a_state(a_pod("a", is_marked=True)), 1, id="marked"),
        pytest.param(a_state(a_pod("a", is_marked=True, is_claimed=True)), 0, id="marked, claimed"),
        pytest.param(a_state(an_ended_pod("a", is_marked=True)), 0, id="marked and ended"),
        pytest.param(a_state(a_pod("a", is_marked=True, deleted_at=NOW)), 0, id="marked, deleted"),
        pytest.param(a_state(a_pod("a"), draining=frozenset({"a"})), 1, id="ticket, not marked"),
        pytest.param(
            a_state(a_pod("a", is_marked=True), draining=frozenset({"a"})), 1, id="both count once"
        ),
        pytest.param(
            a_state(a_pod("a", is_claimed=True), draining=frozenset({"a"})), 0, id="ticket, claimed"
        ),
        pytest.param(a_state(draining=frozenset({"gone"})), 0, id="ticket of a Pod that is gone"),
        pytest.param(a_state(a_booting_pod()), 1, id="boots for a stale Pod"),
        pytest.param(a_state(a_booting_pod(created_for="ScaleUp")), 1, id="boots for scale-up"),
        pytest.param(
            a_state(a_booting_pod(created_for="Turnover")), 0, id="boots for its own kind"
        ),
        pytest.param(a_state(a_pod("a", NEW)), 0, id="ready target Pod"),
        pytest.param(a_state(a_pod("a", NEW, is_ready=False)), 1, id="was Ready and is not"),
        pytest.param(a_state(a_booting_pod(is_claimed=True)), 0, id="claimed before it was Ready"),
        pytest.param(a_state(a_booting_pod(deleted_at=NOW)), 0, id="boots and is being deleted"),
        pytest.param(a_state(a_failed_pod()), 0, id="failed"),
        pytest.param(a_state(a_booting_pod(image=OLD)), 0, id="boots with the old image"),
        pytest.param(a_state(slots=[announcing(NEW, "Replacement")]), 1, id="announced"),
        pytest.param(a_state(slots=[announcing(NEW, "Turnover")]), 0, id="announced for turnover"),
        pytest.param(a_state(slots=[announcing(OLD, "Turnover")]), 0, id="announced, old image"),
        pytest.param(
            a_state(a_booting_pod(slot=0, counter=1), slots=[announcing(NEW, "Replacement")]),
            1,
            id="announced and observed counts once",
        ),
    ],
)
def test_in_flight(state: RollState, expected: int) -> None:
    assert state.in_flight == expected


@pytest.mark.parametrize(
    "pods",
    [
        (a_booting_pod(),),
        (a_booting_pod(), a_pod("busy", is_claimed=True)),
        (a_booting_pod(), a_pod("busy", is_claimed=True, is_marked=True)),
        (a_booting_pod(), an_ended_pod("old")),
        (a_booting_pod(), a_pod("old", deleted_at=NOW)),
    ],
)
def test_nothing_is_in_flight_while_no_idle_stale_pod_is_alive(pods: tuple[RunnerPod, ...]) -> None:
    state = RollState(percent=5, replicas=40, target=NEW, pods=pods)

    assert not state.is_in_progress
    assert state.in_flight == 0


def test_stale_pod_that_is_about_to_be_created_keeps_the_roll_in_progress() -> None:
    state = RollState(5, 40, NEW, pods=(a_booting_pod(),), slots=[announcing(OLD, "Turnover")])

    assert state.is_in_progress
    assert state.in_flight == 1


def test_booting_pods_use_room_while_all_stale_pods_are_busy() -> None:
    pods = (a_booting_pod(), a_pod("busy", is_claimed=True))
    state = RollState(percent=5, replicas=40, target=NEW, pods=pods)

    assert roll.room(state, (), phase=roll.UNLIMITED).count == 1


def test_pod_of_the_same_digest_under_another_tag_is_not_stale() -> None:
    digest = "@sha256:" + "a" * 64

    assert not roll.is_stale(a_pod(image=f"ghcr.io/a:1{digest}"), f"ghcr.io/a:2{digest}")
    assert roll.is_stale(a_pod(image="ghcr.io/a:1"), "ghcr.io/a:2")
    assert not roll.is_stale(a_pod(image=""), "ghcr.io/a:2")


def test_five_pools_of_nine_hosts_roll_one_pod_together() -> None:
    pools = [RollState(5, replicas, NEW, pods=(STALE,)) for replicas in (2, 2, 2, 2, 1)]
    changing = RollState(5, 2, NEW, pods=(STALE, a_booting_pod()))

    assert roll.fleet_cap(pools) == 1
    assert roll.fleet_cap([RollState(5, 9, NEW)] * 5) == 2
    assert roll.room(pools[0], pools[1:], phase=roll.UNLIMITED).count == 1
    assert roll.room(pools[0], [changing, *pools[2:]], phase=roll.UNLIMITED).count == 0


def test_lowest_percentage_of_the_fleet_applies_to_all_replicas() -> None:
    states = [RollState(10, 60, NEW), RollState(3, 40, NEW)]

    assert roll.fleet_cap(states) == 3
    assert roll.fleet_cap([]) == 1


def test_new_pods_of_a_pool_that_has_rolled_do_not_use_the_fleet_cap() -> None:
    scaling_up = RollState(5, 4, NEW, pods=(a_booting_pod(created_for="ScaleUp"),))

    assert roll.room(RollState(5, 4, NEW, pods=(STALE,)), [scaling_up], phase=9).count == 1


def test_no_cap_applies_without_a_last_good_image() -> None:
    state = a_state(*(a_booting_pod(f"b{n}") for n in range(9)))

    assert roll.room(state, (), phase=roll.UNLIMITED, has_last_good=False).count > 40
    assert roll.room(state, (), phase=0, has_last_good=False).count == 0


def test_phase_limits_the_room() -> None:
    assert roll.room(a_state(replicas=100), (), phase=1).count == 1
    assert roll.room(a_state(replicas=100), (), phase=-2).count == 0


def test_pods_that_have_not_booted_are_drained_first_then_one_per_host_then_the_oldest() -> None:
    young, old = a_pod("young", node="h1"), a_pod("old", node="h1", created_at=NOW - seconds(9000))
    second = a_pod("second", node="h2")
    pending = a_booting_pod("pending", OLD, node="h1")

    chosen = roll.next_to_drain(a_state(), [young, old, second, pending], count=3)

    assert [pod.name for pod in chosen] == ["pending", "second", "old"]


def test_host_with_a_pod_in_flight_comes_last() -> None:
    state = a_state(a_booting_pod(node="h1"))
    first = a_pod("a", node="h1", created_at=NOW - seconds(9000))

    chosen = roll.next_to_drain(state, [first, a_pod("b", node="h2")], count=1)

    assert [pod.name for pod in chosen] == ["b"]


@given(percent=st.integers(1, 100), replicas=st.integers(0, 500))
def test_cap_never_exceeds_the_percentage_by_a_whole_pod(percent: int, replicas: int) -> None:
    cap = roll.cap(percent, replicas)

    assert cap == 1 or cap * 100 <= percent * replicas < (cap + 1) * 100


@given(st.permutations([a_pod(str(n), is_marked=n % 2 == 0, image=image(n)) for n in range(1, 5)]))
def test_in_flight_does_not_depend_on_the_order_of_pods(pods: list[RunnerPod]) -> None:
    assert a_state(*pods).in_flight == 1


def test_trials_count_pods_of_the_target_with_and_without_a_job_and_drained_ones() -> None:
    pods = (a_pod("a", NEW, is_claimed=True), a_booting_pod(), a_pod("c", is_marked=True))
    state = replace(a_state(*pods), slots=[announcing(NEW, "Replacement")])

    assert state.trials == 4
