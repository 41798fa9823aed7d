"""The statuses and conditions that follow from the state of a pool, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bramley.api import conditions
from bramley.api.runner_pool import RunnerPool
from bramley.api.runner_pool_status import RunnerPoolStatus
from bramley.runners import decision, pool_status
from bramley.runners.decision import Decision, Fleet, Inputs, PoolView
from bramley.runners.hosts import Host
from bramley.runners.pods import RunnerPod
from bramley.runners.pool_status import Facts
from tests.unit.runners.builders import (
    NEW,
    NOW,
    OLD,
    a_fleet,
    a_host,
    a_pod,
    a_pool,
    seconds,
)


def decided(
    pool: RunnerPool, pods: Sequence[RunnerPod], hosts: Sequence[Host], **inputs: Any
) -> tuple[Decision, Fleet]:
    view = PoolView(pool, tuple(pods))
    fleet = a_fleet(view, hosts=hosts)
    return decision.decide(view, fleet, Inputs(NOW, **inputs)), fleet


def status_of(
    pool: RunnerPool,
    pods: Sequence[RunnerPod],
    hosts: Sequence[Host],
    **facts: Any,
) -> RunnerPoolStatus:
    result, fleet = decided(pool, pods, hosts)
    return pool_status.next_status(pool, result, fleet, Facts(NOW, **facts))


def condition(
    type: str,
    pool: RunnerPool,
    pods: Sequence[RunnerPod],
    hosts: Sequence[Host],
    **facts: Any,
) -> tuple[str, str, str]:
    found = conditions.find(status_of(pool, pods, hosts, **facts).conditions, type)
    return (found.status, found.reason, found.message) if found else ("", "", "")


def a_rolling_pool(**given: Any) -> RunnerPool:
    status = {"target_image": NEW, "last_good_image": OLD, "roll_started_at": NOW - seconds(60)}
    return a_pool(image=NEW, **{"replicas": 2, **status, **given})


PODS = (a_pod("a", node="h0"), a_pod("b", node="h1"))
HOSTS = (a_host("h0", OLD), a_host("h1", OLD))
