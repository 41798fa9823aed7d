"""Pools, Pods, hosts and fleets for tests of the decisions about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from bramley.api.meta import ObjectMeta
from bramley.api.names import labels
from bramley.api.runner_pool import Canary, Gate, Rollout, RunnerPool, RunnerPoolSpec, Staging
from bramley.api.runner_pool_status import RunnerPoolStatus, Slot
from bramley.api.staging import (
    NO_ROOM,
    StagedImage,
    StagingReport,
    StagingRequest,
    State,
    request_id,
)
from bramley.runners.decision import Fleet, PoolView
from bramley.runners.hosts import Host
from bramley.runners.pods import RunnerPod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAMESPACE = "tuist-runners"
POOL = "macos"


def image(digit: int) -> str:
    return "ghcr.io/example/runner@sha256:" + f"{digit:x}" * 64


OLD, NEW, NEWER = image(1), image(2), image(3)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def a_pod(name: str = "pod", image: str = OLD, **changes: Any) -> RunnerPod:
    """Return an idle Pod that runs and has been Ready for ten minutes, on a host of its own name."""
    defaults: dict[str, Any] = {
        "uid": f"uid-{name}",
        "resource_version": "1",
        "node": f"host-{name}",
        "phase": "Running",
        "is_ready": True,
        "created_at": NOW - seconds(700),
        "started_at": NOW - seconds(630),
        "ready_changed_at": NOW - seconds(600),
    }
    return RunnerPod(name=name, image=image, **{**defaults, **changes})


def a_booting_pod(name: str = "booting", image: str = NEW, **changes: Any) -> RunnerPod:
    """Return an idle Pod whose VM has no address yet, created for a Pod of another image."""
    defaults: dict[str, Any] = {
        "phase": "Pending",
        "is_ready": False,
        "waiting": "BootingVM",
        "created_for": "Replacement",
        "started_at": None,
        "ready_changed_at": None,
        "created_at": NOW - seconds(30),
    }
    return a_pod(name, image, **{**defaults, **changes})


def an_ended_pod(name: str = "ended", image: str = OLD, **changes: Any) -> RunnerPod:
    """Return a Pod that has finished a job."""
    defaults: dict[str, Any] = {
        "phase": "Succeeded",
        "is_ready": False,
        "is_claimed": True,
        "finished_at": NOW - seconds(1),
        "exit_code": 0,
        "reason": "Completed",
    }
    return a_pod(name, image, **{**defaults, **changes})


def a_failed_pod(name: str = "failed", image: str = NEW, **changes: Any) -> RunnerPod:
    """Return a Pod whose VM exited right after it had started, without a job."""
    defaults: dict[str, Any] = {
        "phase": "Failed",
        "is_claimed": False,
        "started_at": NOW - seconds(6),
        "finished_at": NOW - seconds(1),
        "exit_code": 1,
        "reason": "Error",
        "created_for": "Replacement",
    }
    return an_ended_pod(name, image, **{**defaults, **changes})


def in_slots(pods: Iterable[RunnerPod]) -> tuple[tuple[RunnerPod, ...], list[Slot]]:
    """Return the Pods as the first ones of a slot each, and these slots, active."""
    placed = tuple(replace(pod, slot=number, counter=1) for number, pod in enumerate(pods))
    return placed, [Slot(counter=1, active=True) for _ in placed]


def a_pool(
    name: str = POOL,
    *,
    replicas: int = 4,
    image: str = OLD,
    annotations: dict[str, str] | None = None,
    deleting: bool = False,
    percent: int = 5,
    staging: Staging | None = None,
    canary: Canary | None = None,
    gate: Gate | None = None,
    spec: dict[str, Any] | None = None,
    **status: Any,
) -> RunnerPool:
    """Return a pool; other keywords are fields of its status."""
    given = {"staging": staging, "canary": canary, "gate": gate}
    parts: dict[str, Any] = {name: part for name, part in given.items() if part is not None}
    rollout = Rollout(max_concurrent_percent=percent, **parts)
    return RunnerPool(
        metadata=ObjectMeta(
            name=name,
            namespace=NAMESPACE,
            uid=f"uid-{name}",
            generation=1,
            annotations=annotations or {},
            deletion_timestamp=NOW if deleting else None,
        ),
        spec=RunnerPoolSpec(
            image=image,
            fleet_selector="demo",
            dispatch_label=name,
            runner_labels=["macOS"],
            replicas=replicas,
            rollout=rollout,
            **(spec or {}),
        ),
        status=RunnerPoolStatus(**status),
    )


def a_host(name: str = "host", *images: str, requested: Sequence[str] = (), **changes: Any) -> Host:
    """Return a host with these images on its disk that has place for one Pod."""
    defaults: dict[str, Any] = {
        "pods": 1,
        "cpu_milli": 8000,
        "memory_mb": 14336,
        "golden": frozenset(map(labels.golden, images)),
        "request": StagingRequest(tuple(requested)).text() if requested else "",
    }
    return Host(name=name, **{**defaults, **changes})


def reporting(
    host: Host, image: str, message: str = NO_ROOM, *, state: State = State.FAILED
) -> Host:
    """Return a host whose report on its current request is that it could not pull the image, or another state."""
    reported = StagedImage(image, state, message=message if state is State.FAILED else "")
    return replace(host, report=StagingReport(request_id(host.request), (reported,)))


def a_fleet(*views: PoolView, hosts: Iterable[Host] = ()) -> Fleet:
    """Return a fleet of these pools and hosts."""
    return Fleet(pools=views, hosts=tuple(hosts))
