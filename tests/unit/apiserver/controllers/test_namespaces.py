"""Namespace deletion: Pods first, then other content, progress in conditions, and the namespace last."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.core import ConfigMap, Namespace, Pod, ServiceAccount
from bramley.api.meta import Condition, ObjectMeta, Resource
from bramley.apiserver.controllers import namespaces
from bramley.apiserver.controllers.namespaces import DeletionResult
from bramley.kube.client import Client
from tests.unit.apiserver.controllers.cluster_world import a_config_map, is_there, settled
from tests.unit.apiserver.world import a_pod, a_widget, widget_crd

WIDGETS = Resource("example.com", "v1", "Widget", "widgets", namespaced=True)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def pod(client: Client, name: str, **spec: object) -> None:
    await client.create_wire(Pod.resource, a_pod(name, **spec), namespace="t")


def condition_reasons(namespace: Namespace) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in namespace.status.conditions}


async def test_a_deleted_namespace_loses_its_content(client: Client) -> None:
    await client.create_wire(CustomResourceDefinition.resource, widget_crd())
    await client.create_wire(WIDGETS, a_widget("w"), namespace="t")
    await client.create(a_config_map("a"))

    await client.delete(Namespace, "t")
    await settled(6)

    assert not await is_there(client, Namespace, "t")
    await client.create(Namespace(metadata=ObjectMeta(name="t")))
    left = await client.list(ConfigMap, namespace="t", fields={"metadata.name": "a"})
    assert left.items == []
    assert (await client.read_wire("/apis/example.com/v1/widgets"))["items"] == []


async def test_content_with_finalizers_holds_the_namespace_and_is_reported(client: Client) -> None:
    await client.create(a_config_map("held", finalizers=("example.com/hold",)))

    await client.delete(Namespace, "t")
    await settled(6)
    waiting = await client.get(Namespace, "t")
    await client.merge_patch(ConfigMap, "held", {"metadata": {"finalizers": None}}, namespace="t")
    await settled(9)

    assert condition_reasons(waiting)["NamespaceContentRemaining"] == (
        "True",
        "SomeResourcesRemain",
    )
    assert condition_reasons(waiting)["NamespaceFinalizersRemaining"] == (
        "True",
        "SomeFinalizersRemain",
    )
    messages = {each.type: each.message for each in waiting.status.conditions}
    assert (
        messages["NamespaceContentRemaining"]
        == "Some resources are remaining: configmaps. has 1 resource instances"
    )
    assert not await is_there(client, Namespace, "t")


async def test_pods_are_deleted_first(client: Client) -> None:
    await client.create(a_config_map("needed"))
    await pod(client, "p", nodeName="n", terminationGracePeriodSeconds=20)

    await client.delete(Namespace, "t")
    await settled(6)
    meanwhile = await is_there(client, ConfigMap, "needed")
    await client.delete(Pod, "p", namespace="t", grace=timedelta())
    await settled(15)

    assert meanwhile
    assert not await is_there(client, Namespace, "t")


async def test_deleted_default_service_account_is_created_again(client: Client) -> None:
    first = await client.get(ServiceAccount, "default", namespace="t")

    await client.delete(ServiceAccount, "default", namespace="t")
    await settled()

    again = await client.get(ServiceAccount, "default", namespace="t")
    assert again.uid != first.uid
    assert await is_there(client, ServiceAccount, "default", "kube-system")


def test_a_successful_attempt_sets_all_five_conditions() -> None:
    conditions = namespaces.deletion_conditions([], DeletionResult(), now=NOW)

    assert [each.status for each in conditions] == ["False"] * 5
    assert [each.reason for each in conditions] == [
        "ResourcesDiscovered",
        "ParsedGroupVersions",
        "ContentDeleted",
        "ContentRemoved",
        "ContentHasNoFinalizers",
    ]


def test_unchanged_and_foreign_conditions_keep_their_times() -> None:
    foreign = Condition(type="Mine", status="True")
    before = namespaces.deletion_conditions([foreign], DeletionResult(), now=NOW)
    result = DeletionResult(errors=["b", "a"])

    after = namespaces.deletion_conditions(before, result, now=NOW + timedelta(minutes=1))

    times = {each.type: each.last_transition_time for each in after}
    assert after[0] == foreign
    assert times["NamespaceDeletionContentFailure"] == NOW + timedelta(minutes=1)
    assert times["NamespaceContentRemaining"] == NOW
    failed = next(each for each in after if each.type == "NamespaceDeletionContentFailure")
    assert failed.message == "Failed to delete all resource types, 2 remaining: a, b"
