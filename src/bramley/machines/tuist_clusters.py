"""The TuistCluster reconciler of the infrastructure provider: the cluster exists already, so it is ready at once.

Its Cluster's control plane is managed elsewhere; without the condition `ControlPlaneInitialized` Cluster API would never connect
to it. This runs beside Cluster API's core manager as well as beside `cluster_api`.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from bramley.api import conditions
from bramley.api.cluster_api import Cluster
from bramley.api.mac_status import MachineCondition
from bramley.api.meta import Object
from bramley.api.names import annotations as annotation_names
from bramley.api.names import conditions as condition_types
from bramley.api.tuist_cluster import TuistCluster
from bramley.base.clock import Clock
from bramley.runtime.cache import Cache
from bramley.runtime.controller import Controller
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import Outcome, Settled
from bramley.runtime.writes import FencedKube


@dataclass(frozen=True, slots=True)
class TuistClusterReconciler:
    """Reports that a TuistCluster is ready, and that the control plane of its Cluster is initialized."""

    kube: FencedKube
    clusters: Cache[Cluster]
    clock: Clock

    async def reconcile(self, item: TuistCluster) -> Outcome:
        """Write both conditions; an error is not dropped, since Machines wait for them."""
        owner = self._owner_of(item)
        is_paused = annotation_names.PAUSED in item.metadata.annotations
        if item.deleting or is_paused or (owner is not None and owner.spec.paused):
            return Settled()
        generation = item.metadata.generation
        found = self._true(item.status.conditions, condition_types.READY)
        status = replace(item.status, ready=True, observed_generation=generation, conditions=found)
        if status != item.status:
            await self._write(item, msgspec.to_builtins(status))
        initialized = condition_types.CONTROL_PLANE_INITIALIZED
        if owner is not None and not conditions.is_true(owner.status.conditions, initialized):
            found = self._true(owner.status.conditions, initialized)
            await self._write(owner, {"conditions": msgspec.to_builtins(found)})
        return Settled()

    def _owner_of(self, item: TuistCluster) -> Cluster | None:
        """Return the Cluster that owns an infrastructure cluster."""
        for reference in item.metadata.owner_references:
            cluster = self.clusters.find(Key(item.namespace or "", reference.name))
            if cluster is not None and cluster.uid == reference.uid:
                return cluster
        return None

    def _true(self, current: list[MachineCondition], type: str) -> list[MachineCondition]:
        return conditions.put(
            current, MachineCondition(type=type, status="True"), now=self.clock.now()
        )

    async def _write(self, obj: Object, status: object) -> None:
        meta = obj.metadata
        await self.kube.merge_patch(
            type(obj),
            meta.name,
            {"status": status},
            namespace=meta.namespace,
            subresource="status",
            # Cluster API writes conditions, too.
            resource_version=meta.resource_version,
            uid=meta.uid,
        )


def add(manager: Manager, *, clock: Clock) -> None:
    """Add the TuistCluster controller."""
    clusters = manager.informer(Cluster).cache
    reconciler = TuistClusterReconciler(manager.kube, clusters, clock)

    def of_cluster(cluster: Cluster) -> list[Key]:
        reference = cluster.spec.infrastructure_ref
        is_ours = reference is not None and reference.kind == TuistCluster.resource.kind
        return [Key(cluster.namespace or "", reference.name)] if reference and is_ours else []

    controller = Controller(reconciler).for_kind(TuistCluster)
    manager.add(controller.watches(Cluster, to=of_cluster))
