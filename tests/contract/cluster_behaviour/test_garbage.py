"""Garbage collection ends in the same state on every cluster."""

from __future__ import annotations

import pytest

from bramley.api.core import ConfigMap, Event, Namespace, Node
from bramley.api.meta import ObjectMeta
from tests.contract.cluster_behaviour.targets import Open, World, a_world, eventually, owned_by

pytestmark = pytest.mark.side_by_side


async def wait_for_names(world: World, *names: str) -> None:
    """Wait until exactly these ConfigMaps exist."""

    async def are_present() -> bool:
        return await world.names() == set(names)

    await eventually(are_present)


async def delete(world: World, name: str, propagation: str) -> None:
    await world.kube.delete(ConfigMap, name, namespace=world.namespace, propagation=propagation)


async def test_background_deletion_deletes_dependents_afterwards(opening: Open) -> None:
    async with a_world(opening) as world:
        owner = await world.config_map("owner")
        child = await world.config_map("child", owned_by(owner))
        await world.config_map("grandchild", owned_by(child))
        await world.config_map("stranger")

        await delete(world, "owner", "Background")

        await wait_for_names(world, "stranger")


async def test_foreground_deletion_waits_for_blocking_dependents(opening: Open) -> None:
    async with a_world(opening) as world:
        owner = await world.config_map("owner")
        hold = ("example.com/hold",)
        await world.config_map("blocking", owned_by(owner, block=True), finalizers=hold)
        await world.config_map("loose", owned_by(owner), finalizers=hold)

        await delete(world, "owner", "Foreground")

        async def is_terminating() -> bool:
            found = await world.kube.get(ConfigMap, "blocking", namespace=world.namespace)
            return found.deleting

        await eventually(is_terminating)
        waiting = await world.kube.get(ConfigMap, "owner", namespace=world.namespace)
        assert waiting.metadata.finalizers == ["foregroundDeletion"]
        await world.release("blocking")
        await wait_for_names(world, "loose")
        await world.release("loose")
        await wait_for_names(world)


async def test_orphaned_dependents_stay_without_their_owner_reference(opening: Open) -> None:
    async with a_world(opening) as world:
        owner = await world.config_map("owner")
        await world.config_map("child", owned_by(owner))

        await delete(world, "owner", "Orphan")

        await wait_for_names(world, "child")
        child = await world.kube.get(ConfigMap, "child", namespace=world.namespace)
        assert child.metadata.owner_references == []


async def test_one_existing_owner_is_enough_and_references_to_deleted_ones_are_removed(
    opening: Open,
) -> None:
    async with a_world(opening) as world:
        first, second = await world.config_map("first"), await world.config_map("second")
        await world.config_map("child", owned_by(first), owned_by(second))

        await delete(world, "first", "Background")

        async def is_removed() -> bool:
            child = await world.kube.get(ConfigMap, "child", namespace=world.namespace)
            return [ref.name for ref in child.metadata.owner_references] == ["second"]

        await eventually(is_removed)
        await wait_for_names(world, "second", "child")


async def test_owner_with_another_uid_counts_as_absent(opening: Open) -> None:
    async with a_world(opening) as world:
        owner = await world.config_map("owner")
        uid = "00000000-0000-4000-8000-000000000000"
        await world.config_map("impostor", owned_by(owner, uid=uid))
        await world.config_map("true", owned_by(owner))

        await wait_for_names(world, "owner", "true")


async def test_owner_in_another_namespace_is_reported_and_counts_as_absent(opening: Open) -> None:
    async with a_world(opening) as world:
        other = f"{world.namespace}-x"
        await world.kube.create(Namespace(metadata=ObjectMeta(name=other)))
        place = ObjectMeta(name="owner", namespace=other)
        owner = await world.kube.create(ConfigMap(metadata=place))
        await world.config_map("known")
        await world.config_map("child", owned_by(owner))

        await wait_for_names(world, "known")

        async def is_reported() -> bool:
            events = (await world.kube.list(Event, namespace=world.namespace)).items
            return any(each.reason == "OwnerRefInvalidNamespace" for each in events)

        await eventually(is_reported)
        await world.kube.delete(Namespace, other)


async def test_a_cluster_wide_object_is_never_collected_for_an_owner_in_a_namespace(
    opening: Open,
) -> None:
    async with a_world(opening) as world:
        owner = await world.config_map("owner")
        name = f"stays-{world.namespace}"
        await world.kube.create(
            Node(metadata=ObjectMeta(name=name, owner_references=[owned_by(owner)]))
        )
        child = await world.config_map("witness", owned_by(owner))

        await delete(world, "owner", "Background")
        await wait_for_names(world)

        assert child.name == "witness"
        assert await world.exists(Node, name)
        await world.kube.delete(Node, name)
