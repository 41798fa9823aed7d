from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bramley.api.runner_pool_status import PendingPod, Slot
from bramley.runners import pod_plan
from bramley.runners.pod_plan import PlannedPod
from bramley.runners.pods import RunnerPod, pod_name
from bramley.runners.roll import Room
from tests.unit.runners.builders import (
    NEW,
    NOW,
    OLD,
    a_booting_pod,
    a_failed_pod,
    a_pod,
    a_pool,
    an_ended_pod,
    in_slots,
    seconds,
)
from tests.unit.runners.pod_states import a_state, created

IDLE = a_pod("idle")


@pytest.mark.parametrize(
    ("pods", "changes", "expected"),
    [
        pytest.param(
            [], {"replicas": 2}, [(0, 1, "new", "ScaleUp"), (1, 1, "new", "ScaleUp")], id="new pool"
        ),
        pytest.param(
            [],
            {"replicas": 5, "free": 2},
            [(0, 1, "new", "ScaleUp"), (1, 1, "new", "ScaleUp")],
            id="only for free places",
        ),
        pytest.param(
            [an_ended_pod(), IDLE],
            {},
            [(0, 2, "new", "Replacement")],
            id="stale Pod ends, and there is room",
        ),
        pytest.param(
            [an_ended_pod(), IDLE],
            {"room": 0},
            [(0, 2, "old", "Turnover")],
            id="stale Pod ends, and there is no room",
        ),
        pytest.param(
            [an_ended_pod(), IDLE],
            {"target_slots": 0},
            [(0, 2, "old", "Turnover")],
            id="stale Pod ends, and no staged host has a place",
        ),
        pytest.param(
            [an_ended_pod(), IDLE],
            {"target_slots": None},
            [(0, 2, "new", "Replacement")],
            id="stale Pod ends, without staging",
        ),
        pytest.param(
            [an_ended_pod(), an_ended_pod("b"), IDLE],
            {},
            [(0, 2, "new", "Replacement"), (1, 2, "old", "Turnover")],
            id="two end, and there is room for one",
        ),
        pytest.param([IDLE], {"replicas": 2}, [(1, 1, "new", "ScaleUp")], id="scale-up with room"),
        pytest.param(
            [IDLE],
            {"replicas": 2, "room": 0},
            [(1, 1, "old", "ScaleUp")],
            id="scale-up without room",
        ),
        pytest.param(
            [an_ended_pod(image=NEW), IDLE],
            {"room": 0, "target_slots": 0},
            [(0, 2, "new", "Turnover")],
            id="target Pod ends",
        ),
        pytest.param([a_failed_pod(), IDLE], {"room": 0}, [], id="failed Pod backs off"),
        pytest.param(
            [a_booting_pod(deleted_at=NOW), IDLE],
            {"room": 0},
            [(0, 2, "old", "Turnover")],
            id="target Pod deleted before it was Ready needs room",
        ),
        pytest.param(
            [a_booting_pod(deleted_at=NOW), IDLE],
            {},
            [(0, 2, "new", "Replacement")],
            id="it keeps its place in the roll",
        ),
        pytest.param(
            [a_pod("t", NEW, deleted_at=NOW), IDLE],
            {"room": 0},
            [(0, 2, "new", "Turnover")],
            id="Ready target Pod is deleted",
        ),
        pytest.param(
            [an_ended_pod(), IDLE],
            {"last_good": "", "room": 0},
            [(0, 2, "new", "Replacement")],
            id="no last good image",
        ),
        pytest.param(
            [an_ended_pod(), a_pod("busy", is_claimed=True)],
            {"room": 0},
            [(0, 2, "old", "Turnover")],
            id="all stale Pods are busy",
        ),
        pytest.param(
            [an_ended_pod(), a_pod("n", NEW)],
            {"room": 0},
            [(0, 2, "old", "Turnover")],
            id="last stale Pod ends, and there is no room",
        ),
        pytest.param(
            [an_ended_pod(), a_booting_pod()],
            {"room": -1},
            [(0, 2, "new", "Replacement")],
            id="a stale Pod would begin a roll beyond the cap",
        ),
        pytest.param(
            [a_pod("n", NEW)],
            {"replicas": 3, "room": 0},
            [(1, 1, "new", "ScaleUp"), (2, 1, "new", "ScaleUp")],
            id="scale-up outside a roll is not limited",
        ),
        pytest.param(
            [a_pod("n", NEW), a_pod("o")],
            {"target": OLD, "last_good": OLD, "replicas": 3, "room": 0},
            [],
            id="back to the last good image, no room",
        ),
        pytest.param(
            [a_pod("n", NEW), a_pod("o")],
            {"target": OLD, "last_good": OLD, "replicas": 4, "target_slots": 0},
            [(2, 1, "old", "ScaleUp")],
            id="back to the last good image, cold",
        ),
        pytest.param(
            [a_pod("n", NEW), a_pod("o")],
            {
                "target": OLD,
                "last_good": OLD,
                "replicas": 4,
                "target_slots": 0,
                "requires_golden": True,
            },
            [],
            id="back to the last good image, staging required",
        ),
        pytest.param(
            [a_pod("n", NEW, is_claimed=True), a_pod("o")],
            {"target": OLD, "last_good": OLD, "replicas": 5, "room": 1},
            [(slot, 1, "old", "ScaleUp") for slot in (2, 3, 4)],
            id="back to the last good image, and the other Pods have a job",
        ),
    ],
)
def test_pods_to_create(
    pods: list[RunnerPod], changes: dict[str, Any], expected: list[tuple[int, int, str, str]]
) -> None:
    assert created(pod_plan.plan(a_state(pods, **changes))) == expected


