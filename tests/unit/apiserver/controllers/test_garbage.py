"""Garbage collection on the embedded API: nothing with a living owner goes, everything without one does."""

from __future__ import annotations

import pytest

from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.core import ConfigMap, Event, Namespace, Node, Secret
from bramley.api.meta import ObjectMeta, Resource
from bramley.kube.client import Client
from tests.unit.apiserver.controllers.cluster_world import a_config_map, is_there, owned_by, settled
from tests.unit.apiserver.world import a_widget, widget_crd

WIDGETS = Resource("example.com", "v1", "Widget", "widgets", namespaced=True)


async def names(client: Client) -> list[str]:
    found = await client.list(ConfigMap, namespace="t")
    return [each.name for each in found.items if each.name != "kube-root-ca.crt"]


async def test_dependents_of_dependents_are_deleted(client: Client) -> None:
    owner = await client.create(a_config_map("owner"))
    child = await client.create(a_config_map("child", owned_by(owner)))
    await client.create(a_config_map("grandchild", owned_by(child)))
    await client.create(a_config_map("stranger"))
    await settled()
    before = await names(client)

    await client.delete(ConfigMap, "owner", namespace="t")
    await settled()

    assert before == ["child", "grandchild", "owner", "stranger"]
    assert await names(client) == ["stranger"]


async def test_object_with_another_owner_stays_and_loses_the_reference_to_the_absent_one(
    client: Client,
) -> None:
    first = await client.create(a_config_map("first"))
    second = await client.create(a_config_map("second"))
    await client.create(a_config_map("child", owned_by(first), owned_by(second)))

    await client.delete(ConfigMap, "first", namespace="t")
    await settled()

    child = await client.get(ConfigMap, "child", namespace="t")
    assert [ref.name for ref in child.metadata.owner_references] == ["second"]


async def test_object_whose_owner_never_existed_is_deleted(client: Client) -> None:
    owner = await client.create(a_config_map("owner"))
    await client.create(a_config_map("impostor", owned_by(owner, uid="not-the-one")))
    await client.create(a_config_map("true", owned_by(owner)))
    await settled()

    assert await names(client) == ["owner", "true"]


async def test_an_owner_of_another_namespace_counts_as_absent_and_is_reported(
    client: Client,
) -> None:
    await client.create(Namespace(metadata=ObjectMeta(name="other")))
    owner = await client.create(a_config_map("owner", namespace="other"))
    await settled()
    await client.create(a_config_map("child", owned_by(owner)))
    await settled()

    assert await names(client) == []
    events = (await client.list(Event, namespace="t")).items
    assert [each.reason for each in events] == ["OwnerRefInvalidNamespace"]


async def test_a_cluster_wide_object_with_a_namespaced_owner_is_reported_and_stays(
    client: Client,
) -> None:
    owner = await client.create(a_config_map("owner"))
    await settled()
    place = ObjectMeta(name="n", owner_references=[owned_by(owner)])
    await client.create(Node(metadata=place))

    await client.delete(ConfigMap, "owner", namespace="t")
    await settled(60)

    assert await is_there(client, Node, "n")


async def test_foreground_deletion_waits_for_blocking_dependents(client: Client) -> None:
    owner = await client.create(a_config_map("owner"))
    held = ("example.com/hold",)
    await client.create(a_config_map("blocking", owned_by(owner, block=True), finalizers=held))
    await client.create(a_config_map("loose", owned_by(owner), finalizers=held))

    await client.delete(ConfigMap, "owner", namespace="t", propagation="Foreground")
    await settled()
    waiting = await client.get(ConfigMap, "owner", namespace="t")
    ending = await client.get(ConfigMap, "blocking", namespace="t")
    free = {"metadata": {"finalizers": None}}
    await client.merge_patch(ConfigMap, "blocking", free, namespace="t")
    await settled()

    assert waiting.metadata.finalizers == ["foregroundDeletion"]
    assert ending.deleting
    assert await names(client) == ["loose"]


async def test_foreground_deletion_of_a_chain_starts_at_its_end(client: Client) -> None:
    owner = await client.create(a_config_map("owner"))
    child = await client.create(a_config_map("child", owned_by(owner, block=True)))
    held = a_config_map("grandchild", owned_by(child, block=True), finalizers=("example.com/hold",))
    await client.create(held)

    await client.delete(ConfigMap, "owner", namespace="t", propagation="Foreground")
    await settled()
    waiting = await names(client)
    free = {"metadata": {"finalizers": None}}
    await client.merge_patch(ConfigMap, "grandchild", free, namespace="t")
    await settled()

    assert waiting == ["child", "grandchild", "owner"]
    assert await names(client) == []


async def test_foreground_deletion_of_a_cycle_ends(client: Client) -> None:
    one = await client.create(a_config_map("one"))
    two = await client.create(a_config_map("two", owned_by(one, block=True)))
    ref = owned_by(two, block=True)
    refs = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": ref.name,
            "uid": ref.uid,
            "blockOwnerDeletion": True,
        }
    ]
    patch = {"metadata": {"ownerReferences": refs}}
    await client.merge_patch(ConfigMap, "one", patch, namespace="t")
    await settled()

    await client.delete(ConfigMap, "one", namespace="t", propagation="Foreground")
    await settled(10)

    assert await names(client) == []


async def test_orphaned_dependents_stay_without_the_owner_reference(client: Client) -> None:
    owner = await client.create(a_config_map("owner"))
    await client.create(a_config_map("child", owned_by(owner)))

    await client.delete(ConfigMap, "owner", namespace="t", propagation="Orphan")
    await settled()

    child = await client.get(ConfigMap, "child", namespace="t")
    assert child.metadata.owner_references == []
    assert await names(client) == ["child"]


async def test_kinds_added_and_removed_later_are_handled(client: Client) -> None:
    await client.create_wire(CustomResourceDefinition.resource, widget_crd())
    await settled()
    owner = await client.create(a_config_map("owner"))
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid}
    widget = a_widget("w")
    widget["metadata"]["ownerReferences"] = [ref]
    made = await client.create_wire(WIDGETS, widget, namespace="t")
    of_widget = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w"}
    secret = {
        "metadata": {
            "name": "s",
            "ownerReferences": [{**of_widget, "uid": made["metadata"]["uid"]}],
        }
    }
    await client.create_wire(Secret.resource, secret, namespace="t")
    await settled()
    before = await is_there(client, Secret, "s")

    await client.delete(ConfigMap, "owner", namespace="t")
    await settled()

    assert before
    assert not await is_there(client, Secret, "s")
    await client.delete(CustomResourceDefinition, "widgets.example.com")
    await settled(5)
    await client.create(a_config_map("x", owned_by(owner)))
    await settled()
    assert await names(client) == []


@pytest.mark.parametrize("api_version", ["example.com/v1", "v9"])
async def test_an_owner_of_a_kind_that_is_not_served_keeps_its_dependents(
    client: Client, api_version: str
) -> None:
    unknown = {"apiVersion": api_version, "kind": "Gadget", "name": "g", "uid": "1"}
    body = {"metadata": {"name": "child", "ownerReferences": [unknown]}}
    await client.create_wire(ConfigMap.resource, body, namespace="t")

    await settled(600)

    assert await names(client) == ["child"]
