"""Machines are created, replaced, drained and deleted alike by the small controllers and by Cluster API's core manager."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import yaml

from bramley.api.cluster_api import Cluster, Machine, MachineDeployment, MachineSet
from bramley.api.core import Node, Pod, ServiceAccount
from bramley.api.machine_template import ScalewayAppleSiliconMachineTemplate
from bramley.api.names import cluster_api as names
from bramley.api.names import labels
from bramley.api.tuist_cluster import TuistCluster
from bramley.base import errors
from tests.contract.cluster_api.targets import DRAIN_RULES, FLEET, World
from tests.contract.cluster_behaviour.targets import eventually

pytestmark = pytest.mark.side_by_side

Open = Callable[[], AbstractAsyncContextManager[World]]
# Long enough for a controller that reacts to a change to have acted on it.
SETTLE_SECONDS = 3
DRAIN_RULE = Path(__file__).parents[3] / "examples/machine-drain-rule.yaml"


async def test_scale_up_and_down(opening: Open) -> None:
    async with opening() as world:
        await world.create_deployment(0)
        await world.scale(3)
        three = await world.wait_for_running(3)

        scale = await world.kube.get_scale(MachineDeployment, "fleet", namespace=world.namespace)
        assert (scale.status.replicas, "tuist.dev/fleet=fleet-a" in scale.status.selector) == (
            3,
            True,
        )
        await world.scale(1)
        (left,) = await world.wait_for_running(1)

        assert left.uid in {each.uid for each in three}
        assert [each.name for each in await world.infrastructure()] == [left.name]
        gone = {each.name for each in three} - {left.name}
        assert not gone & {each.name for each in (await world.kube.list(Node)).items}
        await world.scale(0)
        await world.wait_for_running(0)


async def test_machine_is_bound_to_the_node_with_its_provider_id(opening: Open) -> None:
    async with opening() as world:
        await world.create_deployment(1)

        (machine,) = await world.wait_for_running(1)

        (infrastructure,) = await world.infrastructure()
        node = await world.kube.get(Node, machine.name)
        assert machine.spec.provider_id == infrastructure.spec.provider_id == node.spec.provider_id
        assert machine.status.node_ref is not None
        assert (machine.status.node_ref.name, machine.status.node_ref.uid) == (node.name, node.uid)
        assert "192.0.2.1" in {each.address for each in machine.status.addresses}
        true = {each.type for each in machine.status.conditions if each.status == "True"}
        assert true >= {"Ready", names.INFRASTRUCTURE_READY, names.NODE_HEALTHY}


async def test_machine_waits_for_its_infrastructure(opening: Open) -> None:
    async with opening() as world, world.provider.provisioning:
        await world.create_deployment(1)

        async def is_waiting() -> bool:
            # Without a bootstrap provider the core manager stays in the first phase.
            phases = [each.status.phase for each in await world.machines()]
            is_cloned = len(await world.infrastructure()) == 1
            return is_cloned and phases in (["Pending"], ["Provisioning"])

        await eventually(is_waiting)
        await asyncio.sleep(SETTLE_SECONDS)
        deployment = await world.deployment()
        assert deployment.status.ready_replicas == 0
        (machine,) = await world.machines()
        assert (machine.status.node_ref, machine.status.infrastructure_ready) == (None, False)


async def test_owner_references_and_labels(opening: Open) -> None:
    async with opening() as world:
        await world.create_deployment(1)
        (machine,) = await world.wait_for_running(1)

        (owner,) = (await world.kube.list(MachineSet, namespace=world.namespace)).items
        (clone,) = await world.infrastructure()
        found = [
            [(ref.kind, ref.name, ref.controller) for ref in each.metadata.owner_references]
            for each in (clone, machine, owner)
        ]
        assert found == [
            [("Machine", machine.name, True)],
            [("MachineSet", owner.name, True)],
            [("MachineDeployment", "fleet", True)],
        ]
        identity = {labels.CAPI_CLUSTER: "c", names.DEPLOYMENT_NAME: "fleet", **FLEET}
        for each in (clone, machine, owner):
            assert identity.items() <= each.metadata.labels.items()
            assert names.TEMPLATE_HASH in each.metadata.labels
        assert machine.metadata.labels[names.SET_NAME] == owner.name
        assert clone.name == machine.name
        assert clone.spec.host_cpu == 4
        template = ScalewayAppleSiliconMachineTemplate.resource
        assert clone.metadata.annotations[names.CLONED_FROM_NAME] == "t1"
        group_kind = clone.metadata.annotations[names.CLONED_FROM_GROUP_KIND]
        assert group_kind == f"{template.kind}.{template.group}"


async def test_cluster_owns_its_infrastructure_and_deployments(opening: Open) -> None:
    async with opening() as world:
        await world.create_deployment(0)

        async def are_owned() -> bool:
            cluster = await world.kube.get(Cluster, "c", namespace=world.namespace)
            tuist = await world.kube.get(TuistCluster, "c", namespace=world.namespace)
            owned = [tuist, await world.deployment()]
            owners = [{ref.uid for ref in each.metadata.owner_references} for each in owned]
            return all(cluster.uid in each for each in owners)

        await eventually(are_owned)
        cluster = await world.kube.get(Cluster, "c", namespace=world.namespace)
        true = {each.type for each in cluster.status.conditions if each.status == "True"}
        assert true >= {names.INFRASTRUCTURE_READY, "ControlPlaneInitialized"}
        assert cluster.status.infrastructure_ready


async def test_annotation_decides_which_machine_a_scale_down_deletes(opening: Open) -> None:
    async with opening() as world:
        await world.create_deployment(3)
        machines = await world.wait_for_running(3)
        chosen = machines[1].name
        annotation = {"metadata": {"annotations": {names.DELETE_MACHINE: "true"}}}
        await world.patch(Machine, chosen, annotation)

        await world.scale(2)
        left = await world.wait_for_running(2)

        assert {each.name for each in left} == {each.name for each in machines} - {chosen}


async def test_changed_template_is_used_only_after_a_machine_is_deleted(opening: Open) -> None:
    async with opening() as world:
        await world.create_deployment(2)
        before = await world.wait_for_running(2)
        await world.create_template("t2", cpus=8)
        reference = world.reference(ScalewayAppleSiliconMachineTemplate, "t2")
        patch = {"spec": {"template": {"spec": {"infrastructureRef": reference}}}}
        await world.patch(MachineDeployment, "fleet", patch)

        async def has_second_set() -> bool:
            sets = (await world.kube.list(MachineSet, namespace=world.namespace)).items
            return len(sets) == 2

        await eventually(has_second_set)
        await asyncio.sleep(SETTLE_SECONDS)
        assert {each.uid for each in await world.machines()} == {each.uid for each in before}

        await world.kube.delete(Machine, before[0].name, namespace=world.namespace)

        async def is_replaced() -> bool:
            uids = {each.uid for each in await world.machines()}
            return len(uids) == 2 and before[0].uid not in uids

        await eventually(is_replaced)
        await world.wait_for_running(2)
        cpus = {each.name: each.spec.host_cpu for each in await world.infrastructure()}
        assert cpus.pop(before[1].name) == 4
        assert list(cpus.values()) == [8]

        async def is_counted() -> bool:
            return (await world.deployment()).status.updated_replicas == 1

        await eventually(is_counted)


async def test_paused_cluster_changes_nothing(opening: Open) -> None:
    async with opening() as world:
        await world.create_deployment(1)
        (machine,) = await world.wait_for_running(1)
        await world.patch(Cluster, "c", {"spec": {"paused": True}})
        # The core manager reads the Cluster from its cache.
        await asyncio.sleep(SETTLE_SECONDS)

        await world.scale(2)
        await world.kube.delete(Machine, machine.name, namespace=world.namespace)
        await asyncio.sleep(SETTLE_SECONDS)

        (paused,) = await world.machines()
        assert (paused.uid, paused.deleting) == (machine.uid, True)
        assert machine.name in await world.nodes()
        await world.patch(Cluster, "c", {"spec": {"paused": False}})

        async def is_replaced() -> bool:
            uids = {each.uid for each in await world.machines()}
            return len(uids) == 2 and machine.uid not in uids

        await eventually(is_replaced)


async def create_pod(world: World, name: str, node: str, **pod_labels: str) -> None:
    """Create a Pod on a Node that needs no agent to run."""
    pod = {
        "nodeName": node,
        "serviceAccountName": "pods",
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "a:1"}],
    }
    metadata = {"labels": {"app": name, **pod_labels}, "finalizers": []}
    await world.create(Pod, name, metadata=metadata, spec=pod)


async def test_drain_evicts_pods_and_waits_for_runners(opening: Open) -> None:
    async with opening() as world:
        if await has_drain_rules(world):
            rule = yaml.safe_load(DRAIN_RULE.read_text())
            await world.create(DRAIN_RULES, "runners", spec=rule["spec"])
        await world.create_deployment(1)
        (machine,) = await world.wait_for_running(1)
        await world.create(ServiceAccount, "pods")
        await create_pod(world, "web", machine.name)
        await create_pod(world, "job", machine.name, **{labels.RUNNER: labels.TRUE})
        runner = await world.kube.get(Pod, "job", namespace=world.namespace)
        await world.scale(0)

        async def is_evicted() -> bool:
            found = (await world.kube.list(Pod, namespace=world.namespace)).items
            return [each.name for each in found] == ["job"]

        await eventually(is_evicted)
        await asyncio.sleep(SETTLE_SECONDS)
        waiting = await world.kube.get(Pod, "job", namespace=world.namespace)
        assert (waiting.uid, waiting.deleting) == (runner.uid, False)
        assert (await world.kube.get(Node, machine.name)).spec.unschedulable
        (infrastructure,) = await world.infrastructure()
        assert not infrastructure.deleting
        (draining,) = await world.machines()
        assert draining.status.phase == "Deleting"

        await world.kube.delete(Pod, "job", namespace=world.namespace)
        await world.wait_for_running(0)

        with pytest.raises(errors.NotFound):
            await world.kube.get(Node, machine.name)


async def has_drain_rules(world: World) -> bool:
    """Return whether the server has the core manager's rules for drains."""
    try:
        await world.kube.read_wire(DRAIN_RULES.path(world.namespace))
    except errors.NotFound:
        return False
    return True


async def test_annotated_machine_is_deleted_without_a_drain(opening: Open) -> None:
    async with opening() as world:
        await world.create_deployment(1)
        (machine,) = await world.wait_for_running(1)
        await world.create(ServiceAccount, "pods")
        await create_pod(world, "job", machine.name, **{labels.RUNNER: labels.TRUE})
        annotation = {"metadata": {"annotations": {names.EXCLUDE_NODE_DRAINING: ""}}}
        await world.patch(Machine, machine.name, annotation)

        await world.scale(0)
        await world.wait_for_running(0)

        with pytest.raises(errors.NotFound):
            await world.kube.get(Node, machine.name)


async def test_deployment_is_deleted_with_its_machines_and_nodes(opening: Open) -> None:
    async with opening() as world:
        await world.create_deployment(2)
        machines = await world.wait_for_running(2)

        await world.kube.delete(MachineDeployment, "fleet", namespace=world.namespace)
        await world.wait_for_running(0)

        async def have_no_nodes() -> bool:
            return not {each.name for each in machines} & await world.nodes()

        await eventually(have_no_nodes)
