from __future__ import annotations

import asyncio

from bramley.apiserver.apimachinery.settings import Settings
from tests.unit.apiserver.world import CONFIG_MAPS, World, a_config_map, a_world

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"


async def test_watcher_that_reads_nothing_is_disconnected_soon_after_its_deadline() -> None:
    deadline = Settings().send_deadline.total_seconds()
    loop = asyncio.get_running_loop()

    async with a_world() as world, world.watching(f"{CONFIG_MAPS}?watch=true") as watcher:
        watcher.paused = asyncio.Event()
        began = loop.time()
        await world.create(CONFIG_MAPS, a_config_map("never-taken"))
        await watcher.ended.wait()

        assert deadline <= loop.time() - began <= deadline * 1.3
        assert watcher.events == []


async def test_idle_watcher_is_not_disconnected() -> None:
    async with a_world() as world, world.watching(f"{CONFIG_MAPS}?watch=true") as watcher:
        await world.create(CONFIG_MAPS, a_config_map("early"))
        await asyncio.sleep(Settings().send_deadline.total_seconds() * 10)
        await world.create(CONFIG_MAPS, a_config_map("late"))
        await asyncio.sleep(1)

        assert watcher.seen == [("ADDED", "early"), ("ADDED", "late")]


async def test_watch_ends_soon_after_its_permission(world: World) -> None:
    world.users["t"] = "bob"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}]
    await world.create(f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": rules})
    subject = {"kind": "User", "name": "bob", "apiGroup": GROUP}
    reference = {"kind": "ClusterRole", "name": "r", "apiGroup": GROUP}
    given = {"metadata": {"name": "r"}, "roleRef": reference, "subjects": [subject]}
    await world.create(f"{RBAC}/clusterrolebindings", given)

    async with world.watching(f"{CONFIG_MAPS}?watch=true", token="t") as watcher:
        await asyncio.sleep(Settings().send_deadline.total_seconds())
        await world.create(CONFIG_MAPS, a_config_map("early"))
        await world.delete(f"{RBAC}/clusterrolebindings/r")
        await asyncio.wait_for(watcher.ended.wait(), 16)
        await world.create(CONFIG_MAPS, a_config_map("late"))

    assert watcher.seen == [("ADDED", "early")]


async def test_a_watch_ends_soon_after_its_token() -> None:
    async with a_world() as world, world.watching(f"{CONFIG_MAPS}?watch=true") as mine:
        await asyncio.sleep(20)
        assert not mine.ended.is_set()
        world.is_admin_known = False
        await asyncio.wait_for(mine.ended.wait(), 16)
