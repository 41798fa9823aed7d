from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bramley.api.pod import Pod
from bramley.runners import pods
from bramley.runners.pods import RunnerPod
from tests.unit.runners.builders import (
    NEW,
    NOW,
    OLD,
    a_booting_pod,
    a_failed_pod,
    a_pod,
    an_ended_pod,
    seconds,
)


def a_wire_pod(
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    state: dict[str, Any] | None = None,
    **status: Any,
) -> Pod:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "uid": "u",
            "resourceVersion": "42",
            "labels": labels or {},
            "annotations": annotations or {},
            "creationTimestamp": "2026-01-01T11:00:00Z",
        },
        "spec": {"nodeName": "mac-1", "containers": [{"name": "runner", "image": OLD}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "runner", "state": state or {}}],
            **status,
        },
    }
    return msgspec.convert(body, Pod, strict=False)


def test_view_of_a_running_pod() -> None:
    pod = a_wire_pod(
        labels={"tuist.dev/drain-eligible": "true"},
        annotations={"tuist.dev/runner-slot": "3/7", "tuist.dev/created-for": "Replacement"},
        state={"running": {"startedAt": "2026-01-01T11:59:00Z"}},
        conditions=[
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:59:30Z"}
        ],
    )

    view = pods.view(pod)

    assert (view.slot, view.counter, view.created_for) == (3, 7, "Replacement")
    assert (view.node, view.image, view.resource_version) == ("mac-1", OLD, "42")
    assert (view.is_marked, view.is_ready, view.is_claimed) == (True, True, False)
    assert view.boot == seconds(30)


def test_pod_of_another_controller_has_no_slot_and_counts_as_scale_up() -> None:
    view = pods.view(a_wire_pod())

    assert (view.slot, view.created_for, view.is_ready) == (-1, "ScaleUp", False)


@pytest.mark.parametrize("text", ["", "3", "/", "a/b", "-1/2", "3/", "3/7/1"])
def test_invalid_slot_is_none(text: str) -> None:
    assert pods.parse_slot(text) == (-1, 0)


def test_slot_is_stored_and_read() -> None:
    assert pods.parse_slot(pods.slot_text(3, 7)) == (3, 7)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, False),
        ({"tuist.dev/runner-pool-owner": ""}, False),
        ({"tuist.dev/runner-pool-owner": "acme"}, True),
        ({"tuist.dev/runner-account": "7"}, True),
    ],
)
def test_pod_is_claimed_once_dispatch_has_stamped_it(
    labels: dict[str, str], expected: bool
) -> None:
    assert pods.is_claimed(a_wire_pod(labels=labels)) is expected


@pytest.mark.parametrize(
    ("pod", "alive", "idle"),
    [
        (a_pod(), True, True),
        (a_pod(is_claimed=True), True, False),
        (a_pod(deleted_at=NOW), False, False),
        (an_ended_pod(), False, False),
        (a_booting_pod(), True, True),
    ],
)
def test_alive_and_idle(pod: RunnerPod, alive: bool, idle: bool) -> None:
    assert (pod.is_alive, pod.is_idle) == (alive, idle)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(a_failed_pod(), True, id="exits at once"),
        pytest.param(a_failed_pod(phase="Succeeded", exit_code=0), True, id="halts at once"),
        pytest.param(
            a_failed_pod(phase="Succeeded", started_at=NOW - seconds(900)), False, id="idle timeout"
        ),
        pytest.param(a_failed_pod(started_at=NOW - seconds(900)), True, id="fails later"),
        pytest.param(an_ended_pod(), False, id="had a job"),
        pytest.param(a_failed_pod(is_marked=True), False, id="was drained"),
        pytest.param(a_failed_pod(deleted_at=NOW), False, id="was deleted"),
        pytest.param(a_pod(), False, id="runs"),
    ],
)
def test_failure_is_an_end_without_a_job(pod: RunnerPod, expected: bool) -> None:
    assert pod.is_failure is expected


def test_end_of_a_pod_is_that_of_its_last_container() -> None:
    ended = a_wire_pod(
        phase="Succeeded",
        state={"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T11:58:00Z"}},
    )

    assert pods.ended_at(ended, NOW) == NOW - seconds(120)
    assert pods.ended_at(a_wire_pod(), NOW) == NOW


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (a_booting_pod(image=NEW), False),
        (a_booting_pod(node=""), True),
        (a_booting_pod(waiting="PullingImage"), True),
        (a_booting_pod(waiting="AwaitingSlot"), True),
        (a_booting_pod(waiting="PullingImage", deleted_at=NOW), False),
    ],
)
def test_pod_that_waits_for_its_image_or_a_host(pod: RunnerPod, expected: bool) -> None:
    assert pod.is_pulling is expected
