"""The scheduler on the embedded API: bindings, conditions and events, and when a Pod is scheduled again."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import pytest

from bramley.api import conditions
from bramley.api.core import Namespace, Node, Pod
from bramley.api.meta import ObjectMeta
from bramley.apiserver.controllers.scheduling import scheduler
from bramley.base import errors
from tests.unit.apiserver.controllers.controller_world import World, a_world, a_world_with, running
from tests.unit.apiserver.controllers.scheduling.builders import affinity_term, anti_affinity_to

FULL = (
    "0/1 nodes are available: 1 Too many pods. no new claims to deallocate, preemption: 0/1 nodes are available: "
    "1 No preemption victims found for incoming pod."
)


async def places(world: World) -> dict[str, str]:
    """Return the Node of each Pod."""
    return {pod.name: pod.spec.node_name for pod in (await world.kube.list(Pod)).items}


async def scheduled(world: World, name: str) -> tuple[str, str, str]:
    """Return what the Pod's condition says."""
    pod = await world.kube.get(Pod, name, namespace="default")
    found = conditions.find(pod.status.conditions, "PodScheduled")
    return (found.status, found.reason, found.message) if found else ("", "", "")


async def end(world: World, name: str) -> None:
    status = {"status": {"phase": "Succeeded"}}
    await world.kube.merge_patch(Pod, name, status, namespace="default", subresource="status")


async def remove(world: World, name: str) -> None:
    await world.kube.delete(Pod, name, namespace="default", grace=timedelta())


@pytest.fixture
def world() -> AbstractAsyncContextManager[World]:
    return a_world_with(scheduler.add)


async def test_a_pod_is_bound_and_has_an_event(world: World) -> None:
    await world.node("mac-1")
    await world.pod("p")
    await asyncio.sleep(1)

    assert await places(world) == {"p": "mac-1"}
    assert (await scheduled(world, "p"))[0] == "True"
    event = ("Scheduled", "Successfully assigned default/p to mac-1")
    assert await world.events("p") == [event]


async def test_an_unschedulable_pod_has_one_event_with_the_reason(world: World) -> None:
    await world.node("mac-1", offers={"pods": "1"})
    await world.pod("p")
    await asyncio.sleep(1)
    await world.pod("q")
    world.alive.clear()
    await asyncio.sleep(1)
    revision = world.api.store.revision

    assert await scheduled(world, "q") == ("False", "Unschedulable", FULL)
    assert await world.events("q") == [("FailedScheduling", FULL)]

    await asyncio.sleep(200)
    assert world.api.store.revision == revision


async def test_pod_waits_for_the_first_node(world: World) -> None:
    await world.pod("p")
    await asyncio.sleep(1)
    message = "no nodes available to schedule pods"
    assert await scheduled(world, "p") == ("False", "Unschedulable", message)

    await world.node("mac-1")
    await asyncio.sleep(3)

    assert await places(world) == {"p": "mac-1"}


async def full(world: World) -> None:
    """Fill the only Node with one Pod, and let another one wait for it."""
    await world.node("mac-1", offers={"pods": "1"})
    await world.pod("p")
    await asyncio.sleep(1)
    await world.pod("q")
    await asyncio.sleep(20)
    assert await places(world) == {"p": "mac-1", "q": ""}


async def test_freed_capacity_is_used_at_once(world: World) -> None:
    await full(world)

    await remove(world, "p")
    await asyncio.sleep(0.5)

    assert await places(world) == {"q": "mac-1"}


async def test_an_ended_pod_frees_its_capacity(world: World) -> None:
    await full(world)

    await end(world, "p")
    await asyncio.sleep(0.5)

    assert (await places(world))["q"] == "mac-1"


@pytest.mark.parametrize(
    ("spec", "helps"),
    [
        ({"nodeSelector": {"os": "mac"}}, {"metadata": {"labels": {"os": "mac"}}}),
        ({"tolerations": []}, {"spec": {"taints": None}}),
    ],
)
async def test_changed_node_reschedules_a_waiting_pod(
    world: World, spec: dict[str, Any], helps: dict[str, Any]
) -> None:
    taints = [] if "nodeSelector" in spec else [{"key": "k", "effect": "NoSchedule"}]
    await world.node("mac-1", spec={"taints": taints})
    await world.pod("p", **spec)
    await asyncio.sleep(20)
    assert await places(world) == {"p": ""}

    await world.kube.merge_patch(Node, "mac-1", helps)
    await asyncio.sleep(0.5)

    assert await places(world) == {"p": "mac-1"}


async def test_increased_capacity_reschedules_a_waiting_pod(world: World) -> None:
    await world.node("mac-1")
    await world.pod("p", requests={"cpu": "8"})
    await asyncio.sleep(20)
    assert await places(world) == {"p": ""}

    await world.status("mac-1", offers={"cpu": "8", "memory": "8Gi", "pods": "2"})
    await asyncio.sleep(0.5)

    assert await places(world) == {"p": "mac-1"}


