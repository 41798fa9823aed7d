from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bramley.api.names import events
from bramley.runners import pod_plan, pod_timeouts
from bramley.runners.pod_timeouts import Why
from bramley.runners.pods import RunnerPod
from tests.unit.runners.builders import (
    NEW,
    NOW,
    OLD,
    a_booting_pod,
    a_pod,
    an_ended_pod,
    seconds,
)
from tests.unit.runners.pod_states import a_state, deleted, names, ticket

IDLE = a_pod("idle")


@pytest.mark.parametrize(("room", "expected"), [(0, 0), (1, 1), (2, 2), (9, 4), (-3, 0)], ids=str)
def test_only_as_many_pods_are_marked_as_there_is_room(room: int, expected: int) -> None:
    plan = pod_plan.plan(a_state([a_pod(f"p{n}") for n in range(4)], room=room))

    assert len(plan.mark) == len(plan.tickets) == expected
    assert plan.delete == ()


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("x", is_claimed=True),
        a_pod("x", NEW),
        a_pod("x", deleted_at=NOW),
        an_ended_pod("x"),
        a_pod("x", node="not-staged"),
    ],
)
def test_pod_that_must_not_be_drained(pod: RunnerPod) -> None:
    plan = pod_plan.plan(a_state([pod], room=9, replicas=0, drainable_hosts={f"host-{pod.name}"}))

    assert plan.mark == ()
    assert plan.tickets == ()


def test_pod_that_is_created_uses_the_room_of_a_mark() -> None:
    plan = pod_plan.plan(a_state([an_ended_pod(), IDLE]))

    assert (len(plan.create), len(plan.mark)) == (1, 0)


def test_pod_with_a_ticket_is_marked_again_and_counts_once() -> None:
    plan = pod_plan.plan(a_state([a_pod("a"), a_pod("b")], tickets=[ticket("a")], room=0))

    assert names(plan.mark) == ["a"]
    assert plan.tickets == (ticket("a"),)


def test_ticket_of_a_pod_that_was_claimed_is_given_back() -> None:
    pods = [a_pod("a", is_marked=True, is_claimed=True), IDLE]

    assert pod_plan.plan(a_state(pods, tickets=[ticket("a")], room=0)).tickets == ()


def test_mark_of_a_pod_that_is_no_longer_stale_is_removed() -> None:
    plan = pod_plan.plan(a_state([a_pod("a", NEW, is_marked=True)]))

    assert names(plan.unmark) == ["a"]


@pytest.mark.parametrize(
    ("pod", "changes", "expected"),
    [
        pytest.param(a_pod("a", is_marked=True), {}, [], id="dispatch sends it away"),
        pytest.param(
            a_pod("a", is_marked=True),
            {"deletes_drained": True},
            [("a", Why.DRAINED)],
            id="no dispatch",
        ),
        pytest.param(a_pod("a"), {"deletes_drained": True}, [], id="marked before it is deleted"),
        pytest.param(
            a_booting_pod("a", OLD, is_marked=True),
            {},
            [("a", Why.DRAINED)],
            id="does not poll yet",
        ),
        pytest.param(
            a_pod("a", is_marked=True, is_ready=False),
            {"tickets": [ticket("a", NOW - seconds(300))]},
            [("a", Why.DRAINED)],
            id="did not leave",
        ),
        pytest.param(
            a_pod("a", is_marked=True, is_ready=False),
            {"tickets": [ticket("a", NOW - seconds(299))]},
            [],
            id="has time to leave",
        ),
        pytest.param(
            a_pod("a", is_marked=True),
            {"tickets": [ticket("a", NOW - seconds(5 * 3600))]},
            [],
            id="is Ready, and may have a job whose owner was not stamped",
        ),
        pytest.param(
            a_pod("a", is_marked=True),
            {"tickets": [ticket("a", NOW - seconds(300))], "silent_pods": frozenset({"a"})},
            [("a", Why.DRAINED)],
            id="is Ready and has never polled",
        ),
        pytest.param(
            a_pod("a", is_marked=True),
            {"tickets": [ticket("a", NOW - seconds(6 * 3600))]},
            [("a", Why.DRAINED)],
            id="did not leave for longer than a job takes",
        ),
        pytest.param(
            a_pod("a", is_marked=True, is_claimed=True),
            {"deletes_drained": True, "tickets": [ticket("a", NOW - seconds(900))]},
            [],
            id="got a job",
        ),
    ],
)
def test_drained_pod_is_deleted_if_dispatch_cannot_send_it_away(
    pod: RunnerPod, changes: dict[str, Any], expected: list[tuple[str, Why]]
) -> None:
    assert deleted(pod_plan.plan(a_state([pod], **changes))) == expected


