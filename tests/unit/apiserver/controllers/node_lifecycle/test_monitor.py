"""Nodes without heartbeats: when they become Unknown, their conditions and events, and which Pods are evicted."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest

from bramley.api import conditions
from bramley.api.core import Event, Node, Pod
from bramley.apiserver.controllers import node_lifecycle
from tests.unit import example_counts
from tests.unit.apiserver.controllers.controller_world import World, a_world, a_world_with, running

SILENT = {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}


async def two_nodes(world: World) -> None:
    await world.node("mac-1")
    await world.node("mac-2")
    await asyncio.sleep(1)


async def goes_silent(world: World, name: str = "mac-1", *, seconds: float = 70) -> None:
    world.alive.discard(name)
    await asyncio.sleep(seconds)


@pytest.fixture
def world() -> AbstractAsyncContextManager[World]:
    return a_world_with(node_lifecycle.add)


async def test_a_node_that_renews_its_lease_stays_ready_for_hours(world: World) -> None:
    """A fast run looks at many times the grace that a node has."""
    await two_nodes(world)

    await asyncio.sleep(7200 * example_counts.share())

    assert await world.ready("mac-1") == ("True", "KubeletReady")
    assert await world.taints("mac-1") == set()


async def test_missing_heartbeats_are_detected_after_the_grace_period(world: World) -> None:
    await two_nodes(world)
    await world.beat("mac-1")

    await goes_silent(world, seconds=45)
    assert await world.ready("mac-1") == ("True", "KubeletReady")

    await asyncio.sleep(15)
    assert await world.ready("mac-1") == ("Unknown", "NodeStatusUnknown")
    assert await world.ready("mac-2") == ("True", "KubeletReady")


async def test_conditions_of_a_node_without_heartbeats_are_unknown(world: World) -> None:
    await two_nodes(world)

    await goes_silent(world)

    node = await world.kube.get(Node, "mac-1")
    observed = {each.type: (each.status, each.message) for each in node.status.conditions}
    assert observed == {
        "Ready": ("Unknown", "Kubelet stopped posting node status."),
        "MemoryPressure": ("Unknown", "Kubelet never posted node status."),
        "DiskPressure": ("Unknown", "Kubelet never posted node status."),
        "PIDPressure": ("Unknown", "Kubelet never posted node status."),
    }


async def test_a_node_without_heartbeats_is_tainted_and_has_an_event(world: World) -> None:
    await two_nodes(world)

    await goes_silent(world)
    await asyncio.sleep(1)

    assert await world.taints("mac-1") == SILENT
    events = await world.events("mac-1")
    assert ("NodeNotReady", "Node mac-1 status is now: NodeNotReady") in events


async def test_a_node_that_comes_back_loses_its_taints(world: World) -> None:
    await two_nodes(world)
    await goes_silent(world)

    await world.status("mac-1")
    world.alive.add("mac-1")
    await asyncio.sleep(6)

    assert await world.ready("mac-1") == ("True", "KubeletReady")
    assert await world.taints("mac-1") == set()


async def test_a_node_that_never_posted_a_status_has_a_longer_grace(world: World) -> None:
    await two_nodes(world)
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "new"}}
    await world.kube.create_wire(Node.resource, body)

    await asyncio.sleep(55)
    assert await world.ready("new") == ("", "")

    await asyncio.sleep(12)
    assert await world.ready("new") == ("Unknown", "NodeStatusNeverUpdated")


async def test_pods_of_a_lost_node_are_not_ready_at_once_and_evicted_after_their_toleration(
    world: World,
) -> None:
    await two_nodes(world)
    await world.pod("p", node="mac-1")
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await world.kube.merge_patch(Pod, "p", ready, namespace="default", subresource="status")

    await goes_silent(world)
    pod = await world.find("p")
    assert pod is not None
    assert not conditions.is_true(pod.status.conditions, "Ready")

    await asyncio.sleep(280)
    pod = await world.find("p")
    assert pod is not None
    assert not pod.deleting

    await asyncio.sleep(20)
    pod = await world.find("p")
    assert pod is not None
    assert pod.deleting
    why = conditions.find(pod.status.conditions, "DisruptionTarget")
    assert why is not None
    assert (why.status, why.reason) == ("True", "DeletionByTaintManager")


async def test_a_node_that_comes_back_in_time_keeps_its_pods(world: World) -> None:
    await two_nodes(world)
    await world.pod("p", node="mac-1")
    await goes_silent(world, seconds=200)

    await world.status("mac-1")
    world.alive.add("mac-1")
    await asyncio.sleep(600)

    pod = await world.find("p")
    assert pod is not None
    assert not pod.deleting
    assert ("TaintManagerEviction", "Cancelling deletion of Pod default/p") in await world.events(
        "p"
    )


async def test_no_pod_is_evicted_when_no_node_is_ready(world: World) -> None:
    """An outage of the control plane's own network must not empty the fleet."""
    await two_nodes(world)
    await world.pod("p", node="mac-1")

    world.alive.clear()
    await asyncio.sleep(1200)

    assert await world.ready("mac-1") == ("Unknown", "NodeStatusUnknown")
    assert await world.taints("mac-1") == {("unreachable", "NoSchedule")}
    pod = await world.find("p")
    assert pod is not None
    assert not pod.deleting


