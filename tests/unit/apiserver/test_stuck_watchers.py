from __future__ import annotations

import asyncio

from bramley.apiserver.settings import Settings
from tests.unit.apiserver.world import CONFIG_MAPS, a_config_map, a_world


async def test_a_watcher_that_takes_nothing_is_cut_off_soon_after_its_deadline() -> None:
    deadline = Settings().send_deadline.total_seconds()
    loop = asyncio.get_running_loop()

    async with a_world() as world, world.watching(f"{CONFIG_MAPS}?watch=true") as watcher:
        watcher.paused = asyncio.Event()
        began = loop.time()
        await world.create(CONFIG_MAPS, a_config_map("never-taken"))
        await watcher.ended.wait()

        assert deadline <= loop.time() - began <= deadline * 1.3
        assert watcher.events == []


async def test_a_watcher_with_nothing_to_take_is_left_alone() -> None:
    async with a_world() as world, world.watching(f"{CONFIG_MAPS}?watch=true") as watcher:
        await world.create(CONFIG_MAPS, a_config_map("early"))
        await asyncio.sleep(Settings().send_deadline.total_seconds() * 10)
        await world.create(CONFIG_MAPS, a_config_map("late"))
        await asyncio.sleep(1)

        assert watcher.seen == [("ADDED", "early"), ("ADDED", "late")]
