"""Namespaces, Deployments and disruption budgets end in the same state on every cluster."""

from __future__ import annotations

from typing import Any

import pytest

from bramley.api.apps import Deployment, ReplicaSet
from bramley.api.core import ConfigMap, Namespace, Pod, ServiceAccount
from bramley.api.policy import PodDisruptionBudget
from bramley.base import errors
from tests.contract.cluster_behaviour.targets import Open, World, a_world, eventually

pytestmark = pytest.mark.side_by_side

REVISION = "deployment.kubernetes.io/revision"


def a_deployment(world: World, replicas: int, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "a:1"}]
    pod = {"containers": containers, "nodeName": world.node, "automountServiceAccountToken": False}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod},
            **spec,
        },
    }


async def deploy(world: World, replicas: int, **spec: Any) -> None:
    body = a_deployment(world, replicas, **spec)
    await world.kube.create_wire(Deployment.resource, body, namespace=world.namespace)
    await rolled_out(world, replicas)


async def deployment(world: World) -> Deployment:
    return await world.kube.get(Deployment, "web", namespace=world.namespace)


async def rolled_out(world: World, replicas: int) -> None:
    async def is_done() -> bool:
        found = await deployment(world)
        status = found.status
        counts = (status.replicas, status.updated_replicas, status.available_replicas)
        seen = status.observed_generation >= found.metadata.generation
        return seen and counts == (replicas, replicas, replicas)

    await eventually(is_done)


async def image(world: World, name: str) -> None:
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": name}]}}}}
    await world.kube.merge_patch(Deployment, "web", patch, namespace=world.namespace)


async def images(world: World) -> list[str]:
    return sorted(pod.spec.containers[0].image for pod in await world.pods() if not pod.deleting)


async def sets(world: World) -> dict[str, int]:
    found = (await world.kube.list(ReplicaSet, namespace=world.namespace)).items
    return {each.metadata.annotations[REVISION]: each.spec.replicas for each in found}


async def test_a_namespace_is_deleted_with_its_content(opening: Open) -> None:
    async with a_world(opening) as world:
        await deploy(world, 2)
        await world.config_map("a")

        await world.kube.delete(Namespace, world.namespace)

        async def is_gone() -> bool:
            return not await world.exists(Namespace, world.namespace)

        await eventually(is_gone)
        assert await world.pods() == []


async def test_a_terminating_namespace_names_the_remaining_content(opening: Open) -> None:
    async with a_world(opening) as world:
        await world.config_map("held", finalizers=("example.com/hold",))

        await world.kube.delete(Namespace, world.namespace)

        expected = {
            "NamespaceContentRemaining": (
                "Some resources are remaining: configmaps. has 1 resource instances"
            ),
            "NamespaceFinalizersRemaining": (
                "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
            ),
        }

        async def is_reported() -> bool:
            # At first there may be more, which a controller has just created.
            found = await world.kube.get(Namespace, world.namespace)
            messages = {each.type: each.message for each in found.status.conditions}
            return expected.items() <= messages.items()

        await eventually(is_reported)
        await world.release("held")

        async def is_gone() -> bool:
            return not await world.exists(Namespace, world.namespace)

        await eventually(is_gone)


async def test_every_namespace_has_a_default_service_account(opening: Open) -> None:
    async with a_world(opening) as world:

        async def has_account() -> bool:
            return await world.exists(ServiceAccount, "default")

        await eventually(has_account)
        await world.kube.delete(ServiceAccount, "default", namespace=world.namespace)
        await eventually(has_account)


async def test_a_deployment_rolls_from_one_image_to_the_next_and_back(opening: Open) -> None:
    async with a_world(opening) as world:
        await deploy(world, 3)
        await image(world, "a:2")
        await rolled_out(world, 3)
        second = await images(world), await sets(world)

        await image(world, "a:1")
        await rolled_out(world, 3)

        assert second == (["a:2"] * 3, {"1": 0, "2": 3})
        assert await images(world) == ["a:1"] * 3
        assert await sets(world) == {"2": 0, "3": 3}
        found = await deployment(world)
        conditions = {each.type: (each.status, each.reason) for each in found.status.conditions}
        assert found.metadata.annotations[REVISION] == "3"
        assert conditions == {
            "Available": ("True", "MinimumReplicasAvailable"),
            "Progressing": ("True", "NewReplicaSetAvailable"),
        }


