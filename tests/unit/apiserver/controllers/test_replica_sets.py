"""ReplicaSets: which Pods go first, as a table; and what a template costs that the API refuses."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from bramley.api.core import Event, Pod
from bramley.api.meta import ObjectMeta
from bramley.api.pod import ContainerStatus, PodCondition, PodSpec, PodStatus
from bramley.apiserver.controllers.replica_sets import active_pods
from tests.unit.apiserver.controllers.test_deployments import a_deployment, a_world

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_pod(
    name: str,
    *,
    node: str = "n",
    phase: str = "Running",
    ready: timedelta | None = timedelta(hours=1),
    cost: str = "",
    restarts: int = 0,
) -> Pod:
    conditions = []
    if ready is not None:
        since = NOW - ready
        conditions = [PodCondition(type="Ready", status="True", last_transition_time=since)]
    return Pod(
        metadata=ObjectMeta(
            name=name,
            uid=name,
            creation_timestamp=NOW,
            annotations={active_pods.DELETION_COST: cost} if cost else {},
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(
            phase=phase,
            conditions=conditions,
            container_statuses=[ContainerStatus(name="c", restart_count=restarts)],
        ),
    )


def test_pods_to_delete_are_ranked() -> None:
    ordered = [
        a_pod("unassigned", node="", phase="Pending", ready=None),
        a_pod("pending", phase="Pending", ready=None),
        a_pod("restarted", ready=None, restarts=5),
        a_pod("unready", ready=None),
        a_pod("cheap", cost="-10"),
        a_pod("crowded", node="crowd"),
        a_pod("recent", ready=timedelta(seconds=1)),
        a_pod("old", ready=timedelta(days=100)),
        a_pod("dear", cost="10"),
    ]
    shuffled = random.Random(1).sample(ordered, len(ordered))
    crowd = [a_pod(f"x{number}", node="crowd") for number in range(20)]

    found = active_pods.pods_to_delete(
        shuffled, [*ordered, *crowd], count=len(ordered) - 1, now=NOW
    )

    assert [pod.name for pod in found] == [pod.name for pod in ordered[:-1]]


def test_ended_and_terminating_pods_do_not_count() -> None:
    ended = [a_pod("a", phase="Succeeded"), a_pod("b", phase="Failed")]
    going = Pod(metadata=ObjectMeta(name="c", deletion_timestamp=NOW))

    assert not any(active_pods.is_active(pod) for pod in (*ended, going))
    assert active_pods.is_active(a_pod("d"))


async def test_refused_template_causes_one_request_per_attempt() -> None:
    async with a_world(kubelet=False) as world:
        body: dict[str, Any] = a_deployment(20)
        body["spec"]["template"]["metadata"]["finalizers"] = ["no finalizer at all"]
        await world.deploy(body)
        events = (await world.client.list(Event, namespace="t")).items
        tries = sum(each.count for each in events if each.reason == "FailedCreate")

        assert 1 <= tries <= 5
        assert await world.pods() == []


async def test_pods_are_created_in_doubling_batches() -> None:
    async with a_world(kubelet=False) as world:
        await world.deploy(a_deployment(20))

        assert len(await world.pods()) == 20
