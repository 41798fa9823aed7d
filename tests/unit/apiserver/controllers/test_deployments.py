"""Deployments and ReplicaSets on the embedded API, with Pods that become ready when the test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from bramley.api.apps import Deployment, ReplicaSet
from bramley.api.core import Event, Pod
from bramley.api.meta import Resource
from bramley.kube.client import Client
from tests import virtual_time
from tests.unit.apiserver.controllers.cluster_world import a_cluster, is_there, settled

READY = {"type": "Ready", "status": "True"}
PODS = Pod.resource


def a_deployment(
    replicas: int = 3, *, image: str = "a:1", strategy: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": "d"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "d"}},
            "strategy": strategy or {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                # Bound already, so these Pods need no scheduler.
                "spec": {"containers": [{"name": "c", "image": image}], "nodeName": "n"},
            },
            **spec,
        },
    }


@dataclass(frozen=True, slots=True)
class World:
    """A cluster and a Node's agent that runs what it is given."""

    client: Client

    async def deploy(self, body: dict[str, Any]) -> Deployment:
        await self.client.create_wire(Deployment.resource, body, namespace="t")
        await settled()
        return await self.deployment()

    async def deployment(self) -> Deployment:
        return await self.client.get(Deployment, "d", namespace="t")

    async def change(self, **spec: Any) -> None:
        await self.client.merge_patch(Deployment, "d", {"spec": spec}, namespace="t")

    async def image(self, image: str) -> None:
        spec = {"containers": [{"name": "c", "image": image}]}
        await self.change(template={"spec": spec})

    async def sets(self) -> list[ReplicaSet]:
        found = (await self.client.list(ReplicaSet, namespace="t")).items
        return sorted(found, key=lambda each: int(each.metadata.annotations.get(REVISION, "0")))

    async def sizes(self) -> list[int]:
        return [each.spec.replicas for each in await self.sets()]

    async def pods(self) -> list[Pod]:
        return (await self.client.list(Pod, namespace="t")).items

    async def images(self) -> list[str]:
        return sorted(pod.spec.containers[0].image for pod in await self.pods())

    async def reasons(self) -> list[str]:
        found = (await self.client.list(Event, namespace="t")).items
        return [each.reason for each in found]

    async def make_ready(self, pod: Pod) -> None:
        now = f"{virtual_time.clock().now():%Y-%m-%dT%H:%M:%SZ}"
        condition = {**READY, "lastTransitionTime": now}
        status = {"status": {"phase": "Running", "conditions": [condition]}}
        await self.client.merge_patch(Pod, pod.name, status, namespace="t", subresource="status")

    async def kubelet(self) -> None:
        """Make Pods ready and let those go that are to go, a second later each."""
        while True:
            await asyncio.sleep(1)
            for pod in await self.pods():
                if pod.deleting:
                    await self.client.delete(Pod, pod.name, namespace="t", grace=timedelta())
                elif pod.status.phase != "Running":
                    await self.make_ready(pod)


REVISION = "deployment.kubernetes.io/revision"
NODES = Resource("", "v1", "Node", "nodes", namespaced=False)


@asynccontextmanager
async def a_world(*, kubelet: bool = True) -> AsyncIterator[World]:
    async with a_cluster() as client, asyncio.TaskGroup() as group:
        await client.create_wire(NODES, {"metadata": {"name": "n"}})
        world = World(client)
        running = group.create_task(world.kubelet()) if kubelet else None
        yield world
        if running is not None:
            running.cancel()


def condition_reasons(deployment: Deployment) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in deployment.status.conditions}


@pytest.fixture
def world() -> AbstractAsyncContextManager[World]:
    return a_world()


async def test_deployment_creates_its_pods_and_reports_them(world: World) -> None:
    await world.deploy(a_deployment(3))
    await settled(5)

    deployment = await world.deployment()
    [owner] = await world.sets()
    assert owner.name == f"d-{owner.metadata.labels['pod-template-hash']}"
    assert (deployment.status.available_replicas, deployment.status.updated_replicas) == (3, 3)
    assert deployment.status.observed_generation == deployment.metadata.generation
    assert condition_reasons(deployment) == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    pods = await world.pods()
    assert {pod.metadata.labels["pod-template-hash"] for pod in pods} == {
        owner.metadata.labels["pod-template-hash"]
    }
    assert {"ScalingReplicaSet", "SuccessfulCreate"} <= set(await world.reasons())


async def test_a_new_template_replaces_the_old_pods_within_bounds(world: World) -> None:
    await world.deploy(a_deployment(4))
    await settled(5)
    seen: list[tuple[int, int]] = []

    await world.image("a:2")
    for _ in range(60):
        await settled(0.5)
        pods = await world.pods()
        ready = [pod for pod in pods if pod.status.phase == "Running" and not pod.deleting]
        seen.append((len([pod for pod in pods if not pod.deleting]), len(ready)))

    assert await world.images() == ["a:2"] * 4
    assert await world.sizes() == [0, 4]
    assert max(total for total, _ in seen) <= 5
    assert min(ready for _, ready in seen) >= 3
    assert (await world.deployment()).metadata.annotations[REVISION] == "2"


async def test_rollback_reuses_the_replica_set_with_a_new_revision(world: World) -> None:
    await world.deploy(a_deployment(2))
    await settled(5)
    await world.image("a:2")
    await settled(20)

    await world.image("a:1")
    await settled(20)

    first, second = await world.sets()
    assert [first.metadata.annotations[REVISION], second.metadata.annotations[REVISION]] == [
        "2",
        "3",
    ]
    history = second.metadata.annotations["deployment.kubernetes.io/revision-history"]
    assert (second.spec.replicas, history) == (2, "1")


