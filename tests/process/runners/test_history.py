"""The checks of rolls find violations: they are given histories that contain one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from bramley.api import names
from bramley.api.core import Node
from bramley.api.meta import Object, ObjectMeta
from bramley.api.names import labels
from bramley.api.pod import Container, Pod, PodSpec, PodStatus
from bramley.api.runner_pool import Rollout, RunnerPool, RunnerPoolSpec
from bramley.api.runner_pool_status import RunnerPoolStatus
from tests.process.runners.controller import Sample
from tests.process.runners.fleet import MACS, NEW, OLD, POOL
from tests.process.runners.history import Change, History, Moment
from tests.process.runners.rolls import check_samples

HAS_IMAGE = {labels.golden(NEW): labels.TRUE}
MARK = {labels.DRAIN_ELIGIBLE: labels.TRUE}
OWNER = {labels.RUNNER_POOL_OWNER: "acme"}


def a_pool() -> RunnerPool:
    spec = RunnerPoolSpec(
        image=NEW,
        fleet_selector="demo",
        dispatch_label=POOL,
        runner_labels=["macOS"],
        replicas=MACS,
        rollout=Rollout(max_concurrent_percent=17),
    )
    status = RunnerPoolStatus(target_image=NEW, last_good_image=OLD)
    return RunnerPool(metadata=ObjectMeta(name=POOL), spec=spec, status=status)


def a_pod(name: str, image: str = OLD, **more: str) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name=name,
            uid=name,
            labels={labels.RUNNER_POOL: POOL, **more},
            annotations={names.annotations.CREATED_FOR: "Replacement"},
        ),
        spec=PodSpec(node_name="mac-1", containers=[Container(name="runner", image=image)]),
        status=PodStatus(phase="Running"),
    )


def a_node(**more: str) -> Node:
    return Node(metadata=ObjectMeta(name="mac-1", labels=more))


def history(*objects: Object) -> History:
    """Return a history in which these objects were stored one after another."""
    found = History.__new__(History)
    found.changes = [
        Change(version, float(version), "MODIFIED", each) for version, each in enumerate(objects)
    ]
    return found


BEGINNING = (a_pool(), a_node(**HAS_IMAGE), *(a_pod(f"pod-{number}") for number in range(4)))


def violations(*objects: Object) -> list[str]:
    return history(*BEGINNING, *objects).replay()[0].violations


def test_two_marked_pods_are_within_a_cap_of_two() -> None:
    marked = [a_pod(f"pod-{number}", **MARK) for number in range(2)]

    invariants, moments = history(*BEGINNING, *marked).replay()

    assert not invariants.violations
    assert [moment.in_flight for moment in moments[-3:]] == [0, 1, 2]
    assert [moment.stale for moment in moments[-3:]] == [4, 4, 4]


def test_a_third_marked_pod_is_a_violation() -> None:
    assert violations(*(a_pod(f"pod-{number}", **MARK) for number in range(3)))


def test_a_marked_pod_beside_two_booting_ones_is_a_violation() -> None:
    booting = [a_pod(f"new-{number}", NEW) for number in range(2)]

    assert not violations(*booting)
    assert violations(*booting, a_pod("pod-0", **MARK))


def test_a_mark_on_a_host_without_the_image_is_a_violation() -> None:
    assert violations(a_node(), a_pod("pod-0", **MARK))


def test_the_deletion_of_a_claimed_pod_is_a_violation() -> None:
    claimed = a_pod("pod-0", **OWNER)
    metadata = msgspec.structs.replace(
        claimed.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC)
    )

    assert not violations(claimed)
    assert violations(claimed, msgspec.structs.replace(claimed, metadata=metadata))


# A step every 20 s, and a scrape 10 s after each: nothing changes near a scrape.
STEPS = (*((count, 12 - count) for count in range(3)), (2, 8), (1, 6), (0, 0))
MOMENTS = [
    Moment(20.0 * number, rolling, rolling, stale) for number, (rolling, stale) in enumerate(STEPS)
]
SAMPLES = [
    Sample(moment.at + 10, moment.at + 10, moment.in_flight, moment.stale, cap=2)
    for moment in MOMENTS
]


def test_scrapes_that_show_the_state_of_their_time_are_right() -> None:
    check_samples(SAMPLES, MOMENTS)


@pytest.mark.parametrize("wrong", [{"rolling": 0}, {"stale": 11}, {"cap": 1}, {"rolling": 3}])
def test_a_scrape_that_shows_another_state_is_wrong(wrong: dict[str, int]) -> None:
    samples = [*SAMPLES[:2], replace(SAMPLES[2], **wrong), *SAMPLES[3:]]

    with pytest.raises(AssertionError):
        check_samples(samples, MOMENTS)
