"""Watches: every change once and in order, correct bookmarks, and errors with a reason."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.store.settings import Settings as StoreSettings
from tests import virtual_time
from tests.unit.apiserver.world import (
    CONFIG_MAPS,
    CRDS,
    WIDGETS,
    Json,
    Watcher,
    World,
    a_config_map,
    a_widget,
    a_world,
    widget_crd,
)


async def test_a_watch_from_a_version_shows_every_change_after_it(world: World) -> None:
    start = (await world.create(CONFIG_MAPS, a_config_map("a"))).version
    await world.create(CONFIG_MAPS, a_config_map("b"))

    async with world.watching(f"{CONFIG_MAPS}?watch=1&resourceVersion={start}") as watcher:
        await world.merge(f"{CONFIG_MAPS}/b", {"data": {"k": "v"}})
        await world.delete(f"{CONFIG_MAPS}/b")
        await asyncio.sleep(1)

    assert watcher.seen == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in watcher.events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(start)


async def test_a_watch_stays_in_its_namespace(world: World) -> None:
    await world.create("/api/v1/namespaces", {"metadata": {"name": "s"}})

    async with world.watching(f"{CONFIG_MAPS}?watch=1") as watcher:
        await world.create(CONFIG_MAPS.replace("/t/", "/s/"), a_config_map("elsewhere"))
        await world.create(CONFIG_MAPS, a_config_map("here"))
        await asyncio.sleep(1)

    assert watcher.seen == [("ADDED", "here")]


async def test_initial_events_end_with_an_annotated_bookmark(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))
    query = (
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    )

    async with world.watching(f"{CONFIG_MAPS}?{query}") as watcher:
        await asyncio.sleep(1)

    last = watcher.events[-1]
    assert (watcher.seen, last["type"]) == ([("ADDED", "a")], "BOOKMARK")
    assert last["object"]["metadata"] == {
        "resourceVersion": str(world.store.revision),
        "annotations": {"k8s.io/initial-events-end": "true"},
    }


async def test_bookmarks_come_every_minute_and_shortly_before_the_end(world: World) -> None:
    query = "watch=1&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=150"
    async with world.watching(f"{CONFIG_MAPS}?{query}") as watcher:
        counts = []
        for _ in range(5):
            await asyncio.sleep(29)
            await world.create("/api/v1/namespaces/t/secrets", {"metadata": {"generateName": "s-"}})
            counts.append(len(watcher.bookmarks))
        await watcher.ended.wait()

    assert counts == [0, 0, 1, 1, 2]
    assert len(watcher.bookmarks) == 3
    assert watcher.bookmarks == sorted(set(watcher.bookmarks))


async def test_unchanged_bookmark_is_not_repeated(world: World) -> None:
    query = "watch=1&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=600"
    async with world.watching(f"{CONFIG_MAPS}?{query}") as watcher:
        await watcher.ended.wait()

    assert len(watcher.bookmarks) == 1


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "label", "drop"]), st.sampled_from("abc")), max_size=20
    ),
    st.data(),
)
def test_a_watcher_that_starts_again_at_its_last_bookmark_misses_nothing(
    writes: list[tuple[str, str]], data: st.DataObject
) -> None:
    """The state that a selective watcher builds up equals the list, however often it starts again at a bookmark."""
    pauses = data.draw(st.lists(st.integers(0, 90), min_size=len(writes), max_size=len(writes)))

    async def scenario() -> None:
        async with a_world() as world:
            state: dict[str, Json] = {}
            version = (await world.get(f"{CONFIG_MAPS}?labelSelector=on")).version
            for write, pause in zip(writes, pauses, strict=True):
                query = (
                    f"watch=1&labelSelector=on&allowWatchBookmarks=true&resourceVersion={version}"
                )
                async with world.watching(f"{CONFIG_MAPS}?{query}") as watcher:
                    await apply(world, write)
                    await asyncio.sleep(pause)
                version = replay(watcher, state, version)
            async with world.watching(
                f"{CONFIG_MAPS}?watch=1&labelSelector=on&resourceVersion={version}"
            ) as watcher:
                await asyncio.sleep(1)
            replay(watcher, state, version)

            listed = (await world.get(f"{CONFIG_MAPS}?labelSelector=on")).json["items"]
            found = {
                each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in listed
            }
            assert {name: each["resourceVersion"] for name, each in state.items()} == found

    virtual_time.run(scenario())


def replay(watcher: Watcher, state: dict[str, Json], version: str) -> str:
    for event in watcher.events:
        meta = event["object"]["metadata"]
        match event["type"]:
            case "ADDED":
                assert meta["name"] not in state
                state[meta["name"]] = meta
            case "MODIFIED":
                assert meta["name"] in state
                state[meta["name"]] = meta
            case "DELETED":
                del state[meta["name"]]
        version = meta["resourceVersion"]
    return version


async def apply(world: World, write: tuple[str, str]) -> None:
    verb, name = write
    if verb == "put":
        await world.request("POST", CONFIG_MAPS, a_config_map(name, on="yes"))
    elif verb == "drop":
        await world.delete(f"{CONFIG_MAPS}/{name}")
    else:
        found = await world.get(f"{CONFIG_MAPS}/{name}")
        if found.code == 200:
            there = "on" in found.json["metadata"].get("labels", {})
            await world.merge(
                f"{CONFIG_MAPS}/{name}", {"metadata": {"labels": {"on": None if there else "yes"}}}
            )


async def test_object_that_stops_matching_is_deleted_with_its_former_state(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a", app="x"))

    async with world.watching(f"{CONFIG_MAPS}?watch=1&labelSelector=app=x") as watcher:
        left = await world.merge(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"app": "y"}}})
        await asyncio.sleep(1)

    gone = watcher.events[-1]["object"]["metadata"]
    assert watcher.seen == [("ADDED", "a"), ("DELETED", "a")]
    assert (gone["labels"], gone["resourceVersion"]) == ({"app": "x"}, left.version)


async def test_a_version_that_is_no_longer_kept_is_expired(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))
    await world.create(CONFIG_MAPS, a_config_map("b"))
    world.store.compact()

    async with world.watching(f"{CONFIG_MAPS}?watch=1&resourceVersion=1") as watcher:
        await watcher.ended.wait()

    (event,) = watcher.events
    assert (watcher.code, event["type"]) == (200, "ERROR")
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


async def test_unknown_future_version_is_expired() -> None:
    async with (
        a_world() as world,
        world.watching(f"{CONFIG_MAPS}?watch=1&resourceVersion=99999") as watcher,
    ):
        await watcher.ended.wait()

        assert watcher.events[0]["object"]["code"] == 410


async def test_slow_watcher_is_closed_and_others_are_not_delayed() -> None:
    async with a_world(store=StoreSettings(watch_buffer_bytes=4_000)) as world:
        async with (
            world.watching(f"{CONFIG_MAPS}?watch=1") as slow,
            world.watching(f"{CONFIG_MAPS}?watch=1") as quick,
        ):
            slow.paused = asyncio.Event()
            for number in range(40):
                await world.create(CONFIG_MAPS, a_config_map(f"a-{number:02}"))
                await asyncio.sleep(0)
            slow.paused.set()
            await slow.ended.wait()
            await asyncio.sleep(1)

            assert len(quick.seen) == 40
            assert not quick.ended.is_set()

        assert len(slow.seen) < 40
        assert slow.events[-1]["object"]["code"] == 410


async def test_watcher_that_reads_nothing_is_disconnected() -> None:
    async with (
        a_world(Settings(send_deadline=timedelta(seconds=5))) as world,
        world.watching(f"{CONFIG_MAPS}?watch=1") as stuck,
    ):
        stuck.paused = asyncio.Event()
        await world.create(CONFIG_MAPS, a_config_map("a"))

        async with asyncio.timeout(10):
            await stuck.ended.wait()


async def test_disconnected_watcher_is_removed(world: World) -> None:
    async with world.watching(f"{CONFIG_MAPS}?watch=1") as watcher:
        pass
    async with asyncio.timeout(1):
        await watcher.ended.wait()

    await world.create(CONFIG_MAPS, a_config_map("a"))

    assert watcher.seen == []


@pytest.mark.parametrize(("query", "seconds"), [("&timeoutSeconds=7", (7, 7)), ("", (1800, 3600))])
async def test_duration_of_a_watch(world: World, query: str, seconds: tuple[int, int]) -> None:
    began = virtual_time.clock().monotonic()
    async with world.watching(f"{CONFIG_MAPS}?watch=1{query}") as watcher:
        await watcher.ended.wait()

    assert seconds[0] <= virtual_time.clock().monotonic() - began <= seconds[1]


async def test_watch_ends_without_an_error_when_the_store_closes() -> None:
    async with a_world() as world, world.watching(f"{CONFIG_MAPS}?watch=1") as watcher:
        await world.store.close()
        await watcher.ended.wait()

        assert watcher.events == []


async def test_a_watch_in_another_version_shows_that_version(world: World) -> None:
    crd = widget_crd()
    crd["spec"]["versions"].append({**crd["spec"]["versions"][0], "name": "v2", "storage": False})
    await world.create(CRDS, crd)

    async with world.watching(f"{WIDGETS.replace('/v1/', '/v2/')}?watch=1") as watcher:
        await world.create(WIDGETS, a_widget("w"))
        await asyncio.sleep(1)

    assert watcher.events[0]["object"]["apiVersion"] == "example.com/v2"


async def test_simultaneous_changes_are_one_chunk() -> None:
    async with a_world() as world, world.watching(f"{CONFIG_MAPS}?watch=1") as watcher:
        async with asyncio.TaskGroup() as group:
            for number in range(10):
                group.create_task(world.create(CONFIG_MAPS, a_config_map(f"a-{number}")))
        await asyncio.sleep(1)

        assert len(watcher.seen) == 10
        assert len(watcher.chunks) == 1
