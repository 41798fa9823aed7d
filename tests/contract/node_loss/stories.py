"""What happens to Nodes and their Pods, played on a cluster: each story returns the end that all clusters must come to."""

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
Story = Callable[[Stage], Awaitable[Wire]]


def bearing(key: str, seconds: int | None = None) -> Wire:
    """Return a toleration of a taint that evicts, for ever or for so long."""
    found: Wire = {"key": key, "operator": "Exists", "effect": "NoExecute"}
    return found if seconds is None else {**found, "tolerationSeconds": seconds}


async def pods(stage: Stage, *names: str) -> Wire:
    """Return what became of these Pods, with what was told of them."""
    return {name: await one(stage, name) for name in names}


async def one(stage: Stage, name: str) -> Wire:
    """Return what became of a Pod."""
    return {**summary(await stage.see_pod(name)), "events": sorted(stage.told.get(name, ()))}


async def node(stage: Stage, name: str) -> Wire:
    """Return what became of a Node, with what was told of it."""
    await stage.heard(name, "RegisteredNode")
    seen = await stage.see_node(name)
    return {
        "taints": taints_of(seen),
        "conditions": conditions_of(seen),
        "events": sorted(stage.told.get(name, ())),
    }


async def silent(stage: Stage) -> Wire:
    """Lose a Node for good."""
    agent = await stage.agent("silent")
    await stage.pod("silent-usual", node="silent")
    await stage.pod("silent-hasty", node="silent", tolerations=[bearing(UNREACHABLE, 0)])
    await stage.pod("silent-patient", node="silent", tolerations=[bearing(UNREACHABLE)])

    agent.beating = False

    await stage.tainted("silent", *BOTH)
    await stage.going("silent-usual", "silent-hasty")
    for name in ("silent-usual", "silent-hasty"):
        await stage.heard(name, "Marking for deletion")
    await stage.heard("silent", "NodeNotReady")
    await stage.heard("silent-patient", "NodeNotReady")
    return {
        "node": await node(stage, "silent"),
        **await pods(stage, "silent-usual", "silent-hasty", "silent-patient"),
    }


async def back(stage: Stage) -> Wire:
    """Lose a Node for a while that its Pods bear."""
    agent = await stage.agent("back")
    await stage.pod("back-pod", node="back", tolerations=[bearing(UNREACHABLE, 30)])

    agent.beating = False
    await stage.tainted("back", *BOTH)
    agent.beating = True
    await agent.post()

    await stage.tainted("back")
    await stage.heard("back-pod", "Cancelling deletion")
    return {"node": await node(stage, "back"), **await pods(stage, "back-pod")}


async def never(stage: Stage) -> Wire:
    """Register a Node that never says anything."""
    await stage.kube.create(Node(metadata=ObjectMeta(name="never", labels={"zone": "never"})))
    await stage.tainted("never", *BOTH)
    return {"node": await node(stage, "never")}


async def unready(stage: Stage) -> Wire:
    """Hear from an agent that its Node is not ready, and then nothing more."""
    agent = await stage.agent("unready", Ready="False")
    await stage.pod("unready-pod", node="unready")
    await stage.pod("unready-patient", node="unready", tolerations=[bearing(NOT_READY)])
    await stage.tainted("unready", f"{NOT_READY}:NoExecute", f"{NOT_READY}:NoSchedule")
    await stage.going("unready-pod")
    await stage.heard("unready-pod", "Marking for deletion")
    first = {
        "node": await node(stage, "unready"),
        **await pods(stage, "unready-pod", "unready-patient"),
    }

    agent.beating = False

    await stage.tainted("unready", *BOTH)
    await stage.going("unready-patient")
    return {"told": first, "silent": conditions_of(await stage.see_node("unready"))}


