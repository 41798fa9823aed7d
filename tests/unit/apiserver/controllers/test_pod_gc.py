"""Which Pods are garbage, and how they go."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bramley.api.core import Node, Pod
from bramley.apiserver.controllers import pod_gc
from bramley.apiserver.controllers.timings import DEFAULT
from tests.unit.apiserver.controllers.controller_world import World, a_world_with

BEGIN = datetime(2026, 6, 19, tzinfo=UTC)
OUT = {"key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute"}


def a_node(name: str, *, ready: str = "True", taints: list[Any] | None = None) -> Node:
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    spec = {"taints": taints or []}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec, "status": status}, Node)


def a_pod(name: str, node: str = "", phase: str = "Running", **more: Any) -> Pod:
    metadata: dict[str, Any] = {"name": name, "creationTimestamp": more.pop("born", BEGIN)}
    if more.pop("deleting", False):
        metadata["deletionTimestamp"] = BEGIN
    status = {"phase": phase, **more}
    return msgspec.convert(
        {"metadata": metadata, "spec": {"nodeName": node}, "status": status}, Pod
    )


NODES = [a_node("here"), a_node("dead", ready="False", taints=[OUT]), a_node("alive", taints=[OUT])]
CASES: dict[str, tuple[Pod, str]] = {
    "it runs": (a_pod("p", "here"), ""),
    "it waits": (a_pod("p", phase="Pending"), ""),
    "it ended": (a_pod("p", "here", "Succeeded"), ""),
    "it goes": (a_pod("p", "here", deleting=True), ""),
    "it was never scheduled and goes": (a_pod("p", deleting=True), "never_scheduled"),
    "its node is gone": (a_pod("p", "gone"), "of_missing"),
    "its node is gone and so is it soon": (a_pod("p", "gone", deleting=True), "of_missing"),
    "its node is out of service": (a_pod("p", "dead"), ""),
    "its node is out of service and it goes": (a_pod("p", "dead", deleting=True), "out_of_service"),
    "its node is tainted as out of service and ready": (a_pod("p", "alive", deleting=True), ""),
}


@pytest.mark.parametrize("case", CASES)
def test_a_pod_is_garbage_when(case: str) -> None:
    pod, why = CASES[case]

    found = pod_gc.find([pod], NODES, threshold=5)

    counted = {
        "ended": len(found.terminated),
        "never_scheduled": len(found.never_scheduled),
        "out_of_service": len(found.out_of_service),
        "of_missing": sum(map(len, found.by_missing_node.values())),
    }
    assert {name for name, count in counted.items() if count} == ({why} if why else set())


def test_evicted_pods_are_deleted_before_the_oldest_ended_ones() -> None:
    pods = [
        a_pod(f"p{age}", "here", "Failed", born=BEGIN - timedelta(hours=age)) for age in range(4)
    ]
    evicted = a_pod("young", "here", "Failed", reason="Evicted", born=BEGIN)

    found = pod_gc.find([*pods, evicted], NODES, threshold=2)

    assert [pod.name for pod in found.terminated] == ["young", "p3", "p2"]
    assert pod_gc.find(pods, NODES, threshold=0).terminated == []


async def names(world: World) -> list[str]:
    return [pod.name for pod in (await world.kube.list(Pod)).items]


async def test_pods_of_a_deleted_node_fail_and_are_deleted_after_the_quarantine() -> None:
    async with a_world_with(pod_gc.add) as world:
        await world.node("mac-1")
        await world.pod("p", node="mac-1")
        await asyncio.sleep(30)
        await world.kube.delete(Node, "mac-1")
        seen: list[Pod] = []

        async def follow() -> None:
            async with world.kube.watch(Pod) as watch:
                async for event in watch:
                    if event.type == "DELETED":
                        seen.append(event.object)  # noqa: PERF401 - it never ends

        async with asyncio.TaskGroup() as group:
            following = group.create_task(follow())
            await asyncio.sleep(39)
            assert await names(world) == ["p"]
            await asyncio.sleep(25)
            following.cancel()

        assert await names(world) == []
        last = seen[-1].status
        assert last.phase == "Failed"
        conditions = [(each.type, each.reason, each.message) for each in last.conditions]
        assert ("DisruptionTarget", "DeletionByPodGC", "PodGC: node no longer exists") in conditions


async def test_a_node_that_comes_back_within_the_quarantine_keeps_its_pods() -> None:
    async with a_world_with(pod_gc.add) as world:
        await world.node("mac-1")
        await world.pod("p", node="mac-1")
        await world.kube.delete(Node, "mac-1")
        await asyncio.sleep(30)

        await world.node("mac-1")
        await asyncio.sleep(300)

        assert await names(world) == ["p"]


async def test_an_unscheduled_pod_is_removed_when_it_is_deleted() -> None:
    async with a_world_with(pod_gc.add) as world:
        await world.pod("p", metadata={"finalizers": ["x.y/z"]})
        await world.kube.delete(Pod, "p", namespace="default")
        await asyncio.sleep(25)

        pod = await world.find("p")

        assert pod is not None, "a finalizer must keep the Pod"
        assert pod.status.phase == "Failed"


async def test_ended_pods_stay_up_to_the_threshold() -> None:
    timings = replace(DEFAULT, terminated_pod_threshold=2)
    async with a_world_with(pod_gc.add, timings=timings) as world:
        await world.node("mac-1")
        for number in range(5):
            await world.pod(f"p{number}", node="mac-1")
            status = {"status": {"phase": "Succeeded"}}
            await world.kube.merge_patch(
                Pod, f"p{number}", status, namespace="default", subresource="status"
            )
            await asyncio.sleep(1)

        await asyncio.sleep(45)

        assert await names(world) == ["p3", "p4"]