def test_pods_that_end_in_a_paused_pool_are_replaced_by_the_last_good_image() -> None:
    paused = Room(pool=1, fleet=1, phase=0)
    state = a_state([an_ended_pod("n", NEW), a_pod("m", NEW)], target=OLD, last_good=OLD)

    plan = pod_plan.plan(replace(state, room=paused))

    assert created(plan) == [(0, 2, "old", "Replacement")]
    assert plan.mark == ()


def test_pod_that_a_smaller_cap_allows_no_more_is_not_created_although_it_was_announced() -> None:
    announced = Slot(
        counter=1, active=True, pending=PendingPod(image=NEW, created_for="Replacement")
    )
    pods, slots = in_slots([IDLE, a_booting_pod()])

    def planned(room: int) -> pod_plan.PodPlan:
        return pod_plan.plan(a_state(pods, slots=[*slots, announced], replicas=3, room=room))

    assert [each.slot for each in planned(0).create] == [2]
    assert planned(-1).create == ()
    assert planned(-1).slots[2] == announced


def test_affinity_is_mandatory_during_a_roll_with_required_staging() -> None:
    rolling = pod_plan.plan(a_state([an_ended_pod(), IDLE], requires_golden=True))
    rolled = pod_plan.plan(a_state([a_pod("n", NEW)], replicas=2, requires_golden=True))

    assert [each.pending.required_golden for each in rolling.create] == [True]
    assert [each.pending.required_golden for each in rolled.create] == [False]


def test_pod_that_was_announced_and_never_seen_is_created_again_under_the_same_name() -> None:
    pending = PendingPod(image=OLD, created_for="ScaleUp")
    slots = [Slot(counter=7, active=True, pending=pending)]

    plan = pod_plan.plan(a_state([], slots=slots, replicas=1, room=0))

    assert plan.create == (PlannedPod(0, 7, pending),)
    assert plan.slots == tuple(slots)


def test_slot_of_a_pod_that_others_deleted_is_filled_with_a_new_name() -> None:
    plan = pod_plan.plan(a_state([], slots=[Slot(counter=7, active=True)], replicas=1))

    assert created(plan) == [(0, 8, "new", "ScaleUp")]


def test_terminating_pod_blocks_no_slot() -> None:
    plan = pod_plan.plan(a_state([a_pod("t", deleted_at=NOW), IDLE]))

    assert [(each.slot, each.counter) for each in plan.create] == [(0, 2)]
    assert plan.slots[0].active


def test_no_name_is_used_twice_over_the_life_of_a_slot() -> None:
    pool = a_pool()
    used = [pod_name(pool, slot, counter) for slot in range(20) for counter in range(1, 50)]

    assert len(set(used)) == len(used)
    assert all(name.removeprefix("macos-runner-").isalnum() and len(name) == 21 for name in used)
    assert pod_name(a_pool("other"), 0, 1) not in used


def test_missing_counts_pods_that_have_no_place() -> None:
    assert pod_plan.plan(a_state([], replicas=5, free=2)).missing == 3


@pytest.mark.parametrize(
    ("failures", "delay"), [(0, 10), (1, 20), (2, 40), (4, 160), (5, 300), (60, 300)]
)
def test_slot_whose_pod_failed_waits_longer_each_time(failures: int, delay: int) -> None:
    failed = replace(a_failed_pod(), slot=0, counter=3)
    slots = [Slot(counter=3, active=True, failures=failures)]

    plan = pod_plan.plan(a_state([failed], slots=slots))

    assert plan.slots == (Slot(counter=3, failures=failures + 1, retry_at=NOW + seconds(delay)),)
    assert plan.create == ()
    assert plan.again_at == NOW + seconds(delay)
    assert plan.failed == (failed,)


def test_slot_is_filled_when_its_backoff_is_over() -> None:
    slots = [Slot(counter=3, failures=2, retry_at=NOW)]

    plan = pod_plan.plan(a_state([], slots=slots, replicas=1))

    assert created(plan) == [(0, 4, "new", "ScaleUp")]
    assert plan.slots[0].failures == 2


def test_slots_that_are_free_since_a_scale_down_do_not_shorten_the_backoff() -> None:
    slots = [Slot(counter=3, failures=1, retry_at=NOW + seconds(60)), Slot(counter=1), Slot()]

    assert pod_plan.plan(a_state([], slots=slots, replicas=1)).create == ()
    assert created(pod_plan.plan(a_state([], slots=slots, replicas=2))) == [
        (1, 2, "new", "ScaleUp")
    ]


def test_slot_that_backs_off_does_not_delay_the_successor_of_a_finished_pod() -> None:
    slots = [Slot(counter=3, failures=1, retry_at=NOW + seconds(60)), Slot(counter=1, active=True)]
    ended = replace(an_ended_pod(image=NEW), slot=1, counter=1)

    plan = pod_plan.plan(a_state([ended], slots=slots, replicas=1))

    assert created(plan) == [(1, 2, "new", "Turnover")]


def test_pod_that_is_ready_ends_the_backoff() -> None:
    pod = replace(a_pod("a", NEW), slot=0, counter=3)
    slots = [Slot(counter=3, active=True, failures=5)]

    expected = (Slot(counter=3, active=True, boot_seconds=30),)
    assert pod_plan.plan(a_state([pod], slots=slots)).slots == expected
