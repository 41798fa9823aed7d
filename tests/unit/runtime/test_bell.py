"""Keys that are woken from outside the API."""

from __future__ import annotations

from bramley.runtime.bell import Bell
from bramley.runtime.controller import Controller
from bramley.runtime.keys import Key
from tests.unit.runtime.controlling import SETTINGS, Scribe, a_manager, managed
from tests.unit.runtime.running import a_server, until
from tests.unit.runtime.scripted import Thing


async def test_rung_key_is_reconciled_without_any_change() -> None:
    bell, scribe = Bell(), Scribe()
    manager = a_manager(a_server("one", "two"))
    manager.add(Controller(scribe, SETTINGS).watching(Thing).woken_from(bell))
    async with managed(manager):
        await until(lambda: len(scribe.calls) == 2)
        bell.ring(Key("ns", "two"))

        await until(lambda: len(scribe.calls) == 3)

    assert scribe.names[2] == "two"


async def test_ring_before_the_controller_listens_is_not_lost() -> None:
    bell = Bell()
    heard: list[Key] = []
    bell.ring(Key("", "early"))

    bell.heard_by(lambda key, _priority: heard.append(key))
    bell.ring(Key("", "later"))

    assert heard == [Key("", "early"), Key("", "later")]