async def test_recreate_strategy_waits_until_the_last_old_pod_is_gone(world: World) -> None:
    await world.deploy(a_deployment(2, strategy={"type": "Recreate"}))
    await settled(5)
    mixed = False

    await world.image("a:2")
    for _ in range(40):
        await settled(0.25)
        mixed = mixed or len(set(await world.images())) > 1

    assert not mixed
    assert await world.images() == ["a:2", "a:2"]


async def test_lost_pod_is_replaced_and_scaling_down_deletes_unready_pods_first() -> None:
    async with a_world(kubelet=False) as world:
        await world.deploy(a_deployment(3))
        for pod in (await world.pods())[:2]:
            await world.make_ready(pod)
        ready = {pod.name for pod in await world.pods() if pod.status.phase == "Running"}
        lost = (await world.pods())[2]
        await world.client.delete(Pod, lost.name, namespace="t", grace=timedelta())
        await settled()
        assert len(await world.pods()) == 3

        await world.client.scale(Deployment, "d", namespace="t", replicas=2)
        await settled()

        active = {pod.name for pod in await world.pods() if not pod.deleting}
        assert active == ready


async def test_a_paused_deployment_scales_but_does_not_roll(world: World) -> None:
    await world.deploy(a_deployment(2))
    await settled(5)
    await world.change(paused=True, replicas=3)
    await world.image("a:2")
    await settled(10)
    paused = await world.deployment()

    images = await world.images()
    await world.change(paused=False)
    await settled(20)

    assert images == ["a:1"] * 3
    assert condition_reasons(paused)["Progressing"] == ("Unknown", "DeploymentPaused")
    assert await world.images() == ["a:2"] * 3


async def test_a_stalled_rollout_is_reported_after_its_deadline() -> None:
    async with a_world(kubelet=False) as world:
        await world.deploy(a_deployment(1, progressDeadlineSeconds=60))
        await settled(40)
        before = await world.deployment()

        await settled(40)

        assert condition_reasons(before)["Progressing"] == ("True", "ReplicaSetUpdated")
        assert condition_reasons(await world.deployment())["Progressing"] == (
            "False",
            "ProgressDeadlineExceeded",
        )
        assert condition_reasons(before)["Available"] == ("False", "MinimumReplicasUnavailable")


async def test_pod_is_available_after_min_ready_seconds(world: World) -> None:
    await world.deploy(a_deployment(1, minReadySeconds=30))
    await settled(10)
    early = (await world.deployment()).status

    await settled(30)

    assert (early.ready_replicas, early.available_replicas) == (1, 0)
    assert (await world.deployment()).status.available_replicas == 1


async def test_old_revisions_are_kept_up_to_the_history_limit(world: World) -> None:
    await world.deploy(a_deployment(1, revisionHistoryLimit=1))
    await settled(5)
    for number in range(2, 5):
        await world.image(f"a:{number}")
        await settled(20)

    numbers = [each.metadata.annotations[REVISION] for each in await world.sets()]
    assert numbers == ["3", "4"]


async def test_matching_orphans_are_adopted_and_others_released(world: World) -> None:
    await world.deploy(a_deployment(2))
    await settled(5)
    [owner] = await world.sets()
    pod = (await world.pods())[0]

    patch = {"metadata": {"labels": {"app": "other"}}}
    await world.client.merge_patch(Pod, pod.name, patch, namespace="t")
    await settled()
    released = await world.client.get(Pod, pod.name, namespace="t")
    grown = len(await world.pods())
    patch = {"metadata": {"labels": {"app": "d"}}}
    await world.client.merge_patch(Pod, pod.name, patch, namespace="t")
    await settled(5)

    assert (released.metadata.owner_references, grown) == ([], 3)
    pods = await world.pods()
    assert len(pods) == 2
    assert {pod.metadata.owner_references[0].uid for pod in pods} == {owner.uid}


async def test_deleted_deployment_deletes_its_replica_sets_and_pods(world: World) -> None:
    await world.deploy(a_deployment(2))
    await settled(5)

    await world.client.delete(Deployment, "d", namespace="t")
    await settled(10)

    assert await world.sets() == []
    assert await world.pods() == []
    assert not await is_there(world.client, Deployment, "d")


async def test_a_replica_failure_is_reported_until_pods_are_created(world: World) -> None:
    body = a_deployment(3)
    body["spec"]["template"]["metadata"]["finalizers"] = ["no finalizer at all"]
    await world.deploy(body)
    failed = await world.deployment()

    await world.change(template={"metadata": {"finalizers": None}})
    await settled(20)

    assert condition_reasons(failed)["ReplicaFailure"] == ("True", "FailedCreate")
    assert (await world.reasons()).count("FailedCreate") >= 1
    assert len(await world.pods()) == 3
    assert "ReplicaFailure" not in condition_reasons(await world.deployment())


async def test_converged_deployment_writes_nothing() -> None:
    async with a_world(kubelet=False) as world:
        await world.deploy(a_deployment(1))
        await world.make_ready((await world.pods())[0])
        await settled(60)
        before = await world.deployment()
        [owner] = await world.sets()

        await settled(1800)

        after = await world.deployment()
        assert after.metadata.resource_version == before.metadata.resource_version
        assert (await world.sets())[0].metadata.resource_version == owner.metadata.resource_version
