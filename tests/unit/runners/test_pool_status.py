from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bramley.api.meta import Condition
from bramley.api.names import events
from bramley.api.runner_pool import Staging
from bramley.api.runner_pool_status import PendingPod, RunnerPoolStatus, Slot
from bramley.runners import pool_status
from tests.unit.runners.builders import (
    NEW,
    NEWER,
    NOW,
    OLD,
    a_booting_pod,
    a_failed_pod,
    a_host,
    a_pod,
    a_pool,
    in_slots,
    reporting,
    seconds,
)
from tests.unit.runners.pool_statuses import (
    HOSTS,
    PODS,
    a_rolling_pool,
    condition,
    decided,
    status_of,
)


def test_impossible_image_names_the_hosts_and_the_answer_of_the_registry() -> None:
    hosts = [
        reporting(replace(host, request=f'{{"images":["{NEW}","{OLD}"]}}'), NEW, "NotFound: 404")
        for host in HOSTS
    ]

    assert condition("StagingBlocked", a_rolling_pool(), PODS, hosts) == (
        "True",
        "PullFailed",
        f"h0, h1 could not pull {NEW}; h0: NotFound: 404",
    )


def test_impossible_image_without_staging_shows_the_failing_pod() -> None:
    pod = a_booting_pod("c", waiting=events.CREATE_FAILED, message="404 Not Found", node="h0")
    pool = a_rolling_pool(staging=Staging(mode="Disabled"))

    assert condition("PodsFailing", pool, [pod, PODS[1]], HOSTS) == (
        "True",
        events.CREATE_FAILED,
        "Pod c on h0: 404 Not Found",
    )


def test_fleet_without_hosts_names_the_label() -> None:
    assert condition("CapacityShort", a_pool(replicas=2), [], []) == (
        "True",
        "NoHosts",
        (
            "fleet demo has no hosts: no Node has the labels kubernetes.io/os=darwin, "
            "tuist.dev/runtime=tart, tuist.dev/fleet=demo"
        ),
    )


def test_replicas_beyond_the_slots_name_both_numbers_and_hosts_that_are_not_usable() -> None:
    hosts = [*HOSTS, a_host("h2", unusable="disk_pressure")]

    assert condition("CapacityShort", a_pool(replicas=5), PODS, hosts) == (
        "True",
        "SlotsTaken",
        (
            "5 runners are desired, and the pool's share of the 2 slots of fleet demo is 2; "
            "not usable: h2 (disk_pressure)"
        ),
    )


def test_condition_that_was_never_true_is_not_shown_and_one_that_was_becomes_false() -> None:
    short = status_of(a_pool(replicas=5), PODS, HOSTS)
    enough = a_pool(replicas=2, conditions=short.conditions)

    assert condition("CapacityShort", a_pool(replicas=2), PODS, HOSTS) == ("", "", "")
    assert condition("CapacityShort", enough, PODS, HOSTS)[:2] == ("False", "EnoughSlots")


def test_full_disk_blocks_staging_only_if_it_is_required() -> None:
    hosts = [reporting(replace(HOSTS[0], request=f'{{"images":["{NEW}","{OLD}"]}}'), NEW), HOSTS[1]]
    required = a_rolling_pool(staging=Staging(mode="Required"))

    assert condition("StagingBlocked", a_rolling_pool(), PODS, hosts) == ("", "", "")
    assert condition("StagingBlocked", required, PODS, hosts) == (
        "True",
        "NoRoom",
        f"no room for {NEW} on h0; free disk space there",
    )


def test_image_that_changes_twice_during_a_roll_is_shown_as_a_new_roll() -> None:
    pool = msgspec.structs.replace(
        a_rolling_pool(), spec=msgspec.structs.replace(a_rolling_pool().spec, image=NEWER)
    )
    result, _ = decided(pool, PODS, HOSTS)

    status = status_of(pool, PODS, HOSTS)

    assert (status.target_image, status.last_good_image) == (NEWER, OLD)
    assert condition("RolledOut", pool, PODS, HOSTS)[:2] == ("False", "Staging")
    assert [(each.reason, each.message) for each in pool_status.pool_events(pool, result)] == [
        (events.ROLL_STARTED, f"Rolling from {NEW} to {NEWER}")
    ]


