"""Changing objects: merge patches, JSON patches, versions and the status and scale subresources."""

from __future__ import annotations

import asyncio

import pytest

from bramley.api.core import ConfigMap
from bramley.base import errors
from tests.contract.kube_client.kinds import Widget
from tests.contract.kube_client.targets import World


async def test_merge_patch_sets_fields_and_null_removes_them(world: World) -> None:
    made = await world.config("a", keep="1", drop="2")

    changed = await world.kube.merge_patch(
        ConfigMap,
        "a",
        {"metadata": {"labels": {"drop": None, "new": "3"}}, "data": {"y": "2"}},
        namespace=world.namespace,
    )

    assert changed.metadata.labels == {"keep": "1", "new": "3"}
    assert changed.data == {"x": "1", "y": "2"}
    assert changed.uid == made.uid
    assert int(changed.metadata.resource_version) > int(made.metadata.resource_version)


async def test_a_patch_that_changes_nothing_writes_nothing(world: World) -> None:
    made = await world.config("a")

    same = await world.kube.merge_patch(
        ConfigMap, "a", {"data": {"x": "1"}}, namespace=world.namespace
    )

    assert same.metadata.resource_version == made.metadata.resource_version


async def test_a_patch_of_a_stale_version_is_a_conflict(world: World) -> None:
    made = await world.config("a")
    await world.kube.merge_patch(ConfigMap, "a", {"data": {"x": "2"}}, namespace=world.namespace)

    with pytest.raises(errors.Conflict):
        await world.kube.merge_patch(
            ConfigMap,
            "a",
            {"data": {"x": "3"}},
            namespace=world.namespace,
            resource_version=made.metadata.resource_version,
        )

    read = await world.kube.get(ConfigMap, "a", namespace=world.namespace)
    assert read.data == {"x": "2"}


@pytest.mark.parametrize("kind", [ConfigMap, Widget])
async def test_a_patch_with_another_uid_is_a_conflict(
    world: World, kind: type[ConfigMap | Widget]
) -> None:
    await world.config("a")
    await world.widget("a")

    with pytest.raises(errors.Conflict):
        await world.kube.merge_patch(
            kind,
            "a",
            {"metadata": {"labels": {"x": "y"}}},
            namespace=world.namespace,
            uid="00000000-0000-0000-0000-000000000000",
        )

    read = await world.kube.get(kind, "a", namespace=world.namespace)
    assert read.metadata.labels == {}


async def test_patch_with_the_right_version_and_uid_is_applied(world: World) -> None:
    made = await world.widget("a")

    changed = await world.kube.merge_patch(
        Widget,
        "a",
        {"spec": {"size": 7}},
        namespace=world.namespace,
        resource_version=made.metadata.resource_version,
        uid=made.uid,
    )

    assert changed.spec.size == 7
    assert changed.metadata.generation == 2


async def test_each_concurrent_write_is_applied_once(world: World) -> None:
    await world.widget("counter", size=0)

    await asyncio.gather(*(count_up(world) for _ in range(8)))

    read = await world.kube.get(Widget, "counter", namespace=world.namespace)
    assert read.spec.size == 8


async def count_up(world: World) -> None:
    """Add one by compare and set, again until it works."""
    while True:
        read = await world.kube.get(Widget, "counter", namespace=world.namespace)
        try:
            await world.kube.merge_patch(
                Widget,
                "counter",
                {"spec": {"size": read.spec.size + 1}},
                namespace=world.namespace,
                resource_version=read.metadata.resource_version,
            )
        except errors.Conflict:
            continue
        return


async def test_a_merge_patch_that_breaks_a_rule_changes_nothing(world: World) -> None:
    await world.widget("a", size=5)

    with pytest.raises(errors.InvalidSpec) as caught:
        await world.kube.merge_patch(Widget, "a", {"spec": {"size": -1}}, namespace=world.namespace)

    assert [cause.field for cause in caught.value.causes] == ["spec.size"]
    read = await world.kube.get(Widget, "a", namespace=world.namespace)
    assert read.spec.size == 5


async def test_a_name_cannot_be_changed(world: World) -> None:
    await world.config("a")

    with pytest.raises(errors.Refused):
        await world.kube.merge_patch(
            ConfigMap, "a", {"metadata": {"name": "b"}}, namespace=world.namespace
        )


