"""A VM whose guest stops answering: its Pod becomes unready in time, recovers with its guest, and is never ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.api import conditions
from bramley.api.core import Event
from bramley.api.names import events
from bramley.sim.mac.settings_file import Fault
from tests import virtual_time
from tests.scenarios.agent_life.world import IMAGE, TAGGED, World, a_world

TIMINGS = {"address": 2.0, "agent": 2.5, "ready": 3.0}
IN_TIME = timedelta(seconds=90)


@asynccontextmanager
async def a_job(folder: Path, **guest: object) -> AsyncIterator[World]:
    """Create a world with a Pod whose guest runs for an hour."""
    async with a_world(folder) as world:
        world.mac.settings.timings(**TIMINGS)
        world.mac.settings.image(TAGGED, size_bytes=250_000_000, guest={"work": 3600.0, **guest})
        world.start()
        await world.pod("job", image=IMAGE)
        await until(world, "True")
        yield world


async def readiness(world: World) -> tuple[str, str, bool]:
    """Return status and reason of the Pod's Ready condition, and whether the container is ready."""
    pod = await world.find("job")
    assert pod is not None
    ready = conditions.find(pod.status.conditions, "Ready")
    ready_containers = [one.ready for one in pod.status.container_statuses]
    return (ready.status if ready else "", ready.reason if ready else "", all(ready_containers))


async def until(world: World, status: str, within: timedelta = timedelta(minutes=5)) -> None:
    async def is_reached() -> bool:
        return (await world.find("job")) is not None and (await readiness(world))[0] == status

    await world.until(is_reached, within=within, what=f"Ready is {status}")


async def counted(world: World) -> dict[str, int]:
    listed = (await world.kube.list(Event)).items
    ours = {events.GUEST_SILENT, events.GUEST_ANSWERS}
    return {each.reason: each.count for each in listed if each.reason in ours}


async def test_dead_guest_makes_its_pod_unready_in_time_until_it_answers_again(
    tmp_path: Path,
) -> None:
    async with a_job(tmp_path, falls_silent=200.0, silent_for=300.0) as world:
        began = world.clock.monotonic()
        await asyncio.sleep(200 - 10)
        assert await readiness(world) == ("True", "", True)
        await asyncio.sleep(10)

        await until(world, "False", IN_TIME)

        assert await readiness(world) == ("False", events.GUEST_SILENT, False)
        pod = await world.find("job")
        assert pod is not None
        assert pod.status.phase == "Running"
        [container] = pod.status.container_statuses
        assert (container.started, container.state.running is not None) == (True, True)
        await asyncio.sleep(120)
        assert await counted(world) == {events.GUEST_SILENT: 1}

        await until(world, "True")
        assert world.clock.monotonic() - began > 500
        await asyncio.sleep(1)
        assert await counted(world) == {events.GUEST_SILENT: 1, events.GUEST_ANSWERS: 1}
        assert len(world.mac.tart.started_vms) == 1


async def test_guest_that_stops_right_after_a_probe_is_unready_in_time(tmp_path: Path) -> None:
    async with a_job(tmp_path) as world:
        # Guests are probed each minute since the agent's start.
        await asyncio.sleep(120.5 - world.clock.monotonic())
        world.mac.faults.add("tart exec", "hang")
        began = world.clock.monotonic()

        await until(world, "False")

        assert world.clock.monotonic() - began <= IN_TIME.total_seconds()
        world.mac.faults.clear()
        await until(world, "True", timedelta(seconds=61))


async def test_silent_guest_keeps_running_and_ends_with_its_exit_code(tmp_path: Path) -> None:
    async with a_job(tmp_path, falls_silent=100.0, work=900.0, code=3) as world:
        await until(world, "False")

        async def has_ended() -> bool:
            pod = await world.find("job")
            return pod is not None and pod.status.phase == "Failed"

        await world.until(has_ended, within=timedelta(minutes=20), what="the end")
        pod = await world.find("job")
        assert pod is not None
        terminated = pod.status.container_statuses[0].state.terminated
        assert terminated is not None
        assert terminated.exit_code == 3


async def test_guest_without_an_agent_stays_ready(tmp_path: Path) -> None:
    async with a_job(tmp_path, has_agent=False) as world:
        await asyncio.sleep(600)

        assert await readiness(world) == ("True", "", True)
        assert await counted(world) == {}


@pytest.mark.parametrize(
    "hung", [("tart",), ("tart exec", "tart list")], ids=["all commands", "exec and list"]
)
async def test_hung_tart_makes_no_guest_silent(tmp_path: Path, hung: tuple[str, ...]) -> None:
    async with a_job(tmp_path) as world:
        await asyncio.sleep(130)
        for program in hung:
            if program == "tart":
                world.mac.faults._others.append(Fault(program, "hang"))
            else:
                world.mac.faults.add(program, "hang")
        await asyncio.sleep(600)

        assert await readiness(world) == ("True", "", True)


async def test_next_agent_keeps_the_liveness_of_a_guest(tmp_path: Path) -> None:
    async with a_job(tmp_path, falls_silent=100.0, silent_for=600.0) as world:
        await asyncio.sleep(95)
        await world.kill()
        await asyncio.sleep(20)
        world.start()
        await until(world, "False", IN_TIME)
        await world.kill()
        world.start()
        clock = virtual_time.clock()
        began = clock.monotonic()
        while clock.monotonic() - began < 120:
            await asyncio.sleep(1)
            assert (await readiness(world))[0] == "False"
        assert await counted(world) == {events.GUEST_SILENT: 1}

        await until(world, "True", timedelta(minutes=10))
