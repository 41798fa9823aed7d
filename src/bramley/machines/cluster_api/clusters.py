"""The Cluster reconciler: follows the infrastructure cluster, and deletes all Machines before the Cluster."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from bramley.api.cluster_api import Cluster, ClusterStatus, Machine, MachineDeployment, MachineSet
from bramley.api.names import cluster_api as names
from bramley.api.names import labels
from bramley.api.tuist_cluster import TuistCluster
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.machines import objects
from bramley.runtime.cache import Cache
from bramley.runtime.controller import Controller
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import CheckAgain, Outcome, Settled
from bramley.runtime.writes import FencedKube

_DESCENDANTS_RETRY = timedelta(seconds=5)
Descendant = MachineDeployment | MachineSet | Machine


def status_of(
    cluster: Cluster, infrastructure: TuistCluster | None, now: datetime
) -> ClusterStatus:
    """Return the status of a Cluster with this infrastructure."""
    is_ready = infrastructure is not None and infrastructure.status.ready
    phase = "Provisioned" if is_ready else "Provisioning" if infrastructure else "Pending"
    problem = "" if is_ready else names.WAITING_FOR_INFRASTRUCTURE
    return replace(
        cluster.status,
        phase="Deleting" if cluster.deleting else phase,
        infrastructure_ready=is_ready,
        observed_generation=cluster.metadata.generation,
        conditions=objects.put_condition(
            cluster.status.conditions, names.INFRASTRUCTURE_READY, problem, now=now
        ),
    )


@dataclass(frozen=True, slots=True)
class ClusterReconciler:
    """Reconciles Clusters."""

    kube: FencedKube
    infrastructure: Cache[TuistCluster]
    descendants: tuple[Cache[MachineDeployment], Cache[MachineSet], Cache[Machine]]
    clock: Clock

    async def reconcile(self, cluster: Cluster) -> Outcome:
        """Report the infrastructure's readiness, and own it."""
        if objects.is_paused(cluster, cluster):
            return Settled()
        infrastructure = self._infrastructure_of(cluster)
        status = status_of(cluster, infrastructure, self.clock.now())
        if status != cluster.status:
            # Only this version: the infrastructure provider writes conditions, too.
            wire = {"status": objects.status_wire(status)}
            cluster = await objects.patch(self.kube, cluster, wire, subresource="status")
        if cluster.deleting:
            return await self._release(cluster)
        cluster = await self.kube.add_finalizer(cluster, names.CLUSTER_FINALIZER)
        if infrastructure is not None:
            await self._own(cluster, infrastructure)
        return Settled()

    def _infrastructure_of(self, cluster: Cluster) -> TuistCluster | None:
        reference = cluster.spec.infrastructure_ref
        if reference is None or reference.kind != TuistCluster.resource.kind:
            return None
        return self.infrastructure.find(Key(cluster.namespace or "", reference.name))

    async def _own(self, cluster: Cluster, infrastructure: TuistCluster) -> None:
        owner = objects.owner_reference(cluster)
        patch = objects.ownership_patch(infrastructure, owner, {labels.CAPI_CLUSTER: cluster.name})
        if patch is not None:
            await objects.patch(self.kube, infrastructure, patch)

    async def _release(self, cluster: Cluster) -> Outcome:
        """Delete what has Machines, and remove the finalizer once all are gone; garbage collection does the rest."""
        remaining = [
            each
            for cache in self.descendants
            for each in cache.all(namespace=cluster.namespace)
            if each.spec.cluster_name == cluster.name
        ]
        for each in remaining:
            if not each.deleting:
                with suppress(errors.NotFound):
                    await self.kube.delete(each)
        if remaining:
            return CheckAgain(
                _DESCENDANTS_RETRY, f"{len(remaining)} objects of the Cluster are left"
            )
        with suppress(errors.NotFound):
            await self.kube.remove_finalizer(cluster, names.CLUSTER_FINALIZER)
        return Settled()


def add(manager: Manager, *, clock: Clock) -> None:
    """Add the Cluster controller."""
    infrastructure = manager.informer(TuistCluster).cache
    clusters = manager.informer(Cluster).cache
    descendants = (
        manager.informer(MachineDeployment).cache,
        manager.informer(MachineSet).cache,
        manager.informer(Machine).cache,
    )
    reconciler = ClusterReconciler(manager.kube, infrastructure, descendants, clock)

    def of_infrastructure(item: TuistCluster) -> list[Key]:
        return clusters_of(clusters, item)

    def of_descendant(item: Descendant) -> list[Key]:
        key = Key(item.namespace or "", item.spec.cluster_name)
        found = clusters.find(key)
        return [key] if found is not None and found.deleting else []

    controller = Controller(reconciler).for_kind(Cluster)
    controller = controller.watches(TuistCluster, to=of_infrastructure)
    manager.add(
        controller.watches(MachineDeployment, to=of_descendant)
        .watches(MachineSet, to=of_descendant)
        .watches(Machine, to=of_descendant)
    )


def clusters_of(clusters: Cache[Cluster], item: TuistCluster) -> list[Key]:
    """Return the Clusters whose infrastructure this is."""
    return [
        Key(each.namespace or "", each.name)
        for each in clusters.all(namespace=item.namespace)
        if (reference := each.spec.infrastructure_ref) is not None
        and (reference.kind, reference.name) == (item.resource.kind, item.name)
    ]
