from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from bramley.api.meta import Condition
from bramley.base import errors, virtual_time
from bramley.runtime.reporting import reporting
from tests.unit.runtime.scripted import Scripted, Thing, a_thing

READY = Condition(type="Ready", status="True", reason="Up", message="all is well")


def a_server() -> Scripted:
    server = Scripted()
    server.put(a_thing("a", generation=4))
    return server


def stored(server: Scripted) -> Thing:
    thing = server.find(Thing, "a")
    assert thing is not None
    return thing


def ready(server: Scripted) -> Condition:
    return next(one for one in stored(server).status.conditions if one.type == "Ready")


async def report(server: Scripted, *facts: Condition, error: Exception | None = None) -> None:
    async with reporting(stored(server), server, clock=virtual_time.clock()) as told:
        told.say(*facts)
        if error:
            raise error


async def test_what_was_said_is_written_with_the_generation_it_is_about() -> None:
    server = a_server()
    async with reporting(stored(server), server, clock=virtual_time.clock()) as told:
        told.say(READY)
        told.update(seen=3)

    assert ready(server).status == "True"
    assert ready(server).observed_generation == 4
    assert (stored(server).status.seen, stored(server).status.observed_generation) == (3, 4)


async def test_nothing_new_is_not_written() -> None:
    server = a_server()
    await report(server, READY)
    version = server.version
    await asyncio.sleep(100)
    await report(server, READY)

    assert server.version == version
    assert server.calls.count("patch status") == 1


async def test_transition_time_moves_only_with_the_status() -> None:
    server = a_server()
    await report(server, READY)
    began = ready(server).last_transition_time
    await asyncio.sleep(100)
    await report(server, Condition(type="Ready", status="True", reason="StillUp"))
    assert ready(server).last_transition_time == began
    await report(server, Condition(type="Ready", status="False", reason="Down"))

    moved = ready(server).last_transition_time
    assert moved is not None
    assert began is not None
    assert moved - began == timedelta(seconds=100)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (errors.ApiUnavailable("away"), "Unknown", "ApiUnavailable"),
        (errors.RateLimited("slow", after=timedelta(1)), "Unknown", "RateLimited"),
        (errors.InvalidSpec("no such image"), "False", "InvalidSpec"),
        (ZeroDivisionError("the secret is 42"), "Unknown", "InternalError"),
    ],
)
async def test_error_is_told_in_the_summary_and_goes_on(
    error: Exception, status: str, reason: str
) -> None:
    server = a_server()
    with pytest.raises(type(error)):
        await report(server, READY, error=error)

    assert (ready(server).status, ready(server).reason) == (status, reason)
    assert "42" not in ready(server).message


async def test_error_does_not_claim_that_the_generation_was_acted_on() -> None:
    server = a_server()
    with pytest.raises(errors.InvalidSpec):
        await report(server, error=errors.InvalidSpec("no"))

    assert stored(server).status.observed_generation == 0


async def test_interrupted_reconcile_leaves_its_trace() -> None:
    server = a_server()

    async def hang() -> None:
        async with reporting(stored(server), server, clock=virtual_time.clock()):
            await asyncio.sleep(1e6)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await hang()

    assert ready(server).reason == "Interrupted"


async def test_status_is_not_written_over_a_newer_one() -> None:
    server = a_server()
    seen = stored(server)
    server.put(a_thing("a", 9))

    with pytest.raises(errors.Conflict):
        async with reporting(seen, server, clock=virtual_time.clock()) as told:
            told.say(READY)

    assert stored(server).status.conditions == []


async def test_report_goes_on_from_what_the_reconcile_wrote_itself() -> None:
    server = a_server()
    async with reporting(stored(server), server, clock=virtual_time.clock()) as told:
        told.say(READY)
        told.saw(await server.merge_patch(Thing, "a", {"spec": {"value": 1}}, namespace="ns"))

    assert ready(server).status == "True"


async def test_conflict_in_the_block_writes_nothing() -> None:
    server = a_server()
    with pytest.raises(errors.Conflict):
        await report(server, READY, error=errors.Conflict("stale"))

    assert server.calls == []


async def test_first_error_wins_over_the_failed_write() -> None:
    server = a_server()
    server.unavailable = True
    with pytest.raises(errors.InvalidSpec):
        await report(server, error=errors.InvalidSpec("no"))


async def test_failed_write_after_success_is_an_error() -> None:
    server = a_server()
    server.unavailable = True
    with pytest.raises(errors.ApiUnavailable):
        await report(server, READY)


async def test_slow_write_ends_at_its_deadline() -> None:
    server = a_server()
    server.latency = 1e6
    with pytest.raises(errors.TimedOut):
        await report(server, READY)

    assert asyncio.get_running_loop().time() == pytest.approx(5)


async def test_object_that_is_gone_needs_no_status() -> None:
    server = a_server()
    thing = stored(server)
    server.things.clear()

    async with reporting(thing, server, clock=virtual_time.clock()) as told:
        told.say(READY)