def test_reason_of_a_rejection_stays_in_the_condition() -> None:
    failed, slots = in_slots([a_failed_pod("c", node="h0")])
    pool = a_rolling_pool(target_failures=1, slots=slots)

    status = status_of(pool, [*failed, PODS[1]], HOSTS)
    later = msgspec.structs.replace(pool, status=status)

    text = (
        f"Image {NEW} is rejected: 2 canaries ended without a job; Pod c on h0 ended with code 1 "
        f"(Error). The pool stays on {OLD} until spec.image changes or the image is promoted"
    )
    expected = ("False", "CanaryExited", text)
    assert condition("RolledOut", pool, [*failed, PODS[1]], HOSTS) == expected
    assert condition("RolledOut", later, [PODS[1]], HOSTS) == expected
    assert (status.roll_phase, status.rejected_image) == ("Rejected", NEW)


def test_write_that_failed_is_named() -> None:
    failed = ("DeleteFailed", "Pod macos-1: no permission")

    result = condition("PodsFailing", a_pool(replicas=2), PODS, HOSTS, failed_write=failed)

    assert result == ("True", *failed)


def test_pods_that_end_again_and_again_are_shown() -> None:
    slots = [Slot(counter=9, failures=2, retry_at=NOW + seconds(60))]

    assert condition("PodsFailing", a_pool(replicas=1, slots=slots), [], HOSTS)[1] == "PodsEnd"


def test_pools_with_the_same_label_are_named() -> None:
    result = condition("LabelConflict", a_pool(replicas=2), PODS, HOSTS, label_conflicts=("other",))

    assert result[:2] == ("True", "SameLabel")
    assert "other" in result[2]


def test_counts_of_the_status() -> None:
    pods = [*PODS, a_pod("n", NEW, is_claimed=True, node="h2"), a_booting_pod("x", node="h3")]
    hosts = [*HOSTS, a_host("h2", NEW), a_host("h3", NEW)]

    status = status_of(a_rolling_pool(replicas=4, canary_passed_image=NEW), pods, hosts)

    assert (status.ready_replicas, status.busy_replicas, status.stale_replicas) == (3, 1, 2)
    assert (status.rolling_replicas, status.staged_hosts, status.observed_replicas) == (1, 2, 4)
    assert (status.target_image, status.roll_phase) == (NEW, "Rolling")


def test_available_means_all_but_as_many_runners_as_may_roll_are_ready() -> None:
    one = [PODS[0], a_booting_pod("x", OLD, node="h1")]

    assert condition("Available", a_pool(replicas=2), one, HOSTS)[0] == "True"
    assert condition("Available", a_pool(replicas=2), one[1:], HOSTS)[0] == "False"


def test_status_that_has_not_changed_has_an_empty_patch() -> None:
    pool = a_pool(replicas=2)
    first = status_of(pool, PODS, HOSTS)
    second = status_of(msgspec.structs.replace(pool, status=first), PODS, HOSTS)

    assert pool_status.patch(first, second) == {}
    assert "targetImage" in pool_status.patch(RunnerPoolStatus(), first)


def test_field_that_is_gone_becomes_null() -> None:
    old = RunnerPoolStatus(observed_generation=1, roll_started_at=NOW)

    new = RunnerPoolStatus(observed_generation=1)

    assert pool_status.patch(old, new) == {"rollStartedAt": None}


def rolling(message: str, *, reason: str = "Canary") -> dict[str, Any]:
    """Return the fields of a status with one condition."""
    shown = Condition(type="RolledOut", status="False", reason=reason, message=message)
    return {"conditions": [shown]}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({}, {"ready_replicas": 3}, False, id="a count"),
        pytest.param({}, {"slots": [Slot(counter=1, active=True)]}, True, id="a filled slot"),
        pytest.param(
            {"slots": [Slot(counter=1, active=True)]},
            {"slots": [Slot(counter=1)]},
            True,
            id="freed",
        ),
        pytest.param(
            {
                "slots": [
                    Slot(
                        counter=1,
                        active=True,
                        pending=PendingPod(image=OLD, created_for="ScaleUp"),
                    )
                ]
            },
            {"slots": [Slot(counter=1, active=True)]},
            False,
            id="an announced Pod was seen",
        ),
        pytest.param({}, {"target_image": NEW}, True, id="target"),
        pytest.param(rolling("0 of 1"), rolling("1 of 1"), False, id="message of a condition"),
        pytest.param(rolling(""), rolling("", reason="Rolling"), True, id="reason of a condition"),
    ],
)
def test_changes_that_must_be_written_before_anything_is_done(
    old: dict[str, Any], new: dict[str, Any], expected: bool
) -> None:
    before, after = RunnerPoolStatus(**old), RunnerPoolStatus(**new)

    changes = pool_status.patch(before, after)

    assert pool_status.is_urgent(before, after, changes) is expected
