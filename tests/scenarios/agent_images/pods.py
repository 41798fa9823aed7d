"""Pods of the scenarios: created on a running agent, and awaited by phase."""

from __future__ import annotations

from datetime import timedelta

from bramley.api.core import Event
from bramley.api.names import events
from tests.scenarios.agent_life.world import NAMESPACE, TAGGED, World, is_ready


async def has_phase(world: World, name: str, *phases: str) -> bool:
    pod = await world.find(name)
    return pod is not None and pod.status.phase in phases


async def is_gone(world: World, name: str) -> bool:
    return await world.find(name) is None


async def until_phase(world: World, name: str, *phases: str, within: float) -> float:
    """Wait for one of the phases and return how long it took."""
    began = world.clock.monotonic()
    await world.until(
        lambda: has_phase(world, name, *phases),
        within=timedelta(seconds=within),
        what=f"{name} is {' or '.join(phases)}",
    )
    return world.clock.monotonic() - began


async def start_with_pod(world: World, name: str = "job") -> None:
    """Start the agent, and a Pod whose guest runs until it is stopped."""
    # It has its address at once, so that the phase shows when its VM runs.
    world.mac.settings.image(TAGGED, guest={"then": "stay", "work": 9e4, "address": 0.5})
    world.start()
    await world.until(lambda: is_ready(world.kube), within=timedelta(seconds=30), what="Ready")
    await world.pod(name)
    await until_phase(world, name, "Running", within=600)


async def failure_messages(world: World, pod: str) -> list[str]:
    """Return the events about failed attempts to create the VM of a Pod."""
    listed = await world.kube.list(Event, namespace=NAMESPACE)
    return [
        event.message
        for event in listed.items
        if event.reason == events.CREATE_FAILED and event.involved_object.name == pod
    ]
