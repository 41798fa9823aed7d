from __future__ import annotations

import asyncio
from datetime import timedelta

from bramley.base import errors
from bramley.runtime.informer import InformerSettings
from bramley.runtime.keys import Key
from tests.unit.runtime.fake_api import FakeApi, Thing, a_thing
from tests.unit.runtime.informer_harness import (
    Seen,
    a_server,
    following,
    recorder,
    some_metrics,
    synced,
    until,
    value,
)


async def test_cache_holds_listed_and_watched_objects() -> None:
    server = a_server("a")
    async with synced(server) as informer:
        server.put(a_thing("b", 1))
        server.put(a_thing("a", 2))
        await asyncio.sleep(0.1)

        assert [(obj.name, obj.spec.value) for obj in informer.cache.all()] == [("a", 2), ("b", 1)]
        server.remove(Thing, Key("ns", "a"))
        await asyncio.sleep(0.1)
        assert [obj.name for obj in informer.cache.all()] == ["b"]


async def test_handlers_are_called_with_the_old_and_new_state() -> None:
    server, seen = a_server("a"), Seen()
    async with following(server) as informer:
        informer.on_change(recorder(seen))
        await informer.synced.wait()
        await asyncio.sleep(0.1)
        server.put(a_thing("a", 1))
        server.put(a_thing("b", 5))
        server.remove(Thing, Key("ns", "a"))
        await asyncio.sleep(0.1)

    assert seen == [("a", None, 0), ("a", 0, 1), ("b", None, 5), ("a", 1, None)]


async def test_list_is_read_page_by_page() -> None:
    server = FakeApi(page_size=2)
    for number in range(5):
        server.put(a_thing(f"t{number}"))
    async with synced(server) as informer:
        assert len(informer.cache) == 5
        assert server.calls.count("list") == 3


async def test_broken_watch_resumes_without_a_list() -> None:
    server, metrics = a_server("a"), some_metrics()
    async with synced(server, metrics=metrics) as informer:
        await asyncio.sleep(0.1)
        server.put(a_thing("b"))
        server.disconnect()
        server.put(a_thing("c"))
        await asyncio.sleep(5)

        assert len(informer.cache) == 3
        assert server.calls.count("list") == 1
        reason = value(
            metrics, "bramley_watch_restarts_total", kind="Thing", reason="ApiUnavailable"
        )
        assert reason == 1


async def test_expired_watch_leads_to_a_list_whose_differences_reach_the_handlers() -> None:
    server, seen = a_server("stays", "changes", "goes"), Seen()
    async with synced(server) as informer:
        await asyncio.sleep(0.1)
        informer.on_change(recorder(seen))
        server.disconnect()
        server.put(a_thing("changes", 1))
        server.remove(Thing, Key("ns", "goes"))
        server.put(a_thing("comes", 2))
        server.compact()
        await asyncio.sleep(10)

    assert sorted(seen) == [("changes", 0, 1), ("comes", None, 2), ("goes", 0, None)]


async def test_recreated_object_is_reported_as_deleted_and_added() -> None:
    server, seen = a_server("a"), Seen()
    async with synced(server) as informer:
        await asyncio.sleep(0.1)
        informer.on_change(recorder(seen))
        server.disconnect()
        server.remove(Thing, Key("ns", "a"))
        server.put(a_thing("a", 7))
        server.compact()
        await asyncio.sleep(10)

    assert seen == [("a", 0, None), ("a", None, 7)]


async def test_bookmark_saves_a_quiet_watch_from_a_list() -> None:
    server = a_server("a")
    async with synced(server) as informer:
        await asyncio.sleep(0.1)
        server.version += 100
        server.bookmark(Thing)
        await asyncio.sleep(0.1)
        server.compact()
        server.disconnect()
        server.put(a_thing("b"))
        await asyncio.sleep(10)

        assert len(informer.cache) == 2
        assert server.calls.count("list") == 1


async def test_repeated_events_change_nothing() -> None:
    server, seen = a_server("a"), Seen()
    async with synced(server) as informer:
        server.put(a_thing("a", 1))
        server.remove(Thing, Key("ns", "a"))
        server.put(a_thing("a", 2))
        await asyncio.sleep(0.1)
        informer.on_change(recorder(seen))
        server.repeat(Thing, 3)
        await asyncio.sleep(1)

        assert seen == []
        assert informer.cache.get("a", namespace="ns").spec.value == 2


async def test_silent_connection_is_given_up_and_resumed() -> None:
    server, metrics = a_server("a"), some_metrics()
    async with synced(server, metrics=metrics) as informer:
        await asyncio.sleep(0.1)
        server.silence()
        server.put(a_thing("b"))
        await asyncio.sleep(140)
        assert len(informer.cache) == 1
        await asyncio.sleep(20)

        assert len(informer.cache) == 2
        assert value(metrics, "bramley_watch_restarts_total", kind="Thing", reason="silence") == 1


async def test_watch_lost_by_the_server_is_detected_by_a_list() -> None:
    server = a_server("a")
    async with synced(server) as informer:
        server.version += 1
        server.things[Thing, Key("ns", "b")] = a_thing("b", resource_version="2", uid="b")
        await asyncio.sleep(1700)
        assert len(informer.cache) == 1
        await asyncio.sleep(200)

        assert len(informer.cache) == 2


