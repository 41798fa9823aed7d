"""Watches: what comes, in which order, from where, and how they end."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from bramley.api.coordination import Lease
from bramley.api.core import ConfigMap
from bramley.api.meta import K, ObjectMeta
from bramley.base import errors
from bramley.kube.watch_stream import Watch
from tests.contract.kube_client.kinds import Widget
from tests.contract.kube_client.targets import Target, World
from tests.contract.kube_client.watch_history import expire_lease_history

Seen = tuple[str, str]


async def first(count: int, watch: Watch[K]) -> list[Seen]:
    """Return the first events, bookmarks left out."""
    seen: list[Seen] = []
    async with asyncio.timeout(180):
        async for event in watch:
            if event.type != "BOOKMARK":
                seen.append((event.type, event.object.name))
            if len(seen) == count:
                break
    return seen


async def patch(world: World, name: str, size: int) -> Widget:
    return await world.kube.merge_patch(
        Widget, name, {"spec": {"size": size}}, namespace=world.namespace
    )


async def test_a_watch_continues_from_a_lists_version(world: World) -> None:
    await world.widget("old")
    listed = await world.kube.list(Widget, namespace=world.namespace)
    await world.widget("a")
    await patch(world, "a", 2)
    await world.kube.delete(Widget, "a", namespace=world.namespace)

    async with world.kube.watch(
        Widget, namespace=world.namespace, resource_version=listed.resource_version
    ) as watch:
        assert await first(3, watch) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_open_watch_reports_changes(world: World) -> None:
    listed = await world.kube.list(Widget, namespace=world.namespace)

    async with world.kube.watch(
        Widget, namespace=world.namespace, resource_version=listed.resource_version
    ) as watch:
        await world.widget("a")
        assert await first(1, watch) == [("ADDED", "a")]


async def test_a_watch_without_a_version_begins_with_the_existing_objects(world: World) -> None:
    await world.widget("a")
    await world.widget("b")

    async with world.kube.watch(Widget, namespace=world.namespace) as watch:
        found = await first(2, watch)

    assert sorted(found) == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_broken_watch_is_resumed_without_loss_or_repetition(world: World) -> None:
    version = (await world.kube.list(Widget, namespace=world.namespace)).resource_version
    names = [f"w-{number}" for number in range(6)]
    for name in names:
        await world.widget(name)

    seen: list[str] = []
    while len(seen) < len(names):
        async with world.kube.watch(
            Widget, namespace=world.namespace, resource_version=version
        ) as watch:
            async for event in watch:
                version = event.object.metadata.resource_version
                if event.type == "BOOKMARK":
                    continue
                seen.append(event.object.name)
                break

    assert seen == names


async def test_versions_of_events_increase(world: World) -> None:
    version = (await world.kube.list(Widget, namespace=world.namespace)).resource_version
    await world.widget("a", size=0)

    async with world.kube.watch(
        Widget, namespace=world.namespace, resource_version=version
    ) as watch:
        await asyncio.gather(*(patch(world, "a", size) for size in range(1, 20)))
        versions: list[int] = []
        async with asyncio.timeout(180):
            async for event in watch:
                if event.type == "BOOKMARK":
                    continue  # it may repeat the version of the last event
                versions.append(int(event.object.metadata.resource_version))
                if len(versions) == 20:
                    break

    assert versions == sorted(set(versions))


async def test_a_watch_with_a_label_selector_reports_objects_that_start_or_stop_matching(
    world: World,
) -> None:
    version = (await world.kube.list(ConfigMap, namespace=world.namespace)).resource_version
    await world.config("a", colour="red")
    await world.config("b", colour="blue")
    for colour in ("blue", "red", None):
        await world.kube.merge_patch(
            ConfigMap, "a", {"metadata": {"labels": {"colour": colour}}}, namespace=world.namespace
        )

    async with world.kube.watch(
        ConfigMap, namespace=world.namespace, resource_version=version, labels={"colour": "red"}
    ) as watch:
        assert await first(4, watch) == [
            ("ADDED", "a"),
            ("DELETED", "a"),
            ("ADDED", "a"),
            ("DELETED", "a"),
        ]


async def test_a_watch_may_follow_one_object(world: World) -> None:
    version = (await world.kube.list(Widget, namespace=world.namespace)).resource_version
    await world.widget("a")
    await world.widget("b")
    await patch(world, "a", 5)
    await patch(world, "b", 5)

    async with world.kube.watch(
        Widget, namespace=world.namespace, resource_version=version, fields={"metadata.name": "b"}
    ) as watch:
        assert await first(2, watch) == [("ADDED", "b"), ("MODIFIED", "b")]


async def test_a_watch_of_all_namespaces_sees_them_all(world: World) -> None:
    version = (await world.kube.list(Widget)).resource_version
    await world.widget("mine")

    # Widgets of an earlier test may still go, with their namespaces.
    async with asyncio.timeout(180), world.kube.watch(Widget, resource_version=version) as watch:
        async for event in watch:
            if event.type != "BOOKMARK" and event.object.namespace == world.namespace:
                break

    assert (event.type, event.object.name) == ("ADDED", "mine")


@pytest.mark.side_by_side
async def test_a_watch_ends_at_its_timeout_and_bookmarks_carry_its_version(target: Target) -> None:
    async with target.world() as world:
        await world.widget("a")
        version = (await world.kube.list(Widget, namespace=world.namespace)).resource_version

        # The real server means to send one two seconds before the end, but may come too late with it.
        for seconds in (4, 4, 4, 8, 16, 32, 64):
            async with world.kube.watch(
                Widget,
                namespace=world.namespace,
                resource_version=version,
                timeout=timedelta(seconds=seconds),
            ) as watch:
                events = [event async for event in watch]
            if events:
                break

        assert {event.type for event in events} == {"BOOKMARK"}
        assert int(events[-1].object.metadata.resource_version) >= int(version)


@pytest.mark.side_by_side
async def test_no_bookmark_is_sent_unless_requested(target: Target) -> None:
    async with target.world() as world:
        version = (await world.kube.list(Widget, namespace=world.namespace)).resource_version

        async with world.kube.watch(
            Widget,
            namespace=world.namespace,
            resource_version=version,
            bookmarks=False,
            timeout=timedelta(seconds=3),
        ) as watch:
            assert [event async for event in watch] == []


async def test_an_expired_version_is_gone(world: World, target: Target) -> None:
    if target.name == "real":
        # Its cache of a kind begins when the kind does, so that the first versions are before it.
        await gone(world, Widget, "1")
        return
    made = await world.kube.create(Lease(metadata=ObjectMeta(name="c")), namespace=world.namespace)
    await expire_lease_history(world)

    await gone(world, Lease, made.metadata.resource_version)


async def gone(world: World, kind: type[K], version: str) -> None:
    async def read() -> None:
        async with world.kube.watch(
            kind, namespace=world.namespace, resource_version=version
        ) as watch:
            await first(1, watch)

    with pytest.raises(errors.Gone):
        await read()


async def test_an_undecodable_object_does_not_end_the_watch(world: World) -> None:
    version = (await world.kube.list(Widget, namespace=world.namespace)).resource_version
    spec = {"size": 1, "extra": {"a": ["not a text"]}}
    body = {"apiVersion": "contract.bramley.dev/v1", "kind": "Widget", "spec": spec}
    await world.kube.create_wire(
        Widget.resource, {**body, "metadata": {"name": "odd"}}, namespace=world.namespace
    )
    await world.widget("good")

    async with world.kube.watch(
        Widget, namespace=world.namespace, resource_version=version
    ) as watch:
        assert await first(2, watch) == [("UNDECODABLE", "odd"), ("ADDED", "good")]


async def test_big_objects_are_watched_completely(world: World) -> None:
    version = (await world.kube.list(ConfigMap, namespace=world.namespace)).resource_version
    data = {f"key-{number}": "x" * 10_000 for number in range(90)}
    place = ObjectMeta(name="big", namespace=world.namespace)
    await world.kube.create(ConfigMap(metadata=place, data=data))

    async with world.kube.watch(
        ConfigMap,
        namespace=world.namespace,
        resource_version=version,
        fields={"metadata.name": "big"},
    ) as watch:
        async for event in watch:
            if event.type != "BOOKMARK":
                break

    assert event.object.data == data


async def test_events_received_together_are_one_batch(world: World) -> None:
    version = (await world.kube.list(Widget, namespace=world.namespace)).resource_version
    for number in range(20):
        await world.widget(f"w-{number}")

    # Over a socket they may come one by one after all, if the server is held up after each.
    for _ in range(20):
        batches = await sizes(world, version, 20)
        if len(batches) < 20:
            break

    assert len(batches) < 20


async def sizes(world: World, version: str, events: int) -> list[int]:
    batches: list[int] = []
    async with world.kube.watch(
        Widget, namespace=world.namespace, resource_version=version
    ) as watch:
        async for batch in watch.batches():
            batches.append(len(batch))
            if sum(batches) >= events:
                break
    return batches


async def test_a_finalized_object_is_deleted_once(world: World) -> None:
    version = (await world.kube.list(Widget, namespace=world.namespace)).resource_version
    await world.widget("a")
    hold = {"metadata": {"finalizers": ["contract.bramley.dev/hold"]}}
    await world.kube.merge_patch(Widget, "a", hold, namespace=world.namespace)
    await world.kube.delete(Widget, "a", namespace=world.namespace)
    release = {"metadata": {"finalizers": None}}
    await world.kube.merge_patch(Widget, "a", release, namespace=world.namespace)
    await world.widget("end")

    async with world.kube.watch(
        Widget, namespace=world.namespace, resource_version=version
    ) as watch:
        seen = await first(5, watch)

    assert seen[:3] == [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a")]
    assert seen[3:] == [("DELETED", "a"), ("ADDED", "end")]
