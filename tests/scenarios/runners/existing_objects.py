"""The objects of a pool as the existing controller leaves them: a status with its fields only, Pods with random names, no slots."""

from __future__ import annotations

import msgspec

from bramley.api.core import ServiceAccount
from bramley.api.meta import ObjectMeta, OwnerReference
from bramley.api.names import finalizers, labels, runners
from bramley.api.pod import Container, EnvVar, Pod, PodSpec, Toleration
from bramley.api.runner_pool import RunnerPool
from tests.scenarios.runners.world import NAMESPACE, OLD, POOL, World


async def an_existing_pool(world: World, replicas: int) -> RunnerPool:
    """Create a pool with finalizer and status."""
    pool = await world.create_pool(replicas=replicas)
    added = {"metadata": {"finalizers": [finalizers.POOL_DRAIN]}}
    await world.kube.merge_patch(RunnerPool, pool.name, added, namespace=NAMESPACE)
    status = {
        "observedReplicas": replicas,
        "observedImage": OLD,
        "imageRolledAt": "2025-12-01T08:00:00Z",
        "lastReconcile": "2025-12-31T23:59:59Z",
    }
    return await world.kube.merge_patch(
        RunnerPool, pool.name, {"status": status}, namespace=NAMESPACE, subresource="status"
    )


async def an_existing_pod(world: World, pool: RunnerPool, digits: str, image: str = OLD) -> Pod:
    """Create a Pod and its ServiceAccount."""
    owner = OwnerReference(
        api_version=RunnerPool.resource.api_version,
        kind=RunnerPool.resource.kind,
        name=pool.name,
        uid=pool.uid,
        controller=True,
        block_owner_deletion=True,
    )
    metadata = ObjectMeta(
        name=runners.pod_name(pool.name, digits),
        namespace=NAMESPACE,
        labels={labels.RUNNER_POOL: POOL},
        owner_references=[owner],
    )
    await world.kube.create(
        ServiceAccount(metadata=metadata, automount_service_account_token=False)
    )
    spec = _a_spec(pool, metadata.name, image)
    return await world.kube.create(
        Pod(metadata=msgspec.structs.replace(metadata, labels=_LABELS), spec=spec)
    )


_LABELS = {
    labels.APP_NAME: labels.APP_NAME_RUNNER,
    labels.APP_COMPONENT: labels.COMPONENT_RUNNER,
    labels.RUNNER: labels.TRUE,
    labels.RUNNER_POOL: POOL,
}


def _a_spec(pool: RunnerPool, account: str, image: str) -> PodSpec:
    return PodSpec(
        restart_policy="Never",
        service_account_name=account,
        automount_service_account_token=True,
        node_selector={
            labels.OS: labels.DARWIN,
            labels.RUNTIME: labels.RUNTIME_TART,
            labels.FLEET: pool.spec.fleet_selector,
        },
        tolerations=[
            Toleration(key=labels.MACOS_TAINT, operator="Exists", effect=labels.NO_SCHEDULE)
        ],
        containers=[
            Container(
                name=runners.CONTAINER,
                image=image,
                env=[EnvVar(name=runners.ENV_POOL, value=POOL)],
            )
        ],
    )


async def patch_labels(world: World, pod: Pod, changes: dict[str, str | None]) -> None:
    """Change labels of a Pod."""
    patch = {"metadata": {"labels": changes}}
    await world.kube.merge_patch(Pod, pod.name, patch, namespace=NAMESPACE)