async def test_hanging_watch_request_is_a_failure() -> None:
    server, metrics = a_server("a"), some_metrics()
    async with synced(server, metrics=metrics):
        server.latency = 1e6
        server.disconnect()
        await asyncio.sleep(160)

        restarts = "bramley_watch_restarts_total"
        assert value(metrics, restarts, kind="Thing", reason="TimedOut") == 1


async def test_unfinished_list_is_not_undone_by_an_older_one() -> None:
    server, seen = FakeApi(page_size=1), Seen()
    server.put(a_thing("a", 1))
    server.put(a_thing("b"))
    async with synced(server) as informer:
        await asyncio.sleep(0.1)
        informer.on_change(recorder(seen))
        server.disconnect()
        server.put(a_thing("b", 1))
        server.put(a_thing("a", 2))
        server.failures["watch"] = [errors.Gone("too old")]
        server.failures["list"] = [None, errors.ApiUnavailable("away")]
        await until(lambda: not server.failures["list"])
        server.stale_list = 3
        await asyncio.sleep(10)

    assert seen == [("a", 1, 2), ("b", 0, 1)]


async def test_hanging_list_is_given_up_and_tried_again() -> None:
    server = a_server("a")
    server.latency = 1e6
    async with following(server) as informer:
        await asyncio.sleep(100)
        server.latency = 0
        assert not informer.synced.is_set()
        await asyncio.sleep(25)

        assert informer.synced.is_set()


async def test_requests_to_an_unavailable_server_back_off() -> None:
    server = a_server("a")
    server.unavailable = True
    async with following(server) as informer:
        await asyncio.sleep(3600)
        requests = len(server.calls)
        server.unavailable = False
        await asyncio.sleep(31)

        assert 100 < requests < 300
        assert informer.synced.is_set()


async def test_missing_kind_is_waited_for() -> None:
    server = a_server("a")
    server.failures["list"] = [errors.NotFound("no such kind"), errors.Forbidden("not yet")]
    async with following(server) as informer:
        async with asyncio.timeout(10):
            await informer.synced.wait()

        assert len(informer.cache) == 1


async def test_retry_after_is_respected() -> None:
    server = a_server("a")
    server.failures["list"] = [errors.RateLimited("slow down", after=timedelta(seconds=60))]
    async with following(server) as informer:
        await asyncio.sleep(59)
        assert not informer.synced.is_set()
        await asyncio.sleep(2)

        assert informer.synced.is_set()


async def test_watch_that_ends_at_once_does_not_spin() -> None:
    server = a_server("a")
    async with synced(server):
        for _ in range(600):
            server.end_watches()
            await asyncio.sleep(0.1)

        assert server.calls.count("watch") < 20


async def test_watch_that_the_server_ends_in_time_resumes_at_once() -> None:
    server = a_server("a")
    async with synced(server) as informer:
        await asyncio.sleep(60)
        server.end_watches()
        server.put(a_thing("b"))
        await asyncio.sleep(0.1)

        assert len(informer.cache) == 2


async def test_list_older_than_the_cache_is_refused() -> None:
    server, seen = a_server("a"), Seen()
    async with synced(server) as informer:
        server.put(a_thing("b"))
        server.remove(Thing, Key("ns", "a"))
        await asyncio.sleep(0.1)
        informer.on_change(recorder(seen))
        server.stale_list = 1
        server.failures["watch"] = [errors.Gone("too old")]
        server.disconnect()
        await asyncio.sleep(10)

        assert seen == []
        assert [obj.name for obj in informer.cache.all()] == ["b"]
        assert server.stale_list is None


async def test_lists_of_a_restored_server_are_accepted_in_the_end() -> None:
    server, metrics = a_server("a", "b"), some_metrics()
    async with synced(server, metrics=metrics) as informer:
        server.things.clear()
        server.history.clear()
        server.version = 0
        server.put(a_thing("restored"))
        server.failures["watch"] = [errors.Gone("too new")]
        server.disconnect()
        await asyncio.sleep(120)
        server.put(a_thing("later"))
        await asyncio.sleep(10)

        assert [obj.name for obj in informer.cache.all()] == ["later", "restored"]
        assert value(metrics, "bramley_cache_rewinds_total", kind="Thing") == 1


async def test_watch_that_keeps_failing_ends_in_a_list() -> None:
    server = a_server("a")
    async with synced(server):
        server.failures["watch"] = [errors.ApiUnavailable("no")] * 7
        server.disconnect()
        await until(lambda: server.calls.count("list") == 2, within=120)


async def test_refresh_reads_a_list_soon_and_not_too_often() -> None:
    server = a_server("a")
    async with synced(server) as informer:
        await asyncio.sleep(0.1)
        for _ in range(100):
            informer.refresh()
        await asyncio.sleep(5)
        assert server.calls.count("list") == 2
        for _ in range(60):
            informer.refresh()
            await asyncio.sleep(1)

        assert server.calls.count("list") < 8


async def test_age_is_the_time_since_the_last_response() -> None:
    server, metrics = a_server("a"), some_metrics()
    settings = InformerSettings(idle_deadline=timedelta(hours=1))
    async with synced(server, metrics=metrics, settings=settings) as informer:
        await asyncio.sleep(50)
        assert 49 < value(metrics, "bramley_cache_age_seconds", kind="Thing") < 51
        server.bookmark(Thing)
        await asyncio.sleep(3)

        assert 2 < informer.age() < 4
        assert value(metrics, "bramley_cache_objects", kind="Thing") == 1
