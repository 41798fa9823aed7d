from __future__ import annotations

import asyncio
from datetime import timedelta

from bramley.base import errors
from bramley.runtime.keys import Key
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from tests.unit.runtime.controlling import Releaser, controlled, outcomes
from tests.unit.runtime.running import until
from tests.unit.runtime.scripted import DELETED_AT, Scripted, Thing, a_thing

A = Key("ns", "a")
HOLD = "test.bramley.dev/hold"


def finalizers_of(server: Scripted) -> list[str]:
    thing = server.find(Thing, "a")
    assert thing is not None
    return thing.metadata.finalizers


async def test_object_gets_its_finalizer_before_the_first_reconcile() -> None:
    seen: list[list[str]] = []

    async def look(thing: Thing) -> Outcome:
        seen.append(thing.metadata.finalizers)
        return Settled()

    server = Scripted()
    server.put(a_thing("a", finalizers=["others.dev/hold"]))
    async with controlled(server, Releaser(look)):
        await asyncio.sleep(1)

        assert seen[0] == ["others.dev/hold", HOLD]
        assert finalizers_of(server) == ["others.dev/hold", HOLD]


async def test_finalizer_stays_until_release_is_settled() -> None:
    async def slowly(_thing: Thing) -> Outcome:
        assert HOLD in finalizers_of(server)
        done = len(releaser.released) == 3
        return Settled() if done else CheckAgain(timedelta(seconds=5), "still there")

    server, releaser = Scripted(), Releaser(on_release=slowly)
    server.put(a_thing("a"))
    async with controlled(server, releaser):
        await asyncio.sleep(1)
        server.ask_to_delete(Thing, A)
        await asyncio.sleep(6)
        assert finalizers_of(server) == [HOLD]
        await asyncio.sleep(6)

        assert server.find(Thing, "a") is None
        assert releaser.released == ["a", "a", "a"]
        assert releaser.forgotten == [A]


async def test_object_that_is_being_deleted_is_not_reconciled_and_gets_no_finalizer() -> None:
    server, releaser = Scripted(), Releaser()
    server.put(a_thing("a", finalizers=["others.dev/hold"], deletion_timestamp=DELETED_AT))
    async with controlled(server, releaser):
        await asyncio.sleep(10)

        assert releaser.calls == []
        assert releaser.released == []
        assert finalizers_of(server) == ["others.dev/hold"]


async def test_failed_release_keeps_the_finalizer_and_is_tried_again() -> None:
    async def fail(_thing: Thing) -> Outcome:
        if len(releaser.released) < 3:
            raise errors.ApiUnavailable("the Mac does not answer")
        return Settled()

    server, releaser = Scripted(), Releaser(on_release=fail)
    server.put(a_thing("a"))
    async with controlled(server, releaser):
        await asyncio.sleep(1)
        server.ask_to_delete(Thing, A)
        await asyncio.sleep(60)

        assert len(releaser.released) == 3
        assert server.find(Thing, "a") is None


async def test_finalizers_of_others_survive_a_race() -> None:
    server, releaser = Scripted(), Releaser()
    server.put(a_thing("a"))
    server.latency = 0.5
    async with controlled(server, releaser) as manager:
        await until(lambda: "patch" in server.calls)
        # Another controller adds its own while our write is on the way.
        server.put(a_thing("a", 1, finalizers=["others.dev/hold"]))
        await asyncio.sleep(10)

        assert finalizers_of(server) == ["others.dev/hold", HOLD]
        assert outcomes(manager, "conflict", "Conflict") == 1


async def test_object_that_goes_while_its_finalizer_is_written_is_no_error() -> None:
    server, releaser = Scripted(), Releaser()
    server.put(a_thing("a"))
    server.failures["patch"] = [errors.NotFound("gone")]
    async with controlled(server, releaser) as manager:
        await asyncio.sleep(0.1)

        assert outcomes(manager, "settled") == 1
        assert releaser.calls == []
