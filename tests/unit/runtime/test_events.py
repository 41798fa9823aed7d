from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import pytest

from bramley.api.core import Event
from bramley.base import errors
from bramley.runtime.events import Recorder, RecorderSettings
from bramley.runtime.metrics import RuntimeMetrics
from tests import virtual_time
from tests.unit.runtime.fake_api import FakeApi, a_thing
from tests.unit.runtime.informer_harness import running, some_metrics, value

POOL = a_thing("pool", uid="uid-1", resource_version="7")


def a_recorder(
    server: FakeApi, metrics: RuntimeMetrics | None = None, settings: RecorderSettings | None = None
) -> Recorder:
    return Recorder(
        server,
        "test-controller",
        clock=virtual_time.clock(),
        rng=random.Random(5),
        metrics=metrics or some_metrics(),
        instance="host-1",
        settings=settings,
    )


def written(server: FakeApi) -> list[Event]:
    return server.all(Event)


async def test_event_names_component_reason_and_object() -> None:
    server = FakeApi()
    recorder = a_recorder(server)
    async with running(recorder.run()):
        recorder.warning(POOL, "TartRunExited", "the VM went away", action="Running")
        await asyncio.sleep(1)

    [event] = written(server)
    about = event.involved_object
    assert (about.kind, about.name, about.uid) == ("Thing", "pool", "uid-1")
    assert about.api_version == "test.bramley.dev/v1"
    assert (event.type, event.reason, event.action) == ("Warning", "TartRunExited", "Running")
    assert (event.source.component, event.reporting_instance) == ("test-controller", "host-1")
    assert (event.count, event.namespace) == (1, "ns")


async def test_repeated_event_increments_the_count() -> None:
    server = FakeApi()
    recorder = a_recorder(server)
    async with running(recorder.run()):
        for _ in range(3):
            recorder.event(POOL, "Waiting", "for a host")
            await asyncio.sleep(60)

    [event] = written(server)
    assert event.count == 3
    assert event.first_timestamp is not None
    assert event.last_timestamp is not None
    assert event.last_timestamp - event.first_timestamp == timedelta(minutes=2)


async def test_expired_event_is_created_again() -> None:
    server = FakeApi()
    recorder = a_recorder(server)
    async with running(recorder.run()):
        recorder.event(POOL, "Waiting", "for a host")
        await asyncio.sleep(1)
        server.things.clear()
        recorder.event(POOL, "Waiting", "for a host")
        await asyncio.sleep(1)

    [event] = written(server)
    assert event.count == 1


async def test_many_messages_of_one_reason_are_aggregated() -> None:
    server = FakeApi()
    recorder = a_recorder(server)
    async with running(recorder.run()):
        for number in range(20):
            recorder.event(POOL, "Failed", f"try {number} failed")
            await asyncio.sleep(1)

    events = written(server)
    combined = [event for event in events if event.message.startswith("(combined from similar")]
    assert len(events) == 11
    assert [event.count for event in combined] == [10]
    assert combined[0].message.endswith("try 19 failed")


async def test_one_object_cannot_flood_the_server() -> None:
    server, metrics = FakeApi(), some_metrics()
    recorder = a_recorder(server, metrics)
    async with running(recorder.run()):
        for _ in range(1000):
            recorder.event(POOL, "Spam", "again")
        recorder.event(a_thing("other", uid="uid-2"), "Quiet", "once")
        await asyncio.sleep(1)

        assert sum(event.count for event in written(server)) == 26
        assert value(metrics, "bramley_events_dropped_total", reason="budget") == 975
        await asyncio.sleep(600)
        for _ in range(10):
            recorder.event(POOL, "Spam", "again")
        await asyncio.sleep(1)
        assert sum(event.count for event in written(server)) == 28


async def test_full_queue_drops_and_never_blocks() -> None:
    server, metrics = FakeApi(), some_metrics()
    recorder = a_recorder(server, metrics, RecorderSettings(queue_size=5))

    for number in range(8):
        recorder.event(a_thing(f"t{number}", uid=str(number)), "Reason", "message")

    assert value(metrics, "bramley_events_dropped_total", reason="full") == 3


async def test_event_is_retried_after_an_outage() -> None:
    server = FakeApi()
    server.unavailable = True
    recorder = a_recorder(server)
    async with running(recorder.run()):
        recorder.event(POOL, "Waiting", "for a host")
        await asyncio.sleep(1.5)
        server.unavailable = False
        await asyncio.sleep(10)

    assert len(written(server)) == 1


