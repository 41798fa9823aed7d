"""Keys that are enqueued from outside the API."""

from __future__ import annotations

from bramley.runtime.controller import Controller
from bramley.runtime.keys import Key
from bramley.runtime.queue import Trigger
from tests.unit.runtime.fake_api import Thing
from tests.unit.runtime.informer_harness import a_server, until
from tests.unit.runtime.manager_harness import SETTINGS, RecordingReconciler, a_manager, managed


async def test_enqueued_key_is_reconciled_without_any_change() -> None:
    trigger, reconciler = Trigger(), RecordingReconciler()
    manager = a_manager(a_server("one", "two"))
    manager.add(Controller(reconciler, SETTINGS).for_kind(Thing).triggered_by(trigger))
    async with managed(manager):
        await until(lambda: len(reconciler.calls) == 2)
        trigger.enqueue(Key("ns", "two"))

        await until(lambda: len(reconciler.calls) == 3)

    assert reconciler.names[2] == "two"


async def test_key_enqueued_before_the_controller_is_connected_is_not_lost() -> None:
    trigger = Trigger()
    keys: list[Key] = []
    trigger.enqueue(Key("", "early"))

    trigger.connect(lambda key, _priority: keys.append(key))
    trigger.enqueue(Key("", "later"))

    assert keys == [Key("", "early"), Key("", "later")]