async def pressed(stage: Stage) -> Wire:
    """Put a Node under every pressure, close it, and open it again."""
    agent = await stage.agent("pressed")
    await stage.pod("pressed-pod", node="pressed")
    pressures = {"memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable"}
    expected = [f"node.kubernetes.io/{each}:NoSchedule" for each in pressures]

    await agent.post(
        MemoryPressure="True", DiskPressure="True", PIDPressure="True", NetworkUnavailable="True"
    )
    await stage.tainted("pressed", *expected)
    await stage.kube.merge_patch(Node, "pressed", {"spec": {"unschedulable": True}})
    await stage.tainted("pressed", *expected, "node.kubernetes.io/unschedulable:NoSchedule")
    await agent.post()
    await stage.tainted("pressed", "node.kubernetes.io/unschedulable:NoSchedule")
    await stage.kube.merge_patch(Node, "pressed", {"spec": {"unschedulable": None}})
    await stage.tainted("pressed")
    return {"node": await node(stage, "pressed"), **await pods(stage, "pressed-pod")}


async def tainted(stage: Stage) -> Wire:
    """Taint a Node by hand."""
    await stage.agent("tainted")
    await stage.pod("tainted-bare", node="tainted")
    await stage.pod("tainted-while", node="tainted", tolerations=[bearing("repair", 6)])
    await stage.pod("tainted-ever", node="tainted", tolerations=[bearing("repair")])
    await stage.pod("tainted-left", node="tainted", tolerations=[bearing("repair", 40)])
    await stage.pod("tainted-going", node="tainted")
    await stage.kube.delete(Pod, "tainted-going", namespace=NAMESPACE)

    taint = {"key": "repair", "value": "now", "effect": "NoExecute"}
    await stage.kube.merge_patch(Node, "tainted", {"spec": {"taints": [taint]}})

    await stage.going("tainted-bare")
    early = await stage.see_pod("tainted-while")
    await stage.going("tainted-while")
    for name in ("tainted-bare", "tainted-while", "tainted-going"):
        await stage.heard(name, "Marking for deletion")
    grace = timedelta()
    await stage.kube.delete(Pod, "tainted-left", namespace=NAMESPACE, grace=grace)
    await stage.heard("tainted-left", "Cancelling deletion")
    ends = await pods(stage, "tainted-bare", "tainted-while", "tainted-ever", "tainted-going")
    return {"at first": early.deleting, "left": sorted(stage.told["tainted-left"]), **ends}


async def twice(stage: Stage) -> Wire:
    """Taint a Node again while the time of its Pods runs: with what one bears for less time, and another not at all."""
    await stage.agent("twice")
    await stage.pod("twice-less", node="twice", tolerations=[bearing("k", 14), bearing("again", 1)])
    await stage.pod("twice-bare", node="twice", tolerations=[bearing("k", 30)])
    taints = [{"key": key, "effect": "NoExecute"} for key in ("k", "again")]

    await stage.kube.merge_patch(Node, "twice", {"spec": {"taints": taints[:1]}})
    await asyncio.sleep(2)
    await stage.kube.merge_patch(Node, "twice", {"spec": {"taints": taints}})
    await stage.going("twice-bare")
    await asyncio.sleep(2.5)
    early = await stage.see_pod("twice-less")
    await stage.going("twice-less")

    for name in ("twice-less", "twice-bare"):
        await stage.heard(name, "Marking for deletion")
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


async def collected(stage: Stage) -> Wire:
    """Leave Pods behind that nobody removes: one that goes without ever having had a Node, and ended ones."""
    # Ended Pods go oldest first, so that of the story beside this one has to be older than all of these ...
    await until(lambda: stage.exists("deleted-done"))
    done: Wire = {"phase": "Succeeded"}
    evicted: Wire = {"phase": "Failed", "reason": "Evicted"}
    ended = {"old": done, "older": done, "one": done, "evicted": evicted}
    for name, status in ended.items():
        await stage.pod(f"ended-{name}", status=status)
    # ... and the pass that collects this one has to have seen them all.
    await stage.pod("a-held", status={}, finalizers=["example.com/hold"])
    await stage.kube.delete(Pod, "a-held", namespace=NAMESPACE)

    async def is_collected() -> bool:
        return bool(summary(await stage.see_pod("a-held"))["phase"] == "Failed")

    await until(is_collected)
    names = {each.name for each in (await stage.kube.list(Pod, namespace=NAMESPACE)).items}
    left = sorted(name for name in names if name.startswith("ended-"))
    return {"left": left, **await pods(stage, "a-held")}