async def test_eviction_taints_are_removed_when_the_last_node_is_lost(world: World) -> None:
    await two_nodes(world)
    await goes_silent(world)
    assert await world.taints("mac-1") == SILENT

    await goes_silent(world, "mac-2")

    assert await world.taints("mac-1") == {("unreachable", "NoSchedule")}


async def test_nodes_are_tainted_one_per_interval(world: World) -> None:
    for number in range(10):
        await world.node(f"mac-{number}")
    await asyncio.sleep(1)

    world.alive -= {"mac-0", "mac-1"}
    tainted: list[int] = []
    for _ in range(90):
        await asyncio.sleep(1)
        taints = [await world.taints(f"mac-{number}") for number in range(2)]
        tainted.append(sum(("unreachable", "NoExecute") in each for each in taints))

    assert tainted[-1] == 2
    assert 9 <= tainted.count(1) <= 16


async def test_no_pod_is_evicted_when_most_of_a_small_zone_is_not_ready(world: World) -> None:
    for number in range(4):
        await world.node(f"mac-{number}")
    await asyncio.sleep(1)

    world.alive -= {"mac-0", "mac-1", "mac-2"}
    await asyncio.sleep(600)

    for number in range(3):
        assert ("unreachable", "NoExecute") not in await world.taints(f"mac-{number}")


async def test_a_restarted_controller_waits_a_whole_grace_period() -> None:
    async with a_world() as world:
        await two_nodes(world)
        world.alive.discard("mac-1")
        await asyncio.sleep(1200)

        async with running(world.manager(node_lifecycle.add)):
            await asyncio.sleep(45)
            assert await world.ready("mac-1") == ("True", "KubeletReady")

            await asyncio.sleep(15)
            assert await world.ready("mac-1") == ("Unknown", "NodeStatusUnknown")


async def test_toleration_time_restarts_with_the_controller() -> None:
    async with a_world() as world:
        await two_nodes(world)
        taint = {"key": "k", "effect": "NoExecute"}
        await world.kube.merge_patch(Node, "mac-1", {"spec": {"taints": [taint]}})
        bears = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
        await world.pod("p", node="mac-1", tolerations=[bears])
        await asyncio.sleep(1200)

        async with running(world.manager(node_lifecycle.add)):
            await asyncio.sleep(50)
            pod = await world.find("p")
            assert pod is not None
            assert not pod.deleting
            await asyncio.sleep(15)
            pod = await world.find("p")
            assert pod is not None
            assert pod.deleting


async def tainted(world: World) -> None:
    taint = {"key": "k", "effect": "NoExecute"}
    await world.kube.merge_patch(Node, "mac-1", {"spec": {"taints": [taint]}})
    await asyncio.sleep(1)


async def test_a_terminating_pod_gets_its_condition_once(world: World) -> None:
    await two_nodes(world)
    bears = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    await world.pod("p", node="mac-1", tolerations=[bears])
    await world.kube.delete(Pod, "p", namespace="default")

    await tainted(world)
    await asyncio.sleep(10)
    await world.kube.merge_patch(
        Pod, "p", {"metadata": {"labels": {"a": "b"}}}, namespace="default"
    )
    await asyncio.sleep(10)

    pod = await world.find("p")
    assert pod is not None
    reason = conditions.find(pod.status.conditions, "DisruptionTarget")
    assert reason is not None
    assert reason.reason == "DeletionByTaintManager"
    events = (await world.kube.list(Event, namespace="default")).items
    assert [each.count for each in events if each.reason == "TaintManagerEviction"] == [1]


async def test_the_end_of_a_pod_cancels_its_eviction(world: World) -> None:
    await two_nodes(world)
    bears = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    await world.pod("p", node="mac-1", tolerations=[bears])
    await tainted(world)

    await world.kube.delete(Pod, "p", namespace="default", grace=timedelta())
    await asyncio.sleep(5)

    events = await world.events("p")
    assert ("TaintManagerEviction", "Cancelling deletion of Pod default/p") in events


async def is_deleting(world: World) -> bool:
    pod = await world.find("p")
    assert pod is not None
    return pod.deleting


async def test_a_second_tolerated_taint_does_not_change_the_deadline(world: World) -> None:
    await two_nodes(world)
    bears = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key, seconds in (("k", 60), ("soon", 10))
    ]
    await world.pod("p", node="mac-1", tolerations=bears)
    await tainted(world)
    await asyncio.sleep(30)

    both = [{"key": key, "effect": "NoExecute"} for key in ("k", "soon")]
    await world.kube.merge_patch(Node, "mac-1", {"spec": {"taints": both}})
    await asyncio.sleep(25)
    assert not await is_deleting(world)

    await asyncio.sleep(10)
    assert await is_deleting(world)


async def test_a_second_untolerated_taint_evicts_at_once(world: World) -> None:
    await two_nodes(world)
    bears = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    await world.pod("p", node="mac-1", tolerations=[bears])
    await tainted(world)

    both = [{"key": key, "effect": "NoExecute"} for key in ("k", "other")]
    await world.kube.merge_patch(Node, "mac-1", {"spec": {"taints": both}})
    await asyncio.sleep(2)

    assert await is_deleting(world)
