"""Deleting: finalizers, grace, preconditions, collections, and the ends of namespaces and kinds."""

from __future__ import annotations

import asyncio

import pytest

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.http.request_info import RequestInfo, target_of
from bramley.apiserver.rest import delete, writes
from bramley.apiserver.rest.request_options import DeleteOptions
from bramley.apiserver.store.journal import Listener
from bramley.apiserver.store.records import Change
from bramley.apiserver.store.store import Store
from tests import virtual_time
from tests.unit.apiserver.world import (
    CONFIG_MAPS,
    CRDS,
    PODS,
    WIDGETS,
    World,
    a_config_map,
    a_pod,
    a_widget,
    widget_crd,
)

NAMESPACE = "/api/v1/namespaces/t"
HELD = {"finalizers": ["example.com/hold"]}


async def test_object_is_deleted_after_its_last_finalizer(world: World) -> None:
    await world.create(CONFIG_MAPS, {"metadata": {"name": "a", **HELD}})

    held = await world.delete(f"{CONFIG_MAPS}/a")
    still = await world.get(f"{CONFIG_MAPS}/a")
    last = await world.merge(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}})

    assert "deletionTimestamp" in held.json["metadata"]
    assert (still.code, last.code) == (200, 200)
    assert (await world.get(f"{CONFIG_MAPS}/a")).code == 404


async def test_second_deletion_keeps_the_deletion_timestamp(world: World) -> None:
    await world.create(CONFIG_MAPS, {"metadata": {"name": "a", **HELD}})
    first = await world.delete(f"{CONFIG_MAPS}/a")
    await asyncio.sleep(100)

    second = await world.delete(f"{CONFIG_MAPS}/a")

    assert first.json == second.json


async def test_grace_period_of_a_running_pod_can_only_be_shortened(world: World) -> None:
    await world.create(PODS, a_pod("p", nodeName="n", terminationGracePeriodSeconds=60))

    begun = (await world.delete(f"{PODS}/p")).json["metadata"]
    await asyncio.sleep(10)
    shorter = (await world.delete(f"{PODS}/p", {"gracePeriodSeconds": 20})).json["metadata"]
    longer = (await world.delete(f"{PODS}/p", {"gracePeriodSeconds": 90})).json["metadata"]

    assert (begun["deletionTimestamp"], begun["deletionGracePeriodSeconds"]) == (
        "2026-01-01T00:01:00Z",
        60,
    )
    assert (shorter["deletionTimestamp"], shorter["deletionGracePeriodSeconds"]) == (
        "2026-01-01T00:00:20Z",
        20,
    )
    assert longer["deletionTimestamp"] == shorter["deletionTimestamp"]
    assert (await world.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})).code == 200
    assert (await world.get(f"{PODS}/p")).code == 404


async def test_huge_grace_period_is_capped_and_can_be_shortened(world: World) -> None:
    await world.create(PODS, a_pod("p", nodeName="n", terminationGracePeriodSeconds=2**63 - 1))

    begun = await world.delete(f"{PODS}/p")

    assert begun.json["metadata"]["deletionTimestamp"] == "2094-01-19T03:14:07Z"
    assert (await world.delete(f"{PODS}/p", {"gracePeriodSeconds": 2**62})).code == 200
    assert (await world.delete(f"{PODS}/p", {"gracePeriodSeconds": 1})).code == 200


async def test_deletion_timestamp_is_never_in_the_past(world: World) -> None:
    await world.create(PODS, a_pod("p", nodeName="n", terminationGracePeriodSeconds=60))
    await world.delete(f"{PODS}/p")
    await asyncio.sleep(50)

    shorter = (await world.delete(f"{PODS}/p", {"gracePeriodSeconds": 20})).json["metadata"]

    assert (shorter["deletionTimestamp"], shorter["deletionGracePeriodSeconds"]) == (
        "2026-01-01T00:00:50Z",
        1,
    )


@pytest.mark.parametrize("spec", [{}, {"nodeName": "n", "terminationGracePeriodSeconds": 0}])
async def test_pod_without_a_node_or_grace_period_is_deleted_at_once(
    world: World, spec: dict[str, object]
) -> None:
    await world.create(PODS, a_pod("p", **spec))

    assert (await world.delete(f"{PODS}/p")).json["kind"] == "Pod"
    assert (await world.get(f"{PODS}/p")).code == 404


async def test_stale_precondition_prevents_the_deletion(world: World) -> None:
    created = await world.create(CONFIG_MAPS, a_config_map("a"))
    await world.merge(f"{CONFIG_MAPS}/a", {"data": {"k": "v"}})

    stale = {"preconditions": {"resourceVersion": created.version}}
    other = {"preconditions": {"uid": "other"}}
    codes = [(await world.delete(f"{CONFIG_MAPS}/a", how)).code for how in (stale, other)]

    assert codes == [409, 409]
    assert (await world.get(f"{CONFIG_MAPS}/a")).code == 200


async def test_collection_is_deleted_by_selector(world: World) -> None:
    for number in range(250):
        await world.create(CONFIG_MAPS, a_config_map(f"a-{number:03}", odd=str(number % 2)))

    deleted = await world.delete(f"{CONFIG_MAPS}?labelSelector=odd=1")

    assert len(deleted.names) == 125
    left = (await world.get(CONFIG_MAPS)).names
    assert left == [f"a-{number:03}" for number in range(0, 250, 2)]


FINALIZE = f"{NAMESPACE}/finalize"


