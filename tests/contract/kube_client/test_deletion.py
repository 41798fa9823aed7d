"""Deleting: preconditions, finalizers, grace and whole collections."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bramley.api.core import ConfigMap, Namespace
from bramley.api.meta import ObjectMeta
from bramley.api.pod import Pod
from bramley.base import errors
from tests.contract.kube_client.kinds import Widget, WidgetSpec
from tests.contract.kube_client.targets import World

FINALIZER = "contract.bramley.dev/hold"


async def test_a_deleted_object_is_gone(world: World) -> None:
    await world.config("a")

    await world.kube.delete(ConfigMap, "a", namespace=world.namespace)

    with pytest.raises(errors.NotFound):
        await world.kube.get(ConfigMap, "a", namespace=world.namespace)


async def test_preconditions_select_the_object_to_delete(world: World) -> None:
    made = await world.config("a")
    await world.kube.merge_patch(ConfigMap, "a", {"data": {"x": "2"}}, namespace=world.namespace)

    with pytest.raises(errors.Conflict):
        await world.kube.delete(ConfigMap, "a", namespace=world.namespace, uid="another")
    with pytest.raises(errors.Conflict):
        await world.kube.delete(
            ConfigMap,
            "a",
            namespace=world.namespace,
            uid=made.uid,
            resource_version=made.metadata.resource_version,
        )

    read = await world.kube.get(ConfigMap, "a", namespace=world.namespace)
    await world.kube.delete(
        ConfigMap,
        "a",
        namespace=world.namespace,
        uid=read.uid,
        resource_version=read.metadata.resource_version,
    )
    with pytest.raises(errors.NotFound):
        await world.kube.get(ConfigMap, "a", namespace=world.namespace)


async def test_a_recreated_object_is_another_one(world: World) -> None:
    first = await world.config("a")
    await world.kube.delete(ConfigMap, "a", namespace=world.namespace)
    second = await world.config("a")

    assert first.uid != second.uid
    with pytest.raises(errors.Conflict):
        await world.kube.delete(ConfigMap, "a", namespace=world.namespace, uid=first.uid)


async def test_a_finalizer_holds_an_object_until_it_is_removed(world: World) -> None:
    place = ObjectMeta(name="a", namespace=world.namespace, finalizers=[FINALIZER])
    await world.kube.create(Widget(metadata=place, spec=WidgetSpec(size=1)))

    await world.kube.delete(Widget, "a", namespace=world.namespace)
    held = await world.kube.get(Widget, "a", namespace=world.namespace)
    assert held.deleting
    assert held.metadata.finalizers == [FINALIZER]

    await world.kube.merge_patch(
        Widget, "a", {"metadata": {"finalizers": None}}, namespace=world.namespace
    )
    with pytest.raises(errors.NotFound):
        await world.kube.get(Widget, "a", namespace=world.namespace)


async def test_deleting_twice_changes_nothing(world: World) -> None:
    place = ObjectMeta(name="a", namespace=world.namespace, finalizers=[FINALIZER])
    await world.kube.create(Widget(metadata=place, spec=WidgetSpec(size=1)))

    await world.kube.delete(Widget, "a", namespace=world.namespace)
    first = await world.kube.get(Widget, "a", namespace=world.namespace)
    await world.kube.delete(Widget, "a", namespace=world.namespace)
    second = await world.kube.get(Widget, "a", namespace=world.namespace)

    assert first.metadata.deletion_timestamp == second.metadata.deletion_timestamp


async def test_no_finalizer_is_added_to_an_object_being_deleted(world: World) -> None:
    place = ObjectMeta(name="a", namespace=world.namespace, finalizers=[FINALIZER])
    await world.kube.create(Widget(metadata=place, spec=WidgetSpec(size=1)))
    await world.kube.delete(Widget, "a", namespace=world.namespace)

    with pytest.raises(errors.Refused):
        await world.kube.merge_patch(
            Widget,
            "a",
            {"metadata": {"finalizers": [FINALIZER, "contract.bramley.dev/more"]}},
            namespace=world.namespace,
        )


async def test_pod_on_a_node_gets_its_grace_period(world: World) -> None:
    await world.pod("a", node=world.mac)

    await world.kube.delete(Pod, "a", namespace=world.namespace, grace=timedelta(seconds=45))
    dying = await world.kube.get(Pod, "a", namespace=world.namespace)
    assert dying.deleting
    assert dying.metadata.deletion_grace_period_seconds == 45

    await world.kube.delete(Pod, "a", namespace=world.namespace, grace=timedelta(0))
    with pytest.raises(errors.NotFound):
        await world.kube.get(Pod, "a", namespace=world.namespace)


async def test_a_collection_is_deleted_by_its_labels(world: World) -> None:
    for name, colour in (("a", "red"), ("b", "red"), ("c", "blue")):
        await world.config(name, colour=colour)

    await world.kube.delete_collection(
        ConfigMap, namespace=world.namespace, labels={"colour": "red"}
    )

    left = await world.kube.list(ConfigMap, namespace=world.namespace, labels="colour")
    assert [item.name for item in left.items] == ["c"]


async def test_nothing_is_created_in_a_terminating_namespace(world: World) -> None:
    place = ObjectMeta(name="held", namespace=world.namespace, finalizers=[FINALIZER])
    await world.kube.create(Widget(metadata=place, spec=WidgetSpec(size=1)))
    await world.kube.delete(Namespace, world.namespace)

    with pytest.raises((errors.Forbidden, errors.NotFound)):
        await world.config("late")

    await world.kube.merge_patch(
        Widget, "held", {"metadata": {"finalizers": None}}, namespace=world.namespace
    )
