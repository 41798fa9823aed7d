from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bramley.api import names
from bramley.api.names import events
from bramley.api.runner_pool import Canary, RunnerPool
from bramley.api.runner_pool_status import RollProgress, Slot
from bramley.api.staging import State
from bramley.runners import pod_timeouts, pool_status
from bramley.runners.hosts import Host
from bramley.runners.pods import RunnerPod
from bramley.runners.pool_status import Facts
from tests.unit.runners.builders import (
    NEW,
    NEWER,
    NOW,
    OLD,
    a_booting_pod,
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


def hanging(image: str = NEW, **changes: Any) -> RunnerPod:
    """Return a Pod whose guest has responded once and does not respond any more."""
    defaults: dict[str, Any] = {"is_ready": False, "node": "h0", "slot": 0, "counter": 1}
    return a_pod("c", image, **{**defaults, **changes})


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (hanging(), 3),
        (hanging(phase="Pending", waiting=events.CREATE_FAILED, started_at=None), 3),
        # No host had a place for it.
        (hanging(phase="Pending", node="", started_at=None), 2),
        (hanging(OLD), 2),
    ],
)
def test_pod_that_hangs_during_the_waves_counts_as_a_failure_of_its_image(
    pod: RunnerPod, expected: int
) -> None:
    pool = a_rolling_pool(
        canary_passed_image=NEW, target_failures=2, slots=[Slot(counter=1, active=True)]
    )
    result, fleet = decided(
        pool, [pod, PODS[1]], HOSTS, waiting_since={"c": NOW - pod_timeouts.START_TIMEOUT}
    )

    status = pool_status.next_status(pool, result, fleet, Facts(NOW))
    after = msgspec.structs.replace(pool, status=status)
    again, _ = decided(after, [PODS[1]], HOSTS)

    assert [each.pod.name for each in result.plan.delete] == ["c"]
    assert status.target_failures == expected
    assert (again.rollout.phase == "Rejected") == (expected == 3)


def test_hanging_pods_of_the_last_good_image_are_not_counted() -> None:
    pool = a_pool(target_image=OLD, last_good_image=OLD, slots=[Slot(counter=1, active=True)])
    result, fleet = decided(pool, [hanging(OLD)], HOSTS, waiting_since={"c": NOW - seconds(900)})

    assert result.plan.delete
    assert pool_status.next_status(pool, result, fleet, Facts(NOW)).target_failures == 0


PROGRESS = RollProgress(stale_replicas=2, staged_hosts=1, at=NOW - seconds(900))
STAGED = (a_host("h0", OLD, NEW), a_host("h1", OLD))


def a_stalled_pool(**given: Any) -> RunnerPool:
    """Return a pool in the waves whose roll has made no progress for 15 minutes."""
    defaults = {"canary_passed_image": NEW, "roll_phase": "Rolling", "roll_progress": PROGRESS}
    return a_rolling_pool(**{"replicas": 3, **defaults, **given})


BOOTING = a_booting_pod("c", node="h0")


def test_roll_without_progress_names_the_pod_that_it_waits_for() -> None:
    assert condition("RolledOut", a_stalled_pool(), [*PODS, BOOTING], STAGED) == (
        "False",
        "ProgressDeadlineExceeded",
        (
            "no progress for 15 minutes: replacing runners of other images; Pod c on h0 is not ready; "
            "see bramley explain pool/macos"
        ),
    )


@pytest.mark.parametrize(
    ("pool", "pods", "hosts"),
    [
        pytest.param(
            a_stalled_pool(
                roll_progress=msgspec.structs.replace(PROGRESS, at=NOW - seconds(899)),
            ),
            [*PODS, BOOTING],
            STAGED,
            id="progress since",
        ),
        pytest.param(a_stalled_pool(), [PODS[0], BOOTING], STAGED, id="fewer stale Pods"),
        pytest.param(
            a_stalled_pool(),
            [*PODS, BOOTING],
            (STAGED[0], a_host("h1", OLD, NEW)),
            id="more hosts have the image",
        ),
        pytest.param(
            a_stalled_pool(roll_phase="Canary"), [*PODS, BOOTING], STAGED, id="another phase"
        ),
        pytest.param(
            a_stalled_pool(target_image=NEWER), [*PODS, BOOTING], STAGED, id="another image"
        ),
        pytest.param(
            a_stalled_pool(),
            [*PODS, replace(BOOTING, waiting=events.PULLING_IMAGE)],
            STAGED,
            id="a Pod waits for a pull",
        ),
        pytest.param(
            a_stalled_pool(),
            PODS,
            (STAGED[0], reporting(STAGED[1], NEW, state=State.PULLING)),
            id="a host pulls",
        ),
        pytest.param(
            a_stalled_pool(),
            [replace(pod, is_claimed=True) for pod in PODS],
            STAGED,
            id="all stale Pods have a job",
        ),
        pytest.param(
            a_stalled_pool(
                annotations={names.annotations.ROLLOUT_PAUSED: "true"}, roll_phase="Paused"
            ),
            [*PODS, BOOTING],
            STAGED,
            id="paused",
        ),
    ],
)
def test_roll_that_makes_progress_or_waits_for_pulls_jobs_or_people_is_not_stalled(
    pool: RunnerPool, pods: Sequence[RunnerPod], hosts: Sequence[Host]
) -> None:
    reason = condition("RolledOut", pool, pods, hosts)[1]

    assert reason in {"Rolling", "Paused"}


def test_runners_that_become_stale_again_are_no_progress_when_they_end() -> None:
    """A finished runner may be replaced by the last good image, which is then replaced again."""
    one = msgspec.structs.replace(PROGRESS, stale_replicas=1)

    assert condition("RolledOut", a_stalled_pool(roll_progress=one), [*PODS, BOOTING], STAGED)[
        1
    ] == ("ProgressDeadlineExceeded")
    assert status_of(a_pool(), PODS, HOSTS).roll_progress is None


def test_condition_shows_how_many_canaries_are_missing() -> None:
    pool = a_rolling_pool(canary=Canary(count=2), percent=100, roll_phase="Canary")
    ready = a_pod("c", NEW, node="h0")

    assert condition("RolledOut", pool, [ready, PODS[1]], STAGED)[2] == (
        "waiting until the canaries of the new image are good: 1 of 2 canaries are ready, "
        "1 more to be placed on a host that has the image"
    )


def test_flapping_host_does_not_change_the_boots_that_are_recorded() -> None:
    pods, slots = in_slots(PODS)
    pool = a_pool(replicas=2, target_image=OLD, last_good_image=OLD, slots=slots)

    first = status_of(pool, pods, HOSTS)
    down = [replace(pods[0], is_ready=False, ready_changed_at=NOW - seconds(60)), pods[1]]
    second = status_of(msgspec.structs.replace(pool, status=first), down, HOSTS)
    back = [replace(pods[0], ready_changed_at=NOW - seconds(30)), pods[1]]
    third = status_of(msgspec.structs.replace(pool, status=second), back, HOSTS)

    assert [each.boot_seconds for each in (first, second, third)] == [[30, 30]] * 3