async def finalize(world: World, *finalizers: str) -> None:
    whole = (await world.get(NAMESPACE)).json
    await world.request("PUT", FINALIZE, {**whole, "spec": {"finalizers": list(finalizers)}})


async def test_deleted_namespace_is_terminating_until_it_is_finalized(world: World) -> None:
    await world.create(CONFIG_MAPS, a_config_map("a"))

    ended = await world.delete(NAMESPACE)
    again = await world.delete(NAMESPACE)

    assert ended.json["status"]["phase"] == "Terminating"
    assert again.json == ended.json
    assert (await world.get(CONFIG_MAPS)).names == ["a"]
    await finalize(world)
    assert (await world.get(NAMESPACE)).code == 404


async def test_terminating_namespace_refuses_new_objects(world: World) -> None:
    await world.delete(NAMESPACE)

    late = await world.request("POST", CONFIG_MAPS, a_config_map("late"))
    labelled = await world.merge(NAMESPACE, {"metadata": {"labels": {"x": "y"}}})

    cause = late.json["details"]["causes"][0]["reason"]
    assert (late.code, cause, labelled.code) == (403, "NamespaceTerminating", 200)
    assert (await world.get(NAMESPACE)).code == 200


async def test_recreated_namespace_accepts_objects(world: World) -> None:
    await world.delete(NAMESPACE)
    await finalize(world)

    await world.create("/api/v1/namespaces", {"metadata": {"name": "t"}})

    await world.create(CONFIG_MAPS, a_config_map("a"))


async def test_namespace_waits_for_its_metadata_finalizers(world: World) -> None:
    await world.merge(NAMESPACE, {"metadata": HELD})
    await world.delete(NAMESPACE)
    await finalize(world)

    emptied = await world.get(NAMESPACE)
    await world.merge(NAMESPACE, {"metadata": {"finalizers": None}})

    assert emptied.json["spec"] == {}
    assert (await world.get(NAMESPACE)).code == 404


async def test_propagation_policy_of_a_namespace_becomes_a_finalizer(world: World) -> None:
    ended = await world.delete(NAMESPACE, {"propagationPolicy": "Foreground"})

    assert ended.json["metadata"]["finalizers"] == ["foregroundDeletion"]


class SlowJournal:
    """Takes a second for each write, as a disk may."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def submit(self, change: Change) -> None:
        del change
        asyncio.get_running_loop().call_later(1, self._listener.on_committed, 1)

    async def close(self) -> None:
        await asyncio.sleep(2)


async def test_no_object_is_created_while_the_deletion_of_its_namespace_is_pending() -> None:
    async with Store(SlowJournal, clock=virtual_time.clock()) as store:
        world = World(store, Settings())
        await world.create("/api/v1/namespaces", {"metadata": {"name": "t"}})

        async with asyncio.TaskGroup() as group:
            group.create_task(world.delete(NAMESPACE))
            await asyncio.sleep(0.5)
            late = await world.request("POST", CONFIG_MAPS, a_config_map("late"))

        assert late.code == 403
        assert (await world.get("/api/v1/configmaps")).names == []


async def test_interrupted_deletion_of_a_definition_continues_after_a_restart() -> None:
    async with Store.in_memory(clock=virtual_time.clock()) as store:
        before = World(store, Settings())
        await before.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        await before.create(CRDS, widget_crd())
        await before.create(WIDGETS, a_widget("w"))
        server = before.app.api._server
        info = RequestInfo.parse("GET", f"{CRDS}/widgets.example.com", {})
        target = target_of(info, before.catalog)
        begin = delete.begin_deletion(server, target, DeleteOptions())
        assert begin is not None
        await writes.write(server, target.resource, target.key, begin)

        after = World(store, Settings())

        assert (await after.get(f"{CRDS}/widgets.example.com")).code == 404
        assert (await after.get(WIDGETS)).code == 404


async def test_deleted_definition_deletes_its_objects_and_is_not_served(world: World) -> None:
    await world.create(CRDS, widget_crd())
    await world.create(WIDGETS, a_widget("w"))

    await world.delete(f"{CRDS}/widgets.example.com")

    assert (await world.get(WIDGETS)).code == 404
    assert (await world.get(f"{CRDS}/widgets.example.com")).code == 404
    await world.create(CRDS, widget_crd())
    assert (await world.get(WIDGETS)).names == []


async def test_terminating_definition_refuses_new_objects(world: World) -> None:
    await world.create(CRDS, widget_crd())
    await world.create(WIDGETS, {**a_widget("w"), "metadata": {"name": "w", **HELD}})
    await world.delete(f"{CRDS}/widgets.example.com")

    refused = await world.request("POST", WIDGETS, a_widget("late"))
    await world.merge(f"{WIDGETS}/w", {"metadata": {"finalizers": []}})

    assert (refused.code, refused.json["reason"]) == (405, "MethodNotAllowed")
    assert (await world.get(f"{CRDS}/widgets.example.com")).code == 404


async def test_namespace_is_still_terminating_after_a_restart() -> None:
    async with Store.in_memory(clock=virtual_time.clock()) as store:
        before = World(store, Settings())
        await before.create("/api/v1/namespaces", {"metadata": {"name": "t"}})
        await before.delete(NAMESPACE)

        after = World(store, Settings())
        refused = await after.request("POST", CONFIG_MAPS, a_config_map("late"))

        assert refused.code == 403


async def test_system_namespaces_cannot_be_deleted(world: World) -> None:
    refused = await world.delete("/api/v1/namespaces/default")

    assert (refused.code, refused.json["reason"]) == (403, "Forbidden")