async def forgotten(stage: Stage) -> Wire:
    """Tell two events, and one of them again later."""
    began = stage.clock.monotonic()
    for name in ("stale", "fresh"):
        now = stage.clock.now().replace(microsecond=0)
        await stage.kube.create(
            Event(
                metadata=ObjectMeta(name=name, namespace=NAMESPACE),
                involved_object=ObjectReference(kind="Pod", name=name, namespace=NAMESPACE),
                reason="Told",
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

    async def is_forgotten() -> bool:
        return "stale" not in await names()

    await until(is_forgotten)
    took = timedelta(seconds=stage.clock.monotonic() - began)
    return {"left": sorted(await names()), "in time": took > EVENT_TTL - timedelta(seconds=2)}


async def drained(stage: Stage) -> Wire:
    """Drain a Node with kubectl, against a budget that gives way later."""
    agent = await stage.agent("drained")
    agent.lets_go = True
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
        "said": sorted(set(lines)),
        "in between": in_between,
        "left": [each.name for each in left],
        "taints": taints_of(await stage.see_node("drained")),
    }


@asynccontextmanager
async def kubectl(
    stage: Stage, *arguments: str
) -> AsyncIterator[tuple[list[str], Callable[[], Awaitable[int]]]]:
    """Run kubectl, and give what it has said so far and how to wait for its end."""
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


async def everyone(stage: Stage) -> Wire:
    """Lose one Node after the other until none is left, and get one back.

    The last to fall silent has no Pod: a real controller may have begun to taint it when it notices that it was the last.
    """
    watched = ("first-pod", "second-pod")
    for name in ("first", "second"):
        await stage.pod(f"{name}-pod", node=name, tolerations=[bearing(UNREACHABLE, 16)])

    for agent in stage.agents.values():
        agent.beating = agent.node == "last"
    for name in ("first", "second"):
        await stage.tainted(name, *BOTH)
    stage.agents["last"].beating = False

    for name in ("first", "second"):
        await stage.tainted(name, BOTH[1])
        await stage.heard(f"{name}-pod", "Cancelling deletion")
    await asyncio.sleep(11)
    quiet = {"node": await node(stage, "first"), **await pods(stage, *watched)}

    stage.agents["first"].beating = True
    await stage.agents["first"].post()

    await stage.tainted("first")
    await stage.tainted("second", *BOTH)
    await stage.going("second-pod")
    await stage.heard("second-pod", "Marking for deletion")
    loud = {"node": await node(stage, "second"), **await pods(stage, *watched)}
    return {"all silent": quiet, "one is back": loud}


SLOW: tuple[Story, ...] = (deleted, collected, forgotten)
AT_ONCE: tuple[Story, ...] = (silent, back, never, unready, pressed, tainted, twice)


async def perform(stage: Stage) -> dict[str, Any]:
    """Play all stories and return their ends; a story that fails ends in its error."""
    ends: dict[str, Any] = {}

    async def play(story: Story) -> None:
        try:
            ends[story.__name__] = await story(stage)
        except (TimeoutError, AssertionError, errors.BramleyError, ExceptionGroup) as error:
            ends[story.__name__] = error

    await stage.open()
    async with asyncio.TaskGroup() as group:
        beside = [group.create_task(each) for each in (stage.listen(), stage.beat())]
        for name in ("first", "second", "last"):
            await stage.agent(name)
        async with asyncio.TaskGroup() as slow:
            for story in SLOW:
                slow.create_task(play(story))
            async with asyncio.TaskGroup() as quick:
                for story in (*AT_ONCE, *((drained,) if stage.kubectl else ())):
                    quick.create_task(play(story))
            await play(everyone)
        for task in beside:
            task.cancel()
    return ends
