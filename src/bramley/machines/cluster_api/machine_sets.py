"""The MachineSet reconciler: keeps the desired number of Machines."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace

from bramley.api.cluster_api import Cluster, Machine, MachineSet, MachineSpec
from bramley.api.meta import ObjectMeta
from bramley.api.names import cluster_api as names
from bramley.api.names import labels
from bramley.api.pod import ObjectReference
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


@dataclass(frozen=True, slots=True)
class MachineSetReconciler:
    """Creates and deletes the Machines of a MachineSet."""

    kube: FencedKube
    machines: Cache[Machine]
    pauses: objects.Pauses
    recorder: Recorder
    clock: Clock

    async def reconcile(self, owner: MachineSet) -> Outcome:
        """Create or delete Machines, and report the status."""
        if self.pauses.has(owner, owner.spec.cluster_name):
            return Settled()
        machines = self.machines.by_index(BY_SET, owner.uid)
        failure = ""
        try:
            if not owner.deleting:
                await self._delete(owner, replicas.to_delete(owner, machines))
                await self._create(owner, replicas.new_names(owner, machines))
        except errors.Refused as error:
            failure = str(error)
            raise
        finally:
            now = self.clock.now()
            status = replicas.set_status(owner, machines, failure=failure, now=now)
            await objects.report(self.kube, owner, status, always=_ALWAYS)
        return Settled()

    async def _create(self, owner: MachineSet, missing: Sequence[str]) -> None:
        for name in missing:
            # It exists if the response to an earlier creation was lost.
            with suppress(errors.AlreadyExists):
                await self.kube.create(a_machine(owner, name))
                self.recorder.event(owner, "SuccessfulCreate", f"Created machine {name}")

    async def _delete(self, owner: MachineSet, surplus: Sequence[Machine]) -> None:
        for machine in surplus:
            # Only this version: another Machine may have become the one to delete.
            with suppress(errors.NotFound):
                version = machine.metadata.resource_version
                await self.kube.delete(machine, resource_version=version)
                self.recorder.event(owner, "SuccessfulDelete", f"Deleted machine {machine.name}")


_ALWAYS = ("replicas", "readyReplicas", "availableReplicas")


def a_machine(owner: MachineSet, name: str) -> Machine:
    """Return a new Machine of a MachineSet; its infrastructure object has the same name."""
    template, meta = owner.spec.template, owner.metadata
    identity = {
        labels.CAPI_CLUSTER: owner.spec.cluster_name,
        names.SET_NAME: owner.name,
    }
    return Machine(
        metadata=ObjectMeta(
            name=name,
            namespace=meta.namespace,
            labels={**template.metadata.labels, **identity},
            annotations=template.metadata.annotations,
            owner_references=[objects.owner_reference(owner)],
        ),
        spec=spec_of_clone(owner, name),
    )


def spec_of_clone(owner: MachineSet, name: str) -> MachineSpec:
    """Return the spec of a Machine, which refers to the clone instead of the template."""
    spec = owner.spec.template.spec
    template = spec.infrastructure_ref
    reference = ObjectReference(
        api_version=template.api_version,
        kind=template.kind.removesuffix(names.TEMPLATE_SUFFIX),
        name=name,
        namespace=owner.namespace or "",
    )
    return replace(spec, cluster_name=owner.spec.cluster_name, infrastructure_ref=reference)


def add(manager: Manager, pauses: objects.Pauses, *, clock: Clock) -> None:
    """Add the MachineSet controller; it needs that of Machines, which indexes them."""
    machines, sets = manager.informer(Machine).cache, manager.informer(MachineSet).cache
    recorder = manager.recorder(names.COMPONENT)
    reconciler = MachineSetReconciler(manager.kube, machines, pauses, recorder, clock)

    def of_cluster(cluster: Cluster) -> list[Key]:
        found = sets.all(namespace=cluster.namespace)
        return [key_of(each) for each in found if each.spec.cluster_name == cluster.name]

    controller = Controller(reconciler).for_kind(MachineSet)
    manager.add(controller.owns(Machine).watches(Cluster, to=of_cluster))
