"""The client and the embedded server together under virtual time: hours in no time, and the same run from the same seed."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

from bramley.api.core import ConfigMap
from bramley.api.meta import ObjectMeta
from bramley.app import embedded
from bramley.kube.client import Client
from tests import virtual_time


async def an_hour_of_changes() -> list[tuple[float, str, str]]:
    """Change objects for an hour and return the events of a watch that is renewed every five minutes."""
    clock = virtual_time.clock()
    async with embedded.running(clock=clock) as (api, token):
        kube = Client(api.transport(token), clock=clock)
        seen: list[tuple[float, str, str]] = []
        async with asyncio.timeout(3600 * 2), asyncio.TaskGroup() as group:
            watching = group.create_task(follow(kube, seen))
            writers = [group.create_task(write(kube, number)) for number in range(5)]
            await asyncio.wait(writers)
            await asyncio.sleep(400)
            watching.cancel()
        return seen


async def write(kube: Client, number: int) -> None:
    rng = random.Random(number)
    name = f"writer-{number}"
    await kube.create(ConfigMap(metadata=ObjectMeta(name=name)), namespace="default")
    for turn in range(20):
        await asyncio.sleep(rng.uniform(0, 360))
        patch = {"data": {"turn": str(turn)}}
        await kube.merge_patch(ConfigMap, name, patch, namespace="default")


async def follow(kube: Client, seen: list[tuple[float, str, str]]) -> None:
    loop = asyncio.get_running_loop()
    version = (await kube.list(ConfigMap, namespace="default")).resource_version
    while True:
        async with kube.watch(
            ConfigMap, namespace="default", resource_version=version, timeout=timedelta(minutes=5)
        ) as watch:
            async for event in watch:
                version = event.object.metadata.resource_version
                seen.append((loop.time(), event.type, event.object.name))


def test_watch_of_an_hour_misses_no_change() -> None:
    seen = virtual_time.run(an_hour_of_changes(), seed=1)

    changes = [(kind, name) for _, kind, name in seen if kind != "BOOKMARK"]
    assert len(changes) == 5 * 21
    assert changes.count(("MODIFIED", "writer-3")) == 20
    assert any(kind == "BOOKMARK" for _, kind, _ in seen)
    assert seen[-1][0] > 3600


def test_the_same_seed_gives_the_same_run() -> None:
    first = virtual_time.run(an_hour_of_changes(), seed=7)

    assert virtual_time.run(an_hour_of_changes(), seed=7) == first