async def test_replicas_are_scaled_and_replaced(opening: Open) -> None:
    async with a_world(opening) as world:
        await deploy(world, 1)
        await world.kube.scale(Deployment, "web", namespace=world.namespace, replicas=4)
        await rolled_out(world, 4)
        lost = (await world.pods())[0]

        await world.kube.delete(Pod, lost.name, namespace=world.namespace)

        async def is_back() -> bool:
            names = {pod.name for pod in await world.pods()}
            return lost.name not in names and len(names) == 4

        await eventually(is_back)
        await world.kube.scale(Deployment, "web", namespace=world.namespace, replicas=0)
        await rolled_out(world, 0)


async def test_recreate_strategy_never_mixes_templates(opening: Open) -> None:
    async with a_world(opening) as world:
        await deploy(world, 2, strategy={"type": "Recreate"})
        await image(world, "a:2")

        async def is_new() -> bool:
            found = set(await images(world))
            assert found <= {"a:1"} or found <= {"a:2"}
            return found == {"a:2"}

        await eventually(is_new)
        await rolled_out(world, 2)


async def test_old_revisions_are_deleted(opening: Open) -> None:
    async with a_world(opening) as world:
        await deploy(world, 1, revisionHistoryLimit=1)
        for number in (2, 3, 4):
            await image(world, f"a:{number}")
            await rolled_out(world, 1)

        async def is_short() -> bool:
            return await sets(world) == {"3": 0, "4": 1}

        await eventually(is_short)


async def test_paused_deployment_does_not_roll_out(opening: Open) -> None:
    async with a_world(opening) as world:
        await deploy(world, 1, paused=False)
        pause = {"spec": {"paused": True}}
        await world.kube.merge_patch(Deployment, "web", pause, namespace=world.namespace)
        await image(world, "a:2")

        async def is_paused() -> bool:
            conditions = (await deployment(world)).status.conditions
            return any(each.reason == "DeploymentPaused" for each in conditions)

        await eventually(is_paused)
        assert await images(world) == ["a:1"]
        go = {"spec": {"paused": False}}
        await world.kube.merge_patch(Deployment, "web", go, namespace=world.namespace)

        async def is_new() -> bool:
            return await images(world) == ["a:2"]

        await eventually(is_new)


@pytest.mark.parametrize("spec", [{"maxUnavailable": "25%"}, {"minAvailable": 3}])
async def test_a_budget_allows_one_eviction_at_a_time(opening: Open, spec: dict[str, Any]) -> None:
    async with a_world(opening) as world:
        await deploy(world, 4)
        budget = {
            "metadata": {"name": "web"},
            "spec": {**spec, "selector": {"matchLabels": {"app": "web"}}},
        }
        await world.kube.create_wire(
            PodDisruptionBudget.resource, budget, namespace=world.namespace
        )

        async def allowed() -> PodDisruptionBudget | None:
            found = await world.kube.get(PodDisruptionBudget, "web", namespace=world.namespace)
            return found if found.status.disruptions_allowed else None

        counted = await eventually(allowed)
        assert counted is not None
        status = counted.status
        assert (status.expected_pods, status.current_healthy, status.desired_healthy) == (4, 4, 3)
        [condition] = status.conditions
        assert (condition.type, condition.reason) == ("DisruptionAllowed", "SufficientPods")
        first, second, *_ = [pod.name for pod in await world.pods()]
        # While the agent is stopped no other Pod becomes ready.
        async with world.agent:
            await world.kube.evict(first, world.namespace)
            with pytest.raises(errors.RateLimited):
                await world.kube.evict(second, world.namespace)

        async def is_evicted() -> bool:
            try:
                await world.kube.evict(second, world.namespace)
            except errors.RateLimited:
                return False
            return True

        await eventually(is_evicted)
        await rolled_out(world, 4)


async def test_a_deployment_is_deleted_with_its_pods(opening: Open) -> None:
    async with a_world(opening) as world:
        await deploy(world, 2)
        await world.kube.delete(Deployment, "web", namespace=world.namespace)

        async def is_gone() -> bool:
            return not await world.pods() and not await sets(world)

        await eventually(is_gone)
        assert not await world.exists(ConfigMap, "web")