async def test_added_or_deleted_pod_reschedules_a_pod_with_affinity(world: World) -> None:
    await world.node("mac-1", labels={"zone": "z"})
    near_x = {"requiredDuringSchedulingIgnoredDuringExecution": [affinity_term("zone", app="x")]}
    await world.pod("wants", affinity={"podAffinity": near_x})
    await asyncio.sleep(20)
    assert await places(world) == {"wants": ""}

    await world.pod("x", labels={"app": "x"})
    await asyncio.sleep(2)
    assert await places(world) == {"wants": "mac-1", "x": "mac-1"}

    await world.pod("loner", affinity=anti_affinity_to(affinity_term("zone", app="x")))
    await asyncio.sleep(20)
    assert (await places(world))["loner"] == ""
    await remove(world, "x")
    await asyncio.sleep(0.5)
    assert (await places(world))["loner"] == "mac-1"


async def test_affinity_term_may_select_namespaces_by_label(world: World) -> None:
    other = Namespace(metadata=ObjectMeta(name="other", labels={"team": "a"}))
    await world.kube.create(other)
    await world.node("mac-1", labels={"zone": "z"})
    await world.pod("x", namespace="other", labels={"app": "x"})
    await asyncio.sleep(1)
    term = {**affinity_term("zone", app="x"), "namespaceSelector": {"matchLabels": {"team": "a"}}}
    await world.pod("loner", affinity=anti_affinity_to(term))
    await asyncio.sleep(2)
    assert (await places(world))["loner"] == ""

    await world.kube.merge_patch(Namespace, "other", {"metadata": {"labels": {"team": "b"}}})
    await asyncio.sleep(15)

    assert (await places(world))["loner"] == "mac-1"


@pytest.mark.parametrize(
    "spec",
    [
        {"schedulerName": "another"},
        {"schedulingGates": [{"name": "example.com/wait"}]},
        {"nodeName": "elsewhere"},
    ],
)
async def test_pods_of_other_schedulers_are_ignored(world: World, spec: dict[str, Any]) -> None:
    await world.node("mac-1")
    await world.pod("p", **spec)
    await asyncio.sleep(20)

    assert await places(world) == {"p": spec.get("nodeName", "")}
    assert await world.events("p") == []


async def test_priority_decides_which_pod_gets_the_last_capacity() -> None:
    async with a_world() as world:
        await world.node("mac-1", offers={"pods": "2"})
        for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 9)):
            await world.pod(name, priority=priority)
            await asyncio.sleep(1)

        async with running(world.manager(scheduler.add)):
            await asyncio.sleep(2)

        found = await places(world)
        assert {name for name, node in found.items() if node} == {"b", "d"}


async def test_waiting_pod_of_highest_priority_is_scheduled_first(world: World) -> None:
    await full(world)
    never = {"preemptionPolicy": "Never"}
    await world.pod("great", priority=9, **never)
    await asyncio.sleep(20)

    await remove(world, "p")
    await asyncio.sleep(2)

    assert await places(world) == {"q": "", "great": "mac-1"}


async def test_a_pod_of_higher_priority_preempts_another(world: World) -> None:
    await full(world)
    await world.pod("great", priority=9)
    await asyncio.sleep(1)

    victim, great = await world.find("p"), await world.find("great")
    assert victim is not None
    assert great is not None
    assert victim.deleting
    why = conditions.find(victim.status.conditions, "DisruptionTarget")
    assert why is not None
    assert why.reason == "PreemptionByScheduler"
    assert great.status.nominated_node_name == "mac-1"
    assert ("Preempted", f"Preempted by pod {great.uid} on node mac-1") in await world.events("p")

    await remove(world, "p")
    await asyncio.sleep(3)
    assert await places(world) == {"q": "", "great": "mac-1"}


async def test_concurrent_pods_never_exceed_the_capacity() -> None:
    async with a_world() as world:
        for number in range(20):
            await world.node(f"mac-{number}", offers={"pods": "2", "cpu": "8"})
        async with asyncio.TaskGroup() as group:
            for number in range(60):
                group.create_task(world.pod(f"p{number}", requests={"cpu": "1"}))

        async with running(world.manager(scheduler.add)):
            await asyncio.sleep(5)

        counted = Counter((await places(world)).values())
        assert counted.pop("") == 20
        assert set(counted.values()) == {2}
        assert len(counted) == 20


async def test_binding_with_a_lost_answer_keeps_its_capacity_and_is_not_repeated() -> None:
    async with a_world() as world:
        await world.node("mac-1", offers={"pods": "1"})
        await world.pod("p")
        await asyncio.sleep(1)
        await world.pod("q")
        bind = world.kube.bind
        lost = [1]

        async def losing(pod: Pod, node: str) -> None:
            await bind(pod, node)
            if lost:
                lost.pop()
                raise errors.TimedOut("the answer is lost")

        world.kube.bind = losing  # type: ignore[method-assign]
        async with running(world.manager(scheduler.add)):
            await asyncio.sleep(20)

        assert await places(world) == {"p": "mac-1", "q": ""}


async def test_refused_binding_frees_its_capacity() -> None:
    async with a_world() as world:
        await world.node("mac-1", offers={"pods": "1"})
        await world.pod("p")
        await asyncio.sleep(1)
        await world.pod("q")
        bind = world.kube.bind

        async def refusing(pod: Pod, node: str) -> None:
            if pod.name == "p":
                raise errors.Forbidden("not this one")
            await bind(pod, node)

        world.kube.bind = refusing  # type: ignore[method-assign]
        async with running(world.manager(scheduler.add)):
            await asyncio.sleep(20)

        assert await places(world) == {"p": "", "q": "mac-1"}
