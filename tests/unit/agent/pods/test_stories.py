"""Random stories: Pods come and go, tart and the API fail, agents die and the host is rebooted; what must never happen, does not.

After all faults are healed and all Pods are deleted, nothing is left.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bramley.api.names import finalizers
from bramley.base import errors, virtual_time
from tests.unit.agent.pods.world import World, a_world

NAMES = ("a", "b", "c")
FAULTS = (
    ("tart clone", "fail", {"times": 1}),
    ("tart clone", "half", {"times": 1}),
    ("tart clone", "slow", {"times": 2, "seconds": 40.0}),
    ("tart clone", "hang", {"times": 1}),
    ("tart set", "fail", {"times": 1}),
    ("tart run", "no_session", {"times": 1}),
    ("tart run", "nvram_locked", {"times": 1}),
    ("tart stop", "hang", {"times": 1}),
    ("tart delete", "fail", {"times": 1}),
    ("tart delete", "hang", {"times": 1}),
    ("tart ip", "hang", {"times": 1}),
    ("tart exec", "no_agent", {"times": 1}),
    ("tart pull", "fail", {"times": 1}),
)

Deed = Callable[[World], Awaitable[None]]


def creating(name: str) -> Deed:
    async def deed(world: World) -> None:
        try:
            await world.pod(name, termination_grace_period_seconds=15)
        except errors.AlreadyExists:
            return

    return deed


def deleting(name: str, grace: timedelta | None) -> Deed:
    async def deed(world: World) -> None:
        try:
            await world.delete(name, grace=grace)
        except errors.NotFound:
            return

    return deed


def tearing(name: str) -> Deed:
    """Delete by force, without asking the agent."""

    async def deed(world: World) -> None:
        try:
            await world.free(name)
            await world.delete(name, grace=timedelta())
        except errors.NotFound:
            return

    return deed


def passing(seconds: float) -> Deed:
    async def deed(_world: World) -> None:
        await asyncio.sleep(seconds)

    return deed


def failing(number: int) -> Deed:
    async def deed(world: World) -> None:
        program, do, details = FAULTS[number]
        world.mac.faults.add(program, do, **details)

    return deed


async def healing(world: World) -> None:
    world.mac.faults.heal()


def cutting(seconds: float) -> Deed:
    async def deed(world: World) -> None:
        world.is_cut = True
        await asyncio.sleep(seconds)
        world.is_cut = False

    return deed


async def killing(world: World) -> None:
    await world.kill()
    world.start()


def killing_at(moments: int) -> Deed:
    """Let the agent die after so many of its effects, wherever that is."""

    async def deed(world: World) -> None:
        life, left = world.life, [moments]

        def pass_by(_moment: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                life.side.die()
                # At once, for what is dead must not go on in no time at all.
                life.task.cancel()

        life.side.on_moment = pass_by

    return deed


async def rebooting(world: World) -> None:
    world.life.side.die()
    world.mac.reboot()
    await world.kill()
    world.start()


def deeds() -> st.SearchStrategy[Deed]:
    names = st.sampled_from(NAMES)
    return st.one_of(
        names.map(creating),
        names.map(creating),
        st.builds(deleting, names, st.sampled_from([None, timedelta(seconds=2)])),
        names.map(tearing),
        st.sampled_from([0.3, 2.0, 15.0]).map(passing),
        st.sampled_from([30.0, 90.0]).map(passing),
        st.integers(0, len(FAULTS) - 1).map(failing),
        st.just(healing),
        st.sampled_from([5.0, 60.0]).map(cutting),
        st.just(killing),
        st.integers(0, 25).map(killing_at),
        st.just(rebooting),
    )


def check(world: World) -> None:
    boots = Counter(world.mac.world.switched_on)
    assert not [vm for vm, count in boots.items() if count > 1], "a disk has booted twice"
    assert world.mac.world.most_at_once <= 2


async def check_pods(world: World) -> None:
    """A Pod whose VM is here is held by our finalizer, unless somebody took it off and deleted the Pod."""
    records = {record.uid: record for record in world.means.ledger.vms().values()}
    for name in NAMES:
        pod = await world.find(name)
        if pod is not None and pod.uid in records and records[pod.uid].vm in world.vms():
            assert finalizers.VM_CLEANUP in pod.metadata.finalizers


async def live(story: list[Deed], folder: Path) -> None:
    async with a_world(folder, work=30.0) as world:
        for deed in story:
            await deed(world)
            if not world.life.side.lives:
                await killing(world)
            check(world)
            await check_pods(world)
        world.mac.faults.heal()
        if world.life.side.on_moment is not None:
            await killing(world)
        for name in NAMES:
            await deleting(name, None)(world)
        for name in NAMES:
            await world.until_gone(name, within=900)
        await world.until(world.nothing_left, within=900)
        check(world)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.lists(deeds(), min_size=4, max_size=25))
def test_no_story_boots_a_disk_twice_or_leaves_anything(story: list[Deed]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        virtual_time.run(live(story, Path(folder)))