STUCK = {
    "unscheduled": (a_booting_pod("a", node="", waiting=""), 300, Why.UNSCHEDULABLE),
    "boots": (a_booting_pod("a"), 900, Why.START_TIMED_OUT),
    "fails": (a_booting_pod("a", waiting=events.CREATE_FAILED), 300, Why.START_TIMED_OUT),
    "silent": (a_pod("a", NEW, is_ready=False), 300, Why.NOT_RESPONDING),
}


@pytest.mark.parametrize("name", STUCK)
def test_stuck_pod_is_replaced_with_backoff(name: str) -> None:
    pod, timeout, why = STUCK[name]
    early, late = NOW - seconds(timeout - 1), NOW - seconds(timeout)

    before = pod_plan.plan(a_state([pod], waiting_since={"a": early}))
    after = pod_plan.plan(a_state([pod], waiting_since={"a": late}))

    assert (before.delete, before.again_at) == ((), NOW + seconds(1))
    assert deleted(after) == [("a", why)]
    assert after.slots[0].failures == 1
    assert after.slots[0].retry_at == NOW + seconds(10)


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("a"),
        a_pod("a", is_claimed=True, is_ready=False),
        a_booting_pod("a", waiting=events.PULLING_IMAGE),
        a_booting_pod("a", waiting="AwaitingSlot"),
    ],
)
def test_pod_that_waits_for_a_reason_is_not_replaced(pod: RunnerPod) -> None:
    waiting = {"a": NOW - seconds(90_000)}

    assert pod_plan.plan(a_state([pod], waiting_since=waiting, room=0)).delete == ()


def test_canary_is_judged_instead_of_being_replaced() -> None:
    waiting = {"a": NOW - seconds(5000)}
    canary = a_booting_pod("a", waiting=events.CREATE_FAILED)
    lost = replace(canary, node="")

    assert pod_plan.plan(a_state([canary], waiting_since=waiting, tried_image=NEW)).delete == ()
    assert deleted(pod_plan.plan(a_state([lost], waiting_since=waiting, tried_image=NEW))) == [
        ("a", Why.UNSCHEDULABLE)
    ]


def test_pods_of_hosts_that_many_others_have_lost_too_are_not_replaced() -> None:
    pods = [a_pod("a", is_ready=False), a_pod("b", is_ready=False)]
    waiting = dict.fromkeys(("a", "b"), NOW - seconds(5000))

    plan = pod_plan.plan(
        a_state(pods, waiting_since=waiting, unreachable_hosts=frozenset({"host-a"}), room=0)
    )

    assert deleted(plan) == [("b", Why.NOT_RESPONDING)]


def test_idle_pods_on_cordoned_hosts_are_retired_and_busy_ones_stay() -> None:
    pods = [a_pod("idle", NEW), a_pod("busy", NEW, is_claimed=True), a_pod("other", NEW)]

    plan = pod_plan.plan(a_state(pods, cordoned_hosts=frozenset({"host-idle", "host-busy"})))

    assert deleted(plan) == [("idle", Why.NODE_DRAINED)]


def test_scale_down_takes_pods_that_have_not_booted_then_stale_then_the_youngest() -> None:
    pods = [
        a_pod("old-new", NEW, created_at=NOW - seconds(9000)),
        a_pod("young-new", NEW),
        a_pod("stale"),
        a_pod("busy", is_claimed=True),
        a_booting_pod("boots"),
    ]

    order = [
        names(each.pod for each in pod_plan.plan(a_state(pods, replicas=count, room=0)).delete)
        for count in (5, 4, 3, 2, 1, 0)
    ]

    victims = ["boots", "stale", "young-new", "old-new"]
    assert order == [[], victims[:1], victims[:2], victims[:3], victims, victims]
    assert all(
        each.why is Why.SCALED_DOWN for each in pod_plan.plan(a_state(pods, replicas=0)).delete
    )


def test_pod_that_is_deleted_for_another_reason_is_not_scaled_down_twice() -> None:
    pods = [a_pod("a", NEW), a_pod("b", NEW)]

    plan = pod_plan.plan(a_state(pods, replicas=1, cordoned_hosts=frozenset({"host-a"})))

    assert deleted(plan) == [("a", Why.NODE_DRAINED)]


def test_waiting_starts_again_when_something_happens() -> None:
    pod = a_booting_pod("a", waiting=events.PULLING_IMAGE)
    first = pod_timeouts.waiting_since({}, [pod], NOW)
    same = pod_timeouts.waiting_since(first, [pod], NOW + seconds(5))
    other = pod_timeouts.waiting_since(same, [replace(pod, waiting="BootingVM")], NOW + seconds(9))

    assert same == first
    assert other["a"][1] == NOW + seconds(9)
    assert pod_timeouts.waiting_since(other, [a_pod("a")], NOW) == {}
