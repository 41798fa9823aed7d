from __future__ import annotations

import asyncio

from bramley.api.meta import ObjectMeta
from bramley.kube.watch_stream import WatchEvent
from bramley.runtime.keys import Key
from tests.unit.runtime.fake_api import Thing, a_thing
from tests.unit.runtime.informer_harness import (
    Seen,
    a_server,
    recorder,
    some_metrics,
    synced,
    until,
    value,
)


def undecodable(name: str = "", version: str = "") -> WatchEvent[Thing]:
    obj = a_thing(name, resource_version=version) if name else Thing()
    return WatchEvent("UNDECODABLE", obj, "does not fit", b"{}")


async def test_undecodable_event_is_counted_and_cured_by_a_list() -> None:
    server, metrics = a_server("a"), some_metrics()
    async with synced(server, metrics=metrics) as informer:
        await asyncio.sleep(0.1)
        changed = server.put(a_thing("a", 9))
        for stream in server.streams:
            stream.position = int(changed.metadata.resource_version)
        server.send(undecodable())
        await asyncio.sleep(5)

        assert informer.cache.get("a", namespace="ns").spec.value == 9
        assert value(metrics, "bramley_watch_undecodable_total", kind="Thing") == 1
        assert value(metrics, "bramley_cache_relists_total", kind="Thing", reason="suspicion") == 1


async def test_event_without_a_version_is_undecodable_too() -> None:
    server, metrics = a_server("a"), some_metrics()
    async with synced(server, metrics=metrics) as informer:
        await asyncio.sleep(0.1)
        server.send(WatchEvent("MODIFIED", a_thing("a", 5)))
        await asyncio.sleep(0.1)

        assert informer.cache.get("a", namespace="ns").spec.value == 0
        assert value(metrics, "bramley_watch_undecodable_total", kind="Thing") == 1


async def test_stream_of_undecodable_events_does_not_become_a_stream_of_lists() -> None:
    server = a_server("a")
    async with synced(server):
        for _ in range(3600):
            server.send(undecodable())
            await asyncio.sleep(1)

        assert 5 < server.calls.count("list") < 25


async def test_undecodable_object_keeps_its_last_decoded_state() -> None:
    server, seen = a_server("a", "b"), Seen()
    async with synced(server) as informer:
        informer.on_change(recorder(seen))
        server.undecodable_keys.add(Key("ns", "a"))
        server.put(a_thing("a", 9))
        server.compact()
        server.disconnect()
        await asyncio.sleep(10)

        assert seen == []
        assert informer.cache.get("a", namespace="ns").spec.value == 0


async def test_list_with_a_nameless_object_removes_nothing_and_is_repeated() -> None:
    server = a_server("a", "b")
    server.things[Thing, Key("", "")] = Thing(metadata=ObjectMeta(resource_version="2"))
    server.undecodable_keys.add(Key("", ""))
    async with synced(server) as informer:
        await asyncio.sleep(0.1)
        server.disconnect()
        server.remove(Thing, Key("ns", "b"))
        server.compact()
        await until(lambda: server.calls.count("list") == 2)
        await asyncio.sleep(0.001)
        assert len(informer.cache) == 2
        del server.things[Thing, Key("", "")]
        await asyncio.sleep(10)

        assert len(informer.cache) == 1
