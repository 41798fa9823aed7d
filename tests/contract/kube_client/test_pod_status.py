"""Every server accepts the Pod statuses that the agent publishes, and keeps the conditions of other writers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from bramley.agent.pods import status
from bramley.agent.pods.status import Exit, Facts
from bramley.api import conditions
from bramley.api.pod import Pod, PodStatus
from tests.contract.kube_client.targets import World

STARTED = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PLACED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-03-01T11:00:00Z"}


def at(when: datetime, host: str = "10.0.0.7") -> Facts:
    return Facts(host, when, "ns-build-0123456789ab", "sha256:abc")


async def placed(world: World) -> Pod:
    """Return a Pod with the condition of the scheduler."""
    await world.pod("build", node=world.mac)
    patch = {"status": {"conditions": [PLACED]}}
    return await world.kube.merge_patch(
        Pod, "build", patch, namespace=world.namespace, subresource="status"
    )


async def publish(world: World, pod: Pod, desired: PodStatus) -> Pod:
    found = await status.publish(world.kube, pod, desired)
    assert found is not None
    assert status.is_published(found, desired)
    return found


def ended(pod: Pod) -> PodStatus:
    exit = Exit("Failed", 137, "TartRunFailed", signal=9)
    return status.terminated(
        pod, at(STARTED), exit=exit, started_at=STARTED, finished_at=STARTED + MINUTE
    )


async def test_statuses_of_a_life_cycle_keep_the_conditions_of_others(world: World) -> None:
    pod = await placed(world)

    pod = await publish(world, pod, status.waiting(pod, at(STARTED, "mac-1"), reason="CreatingVM"))
    pod = await publish(world, pod, status.running(pod, at(STARTED), started_at=STARTED))
    later = at(STARTED + MINUTE)
    running = status.running(pod, later, started_at=STARTED, ip="192.168.64.9")
    pod = await publish(world, pod, running)
    assert conditions.is_true(pod.status.conditions, "Ready")
    again = status.running(pod, at(STARTED + 9 * MINUTE), started_at=STARTED)
    assert status.is_published(pod, again)
    pod = await publish(world, pod, ended(pod))

    scheduled = conditions.find(pod.status.conditions, "PodScheduled")
    assert scheduled is not None
    assert scheduled.last_transition_time == datetime(2026, 3, 1, 11, tzinfo=UTC)
    assert (pod.status.phase, pod.status.pod_ip) == ("Failed", "192.168.64.9")
    assert pod.status.qos_class == "BestEffort"


async def test_failure_in_the_status_is_cleared(world: World) -> None:
    pod = await placed(world)
    failing = status.waiting(
        pod, at(STARTED), reason="TartCreateFailed", message="full", is_failing=True
    )
    failed = await publish(world, pod, failing)

    waiting = await publish(world, failed, status.waiting(failed, at(STARTED), reason="CloningVM"))

    assert (failed.status.reason, waiting.status.reason) == ("TartCreateFailed", "")


async def test_a_pod_is_rejected(world: World) -> None:
    pod = await placed(world)

    found = await publish(world, pod, status.rejected(pod, at(STARTED), message="no VM"))

    assert (found.status.phase, found.status.reason) == ("Failed", "UnsupportedPod")


async def test_no_status_is_published_for_another_pod_of_the_name_or_a_deleted_one(
    world: World,
) -> None:
    pod = await placed(world)
    metadata = msgspec.structs.replace(pod.metadata, uid="1b4e28ba-2fa1-11d2-883f-0016d3cca427")
    before = msgspec.structs.replace(pod, metadata=metadata)

    assert await status.publish(world.kube, before, ended(before)) is None
    live = await world.kube.get(Pod, "build", namespace=world.namespace)
    await world.kube.delete(Pod, "build", namespace=world.namespace, grace=timedelta())

    assert live == pod
    assert await status.publish(world.kube, pod, ended(pod)) is None
