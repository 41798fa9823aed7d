"""Scenarios of lost, tainted, drained and deleted Nodes; each returns the outcome that all clusters must have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from bramley.api.core import Event, Node, ObjectReference, Pod
from bramley.api.meta import ObjectMeta
from bramley.api.policy import PodDisruptionBudget
from bramley.base import errors
from tests.contract.node_loss.stage import (
    NAMESPACE,
    Stage,
    Wire,
    conditions_of,
    summary,
    taints_of,
    until,
)
from tests.contract.node_loss.timings import EVENT_TTL

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
BOTH = (f"{UNREACHABLE}:NoExecute", f"{UNREACHABLE}:NoSchedule")
Scenario = Callable[[Stage], Awaitable[Wire]]


def toleration(key: str, seconds: int | None = None) -> Wire:
    """Return a toleration of a taint that evicts, for ever or for this long."""
    found: Wire = {"key": key, "operator": "Exists", "effect": "NoExecute"}
    return found if seconds is None else {**found, "tolerationSeconds": seconds}


async def pods(stage: Stage, *names: str) -> Wire:
    """Return the state of these Pods with their events."""
    return {name: await one(stage, name) for name in names}


async def one(stage: Stage, name: str) -> Wire:
    """Return the state of a Pod with its events."""
    return {**summary(await stage.get_pod(name)), "events": sorted(stage.events.get(name, ()))}


async def node(stage: Stage, name: str) -> Wire:
    """Return the state of a Node with its events."""
    await stage.has_event(name, "RegisteredNode")
    seen = await stage.get_node(name)
    return {
        "taints": taints_of(seen),
        "conditions": conditions_of(seen),
        "events": sorted(stage.events.get(name, ())),
    }


async def lost(stage: Stage) -> Wire:
    """Lose a Node for good."""
    agent = await stage.agent("silent")
    await stage.pod("silent-usual", node="silent")
    await stage.pod("silent-hasty", node="silent", tolerations=[toleration(UNREACHABLE, 0)])
    await stage.pod("silent-patient", node="silent", tolerations=[toleration(UNREACHABLE)])

    agent.beating = False

    await stage.has_taints("silent", *BOTH)
    await stage.are_deleting("silent-usual", "silent-hasty")
    for name in ("silent-usual", "silent-hasty"):
        await stage.has_event(name, "Marking for deletion")
    await stage.has_event("silent", "NodeNotReady")
    await stage.has_event("silent-patient", "NodeNotReady")
    return {
        "node": await node(stage, "silent"),
        **await pods(stage, "silent-usual", "silent-hasty", "silent-patient"),
    }


async def recovered(stage: Stage) -> Wire:
    """Lose a Node for a while that its Pods tolerate."""
    agent = await stage.agent("back")
    await stage.pod("back-pod", node="back", tolerations=[toleration(UNREACHABLE, 30)])

    agent.beating = False
    await stage.has_taints("back", *BOTH)
    agent.beating = True
    await agent.post()

    await stage.has_taints("back")
    await stage.has_event("back-pod", "Cancelling deletion")
    return {"node": await node(stage, "back"), **await pods(stage, "back-pod")}


async def never_reported(stage: Stage) -> Wire:
    """Register a Node whose agent never publishes a status."""
    await stage.kube.create(Node(metadata=ObjectMeta(name="never", labels={"zone": "never"})))
    await stage.has_taints("never", *BOTH)
    return {"node": await node(stage, "never")}


async def unready(stage: Stage) -> Wire:
    """Have an agent publish that its Node is not ready, then stop its heartbeats."""
    agent = await stage.agent("unready", Ready="False")
    await stage.pod("unready-pod", node="unready")
    await stage.pod("unready-patient", node="unready", tolerations=[toleration(NOT_READY)])
    await stage.has_taints("unready", f"{NOT_READY}:NoExecute", f"{NOT_READY}:NoSchedule")
    await stage.are_deleting("unready-pod")
    await stage.has_event("unready-pod", "Marking for deletion")
    first = {
        "node": await node(stage, "unready"),
        **await pods(stage, "unready-pod", "unready-patient"),
    }

    agent.beating = False

    await stage.has_taints("unready", *BOTH)
    await stage.are_deleting("unready-patient")
    return {"reported": first, "silent": conditions_of(await stage.get_node("unready"))}


async def under_pressure(stage: Stage) -> Wire:
    """Put a Node under every pressure, cordon it, and reverse both."""
    agent = await stage.agent("pressed")
    await stage.pod("pressed-pod", node="pressed")
    pressures = {"memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable"}
    expected = [f"node.kubernetes.io/{each}:NoSchedule" for each in pressures]

    await agent.post(
        MemoryPressure="True", DiskPressure="True", PIDPressure="True", NetworkUnavailable="True"
    )
    await stage.has_taints("pressed", *expected)
    await stage.kube.merge_patch(Node, "pressed", {"spec": {"unschedulable": True}})
    await stage.has_taints("pressed", *expected, "node.kubernetes.io/unschedulable:NoSchedule")
    await agent.post()
    await stage.has_taints("pressed", "node.kubernetes.io/unschedulable:NoSchedule")
    await stage.kube.merge_patch(Node, "pressed", {"spec": {"unschedulable": None}})
    await stage.has_taints("pressed")
    return {"node": await node(stage, "pressed"), **await pods(stage, "pressed-pod")}


async def tainted(stage: Stage) -> Wire:
    """Taint a Node by hand."""
    await stage.agent("tainted")
    await stage.pod("tainted-bare", node="tainted")
    await stage.pod("tainted-while", node="tainted", tolerations=[toleration("repair", 6)])
    await stage.pod("tainted-ever", node="tainted", tolerations=[toleration("repair")])
    await stage.pod("tainted-left", node="tainted", tolerations=[toleration("repair", 40)])
    await stage.pod("tainted-going", node="tainted")
    await stage.kube.delete(Pod, "tainted-going", namespace=NAMESPACE)

    taint = {"key": "repair", "value": "now", "effect": "NoExecute"}
    await stage.kube.merge_patch(Node, "tainted", {"spec": {"taints": [taint]}})

    await stage.are_deleting("tainted-bare")
    early = await stage.get_pod("tainted-while")
    await stage.are_deleting("tainted-while")
    for name in ("tainted-bare", "tainted-while", "tainted-going"):
        await stage.has_event(name, "Marking for deletion")
    grace = timedelta()
    await stage.kube.delete(Pod, "tainted-left", namespace=NAMESPACE, grace=grace)
    await stage.has_event("tainted-left", "Cancelling deletion")
    ends = await pods(stage, "tainted-bare", "tainted-while", "tainted-ever", "tainted-going")
    return {"at first": early.deleting, "left": sorted(stage.events["tainted-left"]), **ends}


async def tainted_twice(stage: Stage) -> Wire:
    """Taint a Node again while the time of its Pods runs: one Pod tolerates the second taint for less time, another not at all."""
    await stage.agent("twice")
    await stage.pod(
        "twice-less", node="twice", tolerations=[toleration("k", 14), toleration("again", 1)]
    )
    await stage.pod("twice-bare", node="twice", tolerations=[toleration("k", 30)])
    taints = [{"key": key, "effect": "NoExecute"} for key in ("k", "again")]

    await stage.kube.merge_patch(Node, "twice", {"spec": {"taints": taints[:1]}})
    await asyncio.sleep(2)
    await stage.kube.merge_patch(Node, "twice", {"spec": {"taints": taints}})
    await stage.are_deleting("twice-bare")
    await asyncio.sleep(2.5)
    early = await stage.get_pod("twice-less")
    await stage.are_deleting("twice-less")

    for name in ("twice-less", "twice-bare"):
        await stage.has_event(name, "Marking for deletion")
    return {"after the second": early.deleting, **await pods(stage, "twice-less", "twice-bare")}


async def deleted(stage: Stage) -> Wire:
    """Delete a Node under its Pod."""
    await stage.kube.create(Node(metadata=ObjectMeta(name="deleted")))
    await stage.pod("deleted-pod", node="deleted", tolerations=[{"operator": "Exists"}])
    await stage.kube.delete(Node, "deleted")
    await stage.pod("deleted-done", node="deleted", status={"phase": "Succeeded"})
    async with asyncio.TaskGroup() as group:
        ends = {
            name: group.create_task(stage.end_of(name)) for name in ("deleted-pod", "deleted-done")
        }
    return {name: summary(task.result()) for name, task in ends.items()}


async def garbage_collected(stage: Stage) -> Wire:
    """Leave Pods for the garbage collector: a terminating one that never had a Node, and ended ones."""
    # RunExit Pods are collected oldest first, so the one of `deleted`, which runs concurrently, must be older than these ...
    await until(lambda: stage.exists("deleted-done"))
    done: Wire = {"phase": "Succeeded"}
    evicted: Wire = {"phase": "Failed", "reason": "Evicted"}
    ended = {"old": done, "older": done, "one": done, "evicted": evicted}
    for name, status in ended.items():
        await stage.pod(f"ended-{name}", status=status)
    # ... and the pass that collects this one must have seen them all.
    await stage.pod("a-held", status={}, finalizers=["example.com/hold"])
    await stage.kube.delete(Pod, "a-held", namespace=NAMESPACE)

    async def is_collected() -> bool:
        return bool(summary(await stage.get_pod("a-held"))["phase"] == "Failed")

    await until(is_collected)
    names = {each.name for each in (await stage.kube.list(Pod, namespace=NAMESPACE)).items}
    left = sorted(name for name in names if name.startswith("ended-"))
    return {"left": left, **await pods(stage, "a-held")}


async def expired_events(stage: Stage) -> Wire:
    """Create two events, and update one of them later."""
    began = stage.clock.monotonic()
    for name in ("stale", "fresh"):
        now = stage.clock.now().replace(microsecond=0)
        await stage.kube.create(
            Event(
                metadata=ObjectMeta(name=name, namespace=NAMESPACE),
                involved_object=ObjectReference(kind="Pod", name=name, namespace=NAMESPACE),
                reason="Recorded",
                type="Normal",
                last_timestamp=now,
            )
        )
    await asyncio.sleep(EVENT_TTL.total_seconds() / 2)
    again = {"count": 2, "lastTimestamp": f"{stage.clock.now():%Y-%m-%dT%H:%M:%SZ}"}
    await stage.kube.merge_patch(Event, "fresh", again, namespace=NAMESPACE)

    async def names() -> set[str]:
        listed = await stage.kube.list(Event, namespace=NAMESPACE)
        return {each.name for each in listed.items} & {"stale", "fresh"}

    async def is_expired() -> bool:
        return "stale" not in await names()

    await until(is_expired)
    took = timedelta(seconds=stage.clock.monotonic() - began)
    return {"left": sorted(await names()), "in time": took > EVENT_TTL - timedelta(seconds=2)}


async def drained(stage: Stage) -> Wire:
    """Drain a Node with kubectl, against a disruption budget that is relaxed later."""
    agent = await stage.agent("drained")
    agent.finishes_pods = True
    for name in ("drained-a", "drained-b"):
        await stage.pod(name, node="drained", labels={"app": "drained"})
    await stage.kube.create_wire(
        PodDisruptionBudget.resource,
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "keep"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "drained"}}},
        },
        namespace=NAMESPACE,
    )

    async def is_counted() -> bool:
        found = await stage.kube.get(PodDisruptionBudget, "keep", namespace=NAMESPACE)
        return found.status.current_healthy == 2

    await until(is_counted)
    async with kubectl(stage, "drain", "drained", "--force", "--timeout=150s") as (lines, code):

        async def is_refused() -> bool:
            return sum("Cannot evict pod" in line for line in lines) >= 2

        await until(is_refused)
        in_between = await pods(stage, "drained-a", "drained-b")
        patch = {"spec": {"minAvailable": 0}}
        await stage.kube.merge_patch(PodDisruptionBudget, "keep", patch, namespace=NAMESPACE)
        exit_code = await code()
    left = (await stage.kube.list(Pod, namespace=NAMESPACE, labels="app=drained")).items
    return {
        "exit": exit_code,
        "output": sorted(set(lines)),
        "in between": in_between,
        "left": [each.name for each in left],
        "taints": taints_of(await stage.get_node("drained")),
    }


@asynccontextmanager
async def kubectl(
    stage: Stage, *arguments: str
) -> AsyncIterator[tuple[list[str], Callable[[], Awaitable[int]]]]:
    """Run kubectl; give the lines it has printed so far and a function that waits for its exit."""
    process = await asyncio.create_subprocess_exec(
        *stage.kubectl, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    assert process.stdout is not None
    output = process.stdout
    lines: list[str] = []

    async def read() -> None:
        while line := await output.readline():
            lines.append(line.decode().rstrip())

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())

        async def ended() -> int:
            await reading
            return await process.wait()

        try:
            yield lines, ended
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def all_nodes_lost(stage: Stage) -> Wire:
    """Lose one Node after the other until none is left, and get one back.

    The last Node has no Pod: a real controller may have begun to taint it when it notices that it was the last.
    """
    watched = ("first-pod", "second-pod")
    for name in ("first", "second"):
        await stage.pod(f"{name}-pod", node=name, tolerations=[toleration(UNREACHABLE, 16)])

    for agent in stage.agents.values():
        agent.beating = agent.node == "last"
    for name in ("first", "second"):
        await stage.has_taints(name, *BOTH)
    stage.agents["last"].beating = False

    for name in ("first", "second"):
        await stage.has_taints(name, BOTH[1])
        await stage.has_event(f"{name}-pod", "Cancelling deletion")
    await asyncio.sleep(11)
    quiet = {"node": await node(stage, "first"), **await pods(stage, *watched)}

    stage.agents["first"].beating = True
    await stage.agents["first"].post()

    await stage.has_taints("first")
    await stage.has_taints("second", *BOTH)
    await stage.are_deleting("second-pod")
    await stage.has_event("second-pod", "Marking for deletion")
    loud = {"node": await node(stage, "second"), **await pods(stage, *watched)}
    return {"all silent": quiet, "one is back": loud}


SLOW: tuple[Scenario, ...] = (deleted, garbage_collected, expired_events)
AT_ONCE: tuple[Scenario, ...] = (
    lost,
    recovered,
    never_reported,
    unready,
    under_pressure,
    tainted,
    tainted_twice,
)


async def run_all(stage: Stage) -> dict[str, Any]:
    """Run all scenarios and return their outcomes; the outcome of one that fails is its error."""
    outcomes: dict[str, Any] = {}

    async def run(scenario: Scenario) -> None:
        try:
            outcomes[scenario.__name__] = await scenario(stage)
        except (TimeoutError, AssertionError, errors.BramleyError, ExceptionGroup) as error:
            outcomes[scenario.__name__] = error

    await stage.open()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(each) for each in (stage.record_events(), stage.send_heartbeats())
        ]
        for name in ("first", "second", "last"):
            await stage.agent(name)
        async with asyncio.TaskGroup() as slow:
            for scenario in SLOW:
                slow.create_task(run(scenario))
            async with asyncio.TaskGroup() as quick:
                for scenario in (*AT_ONCE, *((drained,) if stage.kubectl else ())):
                    quick.create_task(run(scenario))
            await run(all_nodes_lost)
        for task in tasks:
            task.cancel()
    return outcomes
