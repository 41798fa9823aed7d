"""Controllers of a cluster with unreadable objects in its store: everything else works."""

from __future__ import annotations

from bramley.api.apps import Deployment, ReplicaSet
from bramley.api.core import ConfigMap, Namespace, Node, Pod, ServiceAccount
from bramley.apiserver.controllers.objects import log_errors
from bramley.apiserver.kinds import builtin_kinds
from bramley.app import embedded
from bramley.kube.client import Client
from bramley.runtime.cache import Handler
from bramley.runtime.keys import Key
from tests import virtual_time
from tests.unit.apiserver import damaged
from tests.unit.apiserver.controllers.cluster_world import a_config_map, is_there, settled
from tests.unit.apiserver.controllers.test_deployments import a_deployment

AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "9"}
READY = {"type": "Ready", "status": "True"}


async def test_controllers_work_with_unreadable_objects_of_every_kind() -> None:
    clock = virtual_time.clock()
    async with (
        embedded.running(clock=clock, controllers=True) as (api, token),
        Client(api.transport(token), clock=clock) as client,
    ):
        for name in ("t", "u", "v"):
            await client.create_wire(Namespace.resource, {"metadata": {"name": name}})
        await damaged.put_all(api.store, builtin_kinds.catalog())
        await settled(60)

        await _check_scheduling_and_garbage(client)
        await _check_node_lifecycle(client)
        await _check_namespaces(client)


async def _check_scheduling_and_garbage(client: Client) -> None:
    status = {"capacity": AMOUNTS, "allocatable": AMOUNTS, "conditions": [READY]}
    await client.create_wire(Node.resource, {"metadata": {"name": "mac"}, "status": status})
    deployment = a_deployment(2)
    del deployment["spec"]["template"]["spec"]["nodeName"]
    await client.create_wire(Deployment.resource, deployment, namespace="u")
    await settled(5)
    pods = (await client.list(Pod, namespace="u")).items
    assert [pod.spec.node_name for pod in pods] == ["mac", "mac"]

    await client.delete(Deployment, "d", namespace="u", propagation="Background")
    await settled(5)
    assert not (await client.list(ReplicaSet, namespace="u")).items
    assert all(pod.deleting for pod in (await client.list(Pod, namespace="u")).items)


async def _check_node_lifecycle(client: Client) -> None:
    await settled(60)
    conditions = (await client.get(Node, "mac")).status.conditions
    assert [each.status for each in conditions if each.type == "Ready"] == ["Unknown"]


async def _check_namespaces(client: Client) -> None:
    await client.create(a_config_map("kept", namespace="v"))
    assert await is_there(client, ServiceAccount, "default", namespace="v")
    await client.delete(Namespace, "v")
    await settled(30)
    assert not await is_there(client, Namespace, "v")
    assert not await is_there(client, ConfigMap, "kept", namespace="v")


async def test_a_handler_that_fails_for_one_object_is_called_for_the_next() -> None:
    seen: list[str] = []

    def handler(key: Key, _old: Pod | None, _new: Pod | None) -> None:
        seen.append(key.name)
        if key.name == "strange":
            raise KeyError("cpu")

    changed: Handler[Pod] = log_errors(handler)
    for name in ("strange", "plain"):
        changed(Key("n", name), None, Pod())

    assert seen == ["strange", "plain"]