async def test_json_patch_operations_are_applied_in_order(world: World) -> None:
    await world.config("a")

    changed = await world.kube.json_patch(
        ConfigMap,
        "a",
        [
            {"op": "test", "path": "/data/x", "value": "1"},
            {"op": "add", "path": "/data/new~1key", "value": "a"},
            {"op": "move", "from": "/data/new~1key", "path": "/data/moved"},
            {"op": "remove", "path": "/data/x"},
        ],
        namespace=world.namespace,
    )

    assert changed.data == {"moved": "a"}


async def test_json_patch_with_a_failed_test_changes_nothing(world: World) -> None:
    await world.config("a")
    steps = [
        {"op": "add", "path": "/data/y", "value": "2"},
        {"op": "test", "path": "/data/x", "value": "9"},
    ]

    with pytest.raises(errors.InvalidSpec):
        await world.kube.json_patch(ConfigMap, "a", steps, namespace=world.namespace)

    read = await world.kube.get(ConfigMap, "a", namespace=world.namespace)
    assert read.data == {"x": "1"}


async def test_an_invalid_json_patch_is_refused(world: World) -> None:
    await world.config("a")

    with pytest.raises(errors.Refused):
        await world.kube.json_patch(
            ConfigMap, "a", [{"op": "invent", "path": "/data/x"}], namespace=world.namespace
        )
    with pytest.raises(errors.Refused):
        await world.kube.json_patch(
            ConfigMap, "a", [{"op": "remove", "path": "/data/none"}], namespace=world.namespace
        )


async def test_status_and_spec_are_written_separately(world: World) -> None:
    await world.widget("a", size=1)
    both = {"spec": {"size": 9}, "status": {"phase": "Ready"}}
    other = {"spec": {"size": 50}, "status": {"phase": "Ready"}}

    spec_only = await world.kube.merge_patch(Widget, "a", both, namespace=world.namespace)
    assert (spec_only.spec.size, spec_only.status.phase) == (9, "")
    assert spec_only.metadata.generation == 2

    status_only = await world.kube.merge_patch(
        Widget, "a", other, namespace=world.namespace, subresource="status"
    )
    assert (status_only.spec.size, status_only.status.phase) == (9, "Ready")
    assert status_only.metadata.generation == 2


async def test_a_status_given_at_creation_is_dropped(world: World) -> None:
    body = {
        "apiVersion": "contract.bramley.dev/v1",
        "kind": "Widget",
        "metadata": {"name": "a"},
        "spec": {"size": 1},
        "status": {"phase": "Ready"},
    }

    made = await world.kube.create_wire(Widget.resource, body, namespace=world.namespace)

    assert "status" not in made


async def test_a_stale_status_is_a_conflict(world: World) -> None:
    made = await world.widget("a")
    await world.kube.merge_patch(Widget, "a", {"spec": {"size": 2}}, namespace=world.namespace)

    with pytest.raises(errors.Conflict):
        await world.kube.merge_patch(
            Widget,
            "a",
            {"status": {"phase": "Ready"}},
            namespace=world.namespace,
            subresource="status",
            resource_version=made.metadata.resource_version,
        )


async def test_scale_shows_and_sets_replicas(world: World) -> None:
    await world.widget("a")
    status = {"status": {"replicas": 2, "selector": "app=a"}}
    await world.kube.merge_patch(
        Widget, "a", status, namespace=world.namespace, subresource="status"
    )

    scaled = await world.kube.scale(Widget, "a", namespace=world.namespace, replicas=4)
    found = await world.kube.get_scale(Widget, "a", namespace=world.namespace)

    assert scaled.spec.replicas == found.spec.replicas == 4
    assert (found.status.replicas, found.status.selector) == (2, "app=a")
    read = await world.kube.get(Widget, "a", namespace=world.namespace)
    assert read.spec.replicas == 4
    assert read.metadata.generation == 2


async def test_a_negative_scale_is_invalid(world: World) -> None:
    await world.widget("a")

    with pytest.raises(errors.InvalidSpec):
        await world.kube.scale(Widget, "a", namespace=world.namespace, replicas=-1)


async def test_scale_of_a_kind_without_one_is_not_found(world: World) -> None:
    await world.config("a")

    with pytest.raises(errors.NotFound):
        await world.kube.get_scale(ConfigMap, "a", namespace=world.namespace)