@pytest.mark.parametrize("latency", [0.0, 1e6])
async def test_event_that_cannot_be_written_is_dropped_and_counted(latency: float) -> None:
    server, metrics = FakeApi(), some_metrics()
    server.unavailable, server.latency = True, latency
    recorder = a_recorder(server, metrics)
    async with running(recorder.run()):
        recorder.event(POOL, "Waiting", "for a host")
        await asyncio.sleep(300)
        server.unavailable, server.latency = False, 0.0
        recorder.event(POOL, "Other", "works")
        await asyncio.sleep(1)

    assert value(metrics, "bramley_events_dropped_total", reason="failed") == 1
    assert [event.reason for event in written(server)] == ["Other"]


ENDING = errors.Cause("metadata.namespace", "NamespaceTerminating", "it is being terminated")


@pytest.mark.parametrize(
    "refusal",
    [errors.Forbidden("namespace is going away", causes=(ENDING,)), errors.InvalidSpec("no")],
    ids=["namespace ends", "invalid"],
)
async def test_rejected_event_is_not_retried(refusal: errors.BramleyError) -> None:
    server, metrics = FakeApi(), some_metrics()
    server.failures["create"] = [refusal]
    recorder = a_recorder(server, metrics)
    async with running(recorder.run()):
        recorder.event(POOL, "Waiting", "for a host")
        await asyncio.sleep(60)

    assert server.calls == ["create"]
    assert value(metrics, "bramley_events_dropped_total", reason="failed") == 1


async def test_forbidden_event_is_retried_without_delaying_others() -> None:
    """On a cluster the right to a Pod's events follows the Pod; the first event would be lost else."""
    server = FakeApi()
    server.failures["create"] = [errors.Forbidden("not yet"), None, errors.Forbidden("not yet")]
    recorder = a_recorder(server)
    async with running(recorder.run()):
        recorder.event(POOL, "First", "one")
        recorder.event(POOL, "Second", "two")
        await asyncio.sleep(0.4)
        at_once = [event.reason for event in written(server)]
        await recorder.flush(timedelta(seconds=20))

    assert at_once == ["Second"]
    assert sorted(event.reason for event in written(server)) == ["First", "Second"]


async def test_event_that_stays_forbidden_is_dropped_after_the_last_try() -> None:
    server, metrics = FakeApi(), some_metrics()
    server.failures["create"] = [errors.Forbidden("never")] * 9
    recorder = a_recorder(server, metrics, RecorderSettings(tries=3))
    async with running(recorder.run()):
        recorder.event(POOL, "Waiting", "for a host")
        await recorder.flush(timedelta(minutes=5))

    assert server.calls == ["create"] * 3
    assert value(metrics, "bramley_events_dropped_total", reason="failed") == 1


async def test_postponed_events_are_bounded() -> None:
    server, metrics = FakeApi(), some_metrics()
    server.failures["create"] = [errors.Forbidden("not yet")] * 9
    recorder = a_recorder(server, metrics, RecorderSettings(queue_size=2))
    async with running(recorder.run()):
        for number in range(3):
            recorder.event(a_thing(f"t{number}", uid=str(number)), "Reason", "message")
            await asyncio.sleep(0.01)

        assert value(metrics, "bramley_events_dropped_total", reason="failed") == 1


async def test_flush_waits_for_queued_events_up_to_its_timeout() -> None:
    server = FakeApi()
    server.latency = 0.5
    recorder = a_recorder(server)
    async with running(recorder.run()):
        recorder.event(POOL, "First", "one")
        await recorder.flush(timedelta(seconds=2))
        assert len(written(server)) == 1
        server.latency = 1e6
        recorder.event(POOL, "Second", "two")
        began = asyncio.get_running_loop().time()
        await recorder.flush(timedelta(seconds=2))

        assert asyncio.get_running_loop().time() - began == pytest.approx(2)


async def test_long_message_is_cut() -> None:
    server = FakeApi()
    recorder = a_recorder(server)
    async with running(recorder.run()):
        recorder.event(POOL, "Long", "x" * 5000)
        await asyncio.sleep(1)

    assert len(written(server)[0].message) == 1024
