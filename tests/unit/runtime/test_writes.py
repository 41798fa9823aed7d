from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bramley.api.meta import ObjectMeta, OwnerReference
from bramley.base import errors
from bramley.runtime.controller import Controller
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import Outcome, Settled
from tests.unit.runtime.fake_api import DELETED_AT, FakeApi, Part, Thing, a_thing
from tests.unit.runtime.informer_harness import until
from tests.unit.runtime.manager_harness import (
    SETTINGS,
    RecordingReconciler,
    a_manager,
    managed,
    outcomes,
)

HOLD = "test.bramley.dev/hold"


def a_part(owner: Thing, number: int) -> Part:
    reference = OwnerReference(
        api_version="test.bramley.dev/v1",
        kind="Thing",
        name=owner.name,
        uid=owner.uid,
        controller=True,
    )
    metadata = ObjectMeta(
        name=f"{owner.name}-{number}", namespace="ns", owner_references=[reference]
    )
    return Part(metadata=metadata)


class Maker:
    """Makes one part for each object, under a name that it never uses twice."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.made = 0

    async def reconcile(self, obj: Thing) -> Outcome:
        if not self.manager.informer(Part).cache.all():
            self.made += 1
            await self.manager.kube.create(a_part(obj, self.made))
        return Settled()


def a_maker(server: FakeApi) -> tuple[Manager, Maker]:
    manager = a_manager(server)
    maker = Maker(manager)
    manager.add(Controller(maker, SETTINGS).for_kind(Thing).owns(Part))
    return manager, maker


async def test_child_is_not_created_twice_while_the_cache_is_stale() -> None:
    server = FakeApi()
    server.put(a_thing("a"))
    manager, maker = a_maker(server)
    async with managed(manager):
        await manager.leading.wait()
        for stream in server.streams:
            stream.silent = stream.kind is Part
        await until(lambda: maker.made == 1)
        for number in range(20):
            server.put(a_thing("a", number))
            await asyncio.sleep(0.1)

        assert maker.made == 1
        await asyncio.sleep(300)
        assert maker.made == 1
        assert len(server.all(Part)) == 1


async def test_cache_that_stays_stale_is_listed_again() -> None:
    server = FakeApi()
    server.put(a_thing("a"))
    manager, maker = a_maker(server)
    async with managed(manager):
        await manager.leading.wait()
        for stream in server.streams:
            stream.silent = stream.kind is Part
        await until(lambda: maker.made == 1)
        server.put(a_thing("a", 1))
        await asyncio.sleep(10)

        assert len(manager.informer(Part).cache) == 1
        assert outcomes(manager, "check_again") > 0


async def test_writes_of_one_key_do_not_hold_up_another() -> None:
    server = FakeApi()
    server.put(a_thing("a"))
    manager = a_manager(server)

    async def write(obj: Thing) -> Outcome:
        if obj.name == "a":
            await manager.kube.merge_patch(Thing, "a", {"spec": {"value": 5}}, namespace="ns")
        return Settled()

    reconciler = RecordingReconciler(write)
    manager.add(Controller(reconciler, SETTINGS).for_kind(Thing))
    async with managed(manager):
        await manager.leading.wait()
        server.put(a_thing("b"))
        await asyncio.sleep(0.001)

        assert "b" in reconciler.names


async def test_deleted_object_still_in_the_cache_delays_the_reconcile() -> None:
    server = FakeApi()
    server.put(a_thing("a"))
    manager = a_manager(server)
    parts_seen: list[int] = []

    async def delete_parts(_thing: Thing) -> Outcome:
        parts = manager.informer(Part).cache.all()
        parts_seen.append(len(parts))
        for part in parts:
            for stream in server.streams:
                stream.silent = stream.kind is Part
            await manager.kube.delete(part)
        return Settled()

    manager.add(Controller(RecordingReconciler(delete_parts), SETTINGS).for_kind(Thing).owns(Part))
    owner = server.find(Thing, "a")
    assert owner is not None
    server.put(a_part(owner, 1))
    async with managed(manager):
        await manager.leading.wait()
        await until(lambda: parts_seen)
        server.put(a_thing("a", 1))
        await asyncio.sleep(30)

        assert parts_seen[0] == 1
        assert set(parts_seen[1:]) == {0}


async def test_object_without_its_last_finalizer_is_not_reconciled_again() -> None:
    server = FakeApi()
    server.put(a_thing("a", finalizers=[HOLD], deletion_timestamp=DELETED_AT))
    manager = a_manager(server)

    async def release(thing: Thing) -> Outcome:
        patch = {"metadata": {"annotations": {"released": "true"}}}
        await manager.kube.merge_patch(Thing, thing.name, patch, namespace=thing.namespace)
        thing = await manager.kube.get(Thing, thing.name, namespace=thing.namespace)
        await until(lambda: manager.informer(Thing).cache.all()[0] == thing)
        for stream in server.streams:
            stream.silent = True
        await manager.kube.remove_finalizer(thing, HOLD)
        return Settled()

    reconciler = RecordingReconciler(release)
    manager.add(Controller(reconciler, SETTINGS).for_kind(Thing))
    async with managed(manager):
        await asyncio.sleep(30)

        assert reconciler.names == ["a"]
        assert server.find(Thing, "a") is None


async def test_writes_before_a_restored_backup_do_not_hold_a_key_for_ever() -> None:
    server = FakeApi()
    server.version = 100
    server.put(a_thing("a"))
    manager, maker = a_maker(server)
    async with managed(manager):
        await manager.leading.wait()
        for stream in server.streams:
            stream.silent = stream.kind is Part
        await until(lambda: maker.made == 1)
        # The backup is older than the part, and no cache has seen the part yet.
        server.things.clear()
        server.history.clear()
        server.version = 50
        server.put(a_thing("a", 3))
        server.failures["watch"] = [errors.Gone("too new")]
        server.disconnect()
        await asyncio.sleep(300)

        assert maker.made == 2


async def test_write_after_the_lease_is_lost_is_refused() -> None:
    server = FakeApi()
    manager = a_manager(server)

    def lost() -> None:
        raise errors.LeaseLost("expired")

    kube = manager.kube
    kube.check = lost
    calls: list[Any] = [
        kube.create(a_thing("a")),
        kube.merge_patch(Thing, "a", {}, namespace="ns"),
        kube.apply(Thing, "a", {}, manager="m", namespace="ns"),
        kube.delete(a_thing("a")),
    ]
    for call in calls:
        with pytest.raises(errors.LeaseLost):
            await call

    assert server.calls == []


async def test_delete_spares_a_newer_object_of_the_same_name() -> None:
    server = FakeApi()
    old = server.put(a_thing("a"))
    server.remove(Thing, Key("ns", "a"))
    server.put(a_thing("a"))

    with pytest.raises(errors.Conflict):
        await a_manager(server).kube.delete(old)

    assert server.find(Thing, "a") is not None


async def test_finalizer_is_added_once_beside_those_of_others() -> None:
    server = FakeApi()
    obj = server.put(a_thing("a", finalizers=["others.dev/hold"]))
    kube = a_manager(server).kube

    held = await kube.add_finalizer(obj, HOLD)
    again = await kube.add_finalizer(held, HOLD)

    assert again.metadata.finalizers == ["others.dev/hold", HOLD]
    assert server.calls == ["patch"]


async def test_removing_the_last_finalizer_deletes_the_object() -> None:
    server = FakeApi()
    obj = server.put(a_thing("a", finalizers=[HOLD], deletion_timestamp=DELETED_AT))

    await a_manager(server).kube.remove_finalizer(obj, HOLD)

    assert server.find(Thing, "a") is None


async def test_finalizer_of_another_controller_survives_a_race() -> None:
    server = FakeApi()
    outdated = server.put(a_thing("a"))
    server.put(a_thing("a", finalizers=["others.dev/hold"]))

    with pytest.raises(errors.Conflict):
        await a_manager(server).kube.add_finalizer(outdated, HOLD)

    stored = server.find(Thing, "a")
    assert stored is not None
    assert stored.metadata.finalizers == ["others.dev/hold"]
