"""What the Node reports about guests that no Pod has: those of Docker, Linux guests, bakes, and a leaked slot."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path

from bramley.agent.gc import leases
from bramley.agent.gc.leases import Lease
from bramley.agent.platform.system import GUEST_SERVICE
from bramley.api import conditions
from bramley.api.core import Node, Pod
from bramley.sim.mac.processes import Call, Process
from tests.scenarios.agent_life.world import (
    IMAGE,
    NAMESPACE,
    NODE,
    TAGGED,
    World,
    a_world,
    is_ready,
)

SERVICE = f"/System/Library/Frameworks/Virtualization.framework/{GUEST_SERVICE}"
SOON = timedelta(minutes=3)
HOURS = timedelta(hours=2).total_seconds()


def ignore(_line: str) -> None:
    return


async def forever(_: Process) -> int:
    await asyncio.get_running_loop().create_future()
    return 0


async def tart(world: World, *arguments: str) -> None:
    process = world.mac.start(Call(("tart", *arguments), ignore, ignore, {}), parent=1)
    assert await process.exit_code == 0


async def slots(world: World) -> tuple[str, str]:
    """Return the status of SlotLeaked, and for how many Pods the Node has room."""
    status = (await world.kube.get(Node, NODE)).status
    found = conditions.find(status.conditions, "SlotLeaked")
    return (found.status if found else "", str(status.allocatable["pods"]))


async def running(world: World) -> set[str]:
    pods = (await world.kube.list(Pod, namespace=NAMESPACE)).items
    return {pod.name for pod in pods if pod.status.phase == "Running"}


async def started(world: World) -> None:
    world.start()
    await world.until(lambda: is_ready(world.kube), within=SOON, what="Ready")


async def until_running(world: World, *names: str) -> None:
    async def check() -> bool:
        return await running(world) >= set(names)

    await world.until(check, within=SOON, what=f"{names} run")


async def test_docker_and_linux_guests_take_no_slots(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.settings.image(TAGGED, guest={"work": HOURS})
        world.mac.table.spawn((SERVICE,), forever)
        world.mac.settings.guest("ubuntu", work=HOURS)
        await tart(world, "create", "--linux", "ubuntu")
        run = Call(("tart", "run", "ubuntu"), ignore, ignore, {})
        linux = world.mac.start(run, parent=1)
        await started(world)
        for name in ("one", "two"):
            await world.pod(name)
        await until_running(world, "one", "two")
        await asyncio.sleep(60)
        before = await slots(world)
        await world.kill()
        await started(world)
        await asyncio.sleep(60)

        assert (before, await slots(world)) == (("False", "2"), ("False", "2"))
        assert await running(world) == {"one", "two"}
        assert linux.is_alive


async def test_bake_under_a_lease_takes_one_slot_and_is_no_leak(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.settings.image(TAGGED, guest={"work": HOURS})
        await tart(world, "clone", IMAGE, "bake")
        packer = world.mac.table.spawn(("packer", "build"), forever)
        handle = leases.acquire(world.mac.folders.leases, Lease(vms=("base",), pid=packer.pid))
        run = Call(("tart", "run", "bake"), ignore, ignore, {})
        bake = world.mac.start(run, parent=packer.pid)
        await started(world)
        await asyncio.sleep(60)
        during = await slots(world)
        await world.pod("one")
        await until_running(world, "one")
        world.mac.table.kill(bake.pid)
        world.mac.table.kill(packer.pid)
        os.close(handle)
        await world.pod("two")
        await until_running(world, "one", "two")
        await asyncio.sleep(60)

        assert (during, await slots(world)) == (("False", "1"), ("False", "2"))


async def test_leaked_slot_is_reported_after_a_refusal_and_until_the_reboot(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        world.mac.settings.image(TAGGED, guest={"work": HOURS})
        world.mac.settings.host(leaked_slots=1)
        await started(world)
        for name in ("one", "two"):
            await world.pod(name)

        async def is_reported() -> bool:
            return await slots(world) == ("True", "1")

        async def one_runs() -> bool:
            return len(await running(world)) == 1

        await world.until(is_reported, within=SOON, what="reported")
        await world.kill()
        await started(world)
        await world.until(is_reported, within=SOON, what="reported by the next agent")
        await world.until(one_runs, within=SOON, what="the other slot is used")
        await world.reboot()
        await started(world)
        await asyncio.sleep(60)

        assert await slots(world) == ("False", "2")
