"""The MachineDeployment reconciler: one MachineSet per template, and the number of Machines of each.

The strategy is OnDelete: a changed template is used for new Machines only, so Machines are replaced by deleting them.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from bramley.api.cluster_api import (
    Cluster,
    Machine,
    MachineDeployment,
    MachineSet,
    MachineSetSpec,
    MachineTemplate,
    TemplateMeta,
)
from bramley.api.label_selectors import LabelSelector
from bramley.api.meta import ObjectMeta
from bramley.api.names import cluster_api as names
from bramley.api.names import labels
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.machines import objects
from bramley.machines.cluster_api import replicas
from bramley.machines.cluster_api.machines import BY_SET
from bramley.runtime.cache import Cache
from bramley.runtime.controller import Controller
from bramley.runtime.events import Recorder
from bramley.runtime.keys import Key, key_of
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import Outcome, Settled
from bramley.runtime.writes import FencedKube

BY_DEPLOYMENT = "machine_sets.deployment"
_ALWAYS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")


@dataclass(frozen=True, slots=True)
class MachineDeploymentReconciler:
    """Sizes the MachineSets of a MachineDeployment."""

    kube: FencedKube
    sets: Cache[MachineSet]
    machines: Cache[Machine]
    pauses: objects.Pauses
    recorder: Recorder
    clock: Clock

    async def reconcile(self, deployment: MachineDeployment) -> Outcome:
        """Create, size and delete MachineSets, and report the status."""
        cluster = self.pauses.cluster_of(deployment, deployment.spec.cluster_name)
        if cluster is None or objects.is_paused(deployment, cluster):
            return Settled()
        sets = self.sets.by_index(BY_DEPLOYMENT, deployment.uid)
        try:
            if not deployment.deleting and not deployment.spec.paused:
                await self._own(deployment, cluster)
                await self._size(deployment, sets)
        finally:
            status = replicas.deployment_status(deployment, sets, now=self.clock.now())
            await objects.report(self.kube, deployment, status, always=_ALWAYS)
        return Settled()

    async def _own(self, deployment: MachineDeployment, cluster: Cluster) -> None:
        owner = objects.owner_reference(cluster, controller=False)
        patch = objects.ownership_patch(deployment, owner, {labels.CAPI_CLUSTER: cluster.name})
        if patch is not None:
            await objects.patch(self.kube, deployment, patch)

    async def _size(self, deployment: MachineDeployment, sets: list[MachineSet]) -> None:
        kept = Counter(
            each.uid
            for each in sets
            for machine in self.machines.by_index(BY_SET, each.uid)
            if not machine.deleting
        )
        plan = replicas.plan_sets(deployment, sets, kept)
        for each, size in plan.sizes:
            await objects.patch(self.kube, each, {"spec": {"replicas": size}})
            message = f"Scaled MachineSet {each.name} from {each.spec.replicas} to {size}"
            self.recorder.event(deployment, "SuccessfulScale", message)
        if plan.create is not None:
            # It exists if the response to an earlier creation was lost.
            with suppress(errors.AlreadyExists):
                await self.kube.create(a_machine_set(deployment, plan.create))
        for each in plan.delete:
            with suppress(errors.NotFound):
                await self.kube.delete(each, resource_version=each.metadata.resource_version)


def template_of(deployment: MachineDeployment) -> MachineTemplate:
    """Return the template of a MachineSet: that of the MachineDeployment, with the labels that identify both."""
    template = deployment.spec.template
    identity = {
        labels.CAPI_CLUSTER: deployment.spec.cluster_name,
        names.DEPLOYMENT_NAME: deployment.name,
        names.TEMPLATE_HASH: replicas.template_hash(template),
    }
    metadata = TemplateMeta(
        labels={**template.metadata.labels, **identity}, annotations=template.metadata.annotations
    )
    return MachineTemplate(metadata=metadata, spec=template.spec)


def a_machine_set(deployment: MachineDeployment, size: int) -> MachineSet:
    """Return the MachineSet of the current template."""
    template = template_of(deployment)
    digest = template.metadata.labels[names.TEMPLATE_HASH]
    selector = deployment.spec.selector
    return MachineSet(
        metadata=ObjectMeta(
            name=f"{deployment.name}-{digest}",
            namespace=deployment.namespace,
            labels=template.metadata.labels,
            owner_references=[objects.owner_reference(deployment)],
        ),
        spec=MachineSetSpec(
            cluster_name=deployment.spec.cluster_name,
            replicas=size,
            selector=LabelSelector(
                match_labels={**selector.match_labels, names.TEMPLATE_HASH: digest},
                match_expressions=selector.match_expressions,
            ),
            template=template,
        ),
    )


def add(manager: Manager, pauses: objects.Pauses, *, clock: Clock) -> None:
    """Add the MachineDeployment controller; it needs that of Machines, which indexes them."""
    sets = manager.informer(MachineSet).cache
    machines = manager.informer(Machine).cache
    deployments = manager.informer(MachineDeployment).cache
    sets.index(BY_DEPLOYMENT, objects.controller_uids)
    recorder = manager.recorder(names.COMPONENT)
    reconciler = MachineDeploymentReconciler(manager.kube, sets, machines, pauses, recorder, clock)

    def of_cluster(cluster: Cluster) -> list[Key]:
        found = deployments.all(namespace=cluster.namespace)
        return [key_of(each) for each in found if each.spec.cluster_name == cluster.name]

    def of_machine(machine: Machine) -> list[Key]:
        name = machine.metadata.labels.get(names.DEPLOYMENT_NAME)
        return [Key(machine.namespace or "", name)] if name else []

    manager.add(
        Controller(reconciler)
        .for_kind(MachineDeployment)
        .owns(MachineSet)
        .watches(Machine, to=of_machine)
        .watches(Cluster, to=of_cluster)
    )
