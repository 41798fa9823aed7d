"""The Machine reconciler: clones the infrastructure object, binds the Node, and drains it before the deletion."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace

from bramley.api.cluster_api import Cluster, Machine, MachineSet, MachineStatus
from bramley.api.core import Node, Pod
from bramley.api.machine_template import ScalewayAppleSiliconMachineTemplate
from bramley.api.meta import ObjectMeta
from bramley.api.names import cluster_api as names
from bramley.api.names import labels
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.machines import objects
from bramley.machines.cluster_api.machine_decision import (
    Act,
    Evict,
    Observed,
    SetProviderID,
    Step,
    decide,
)
from bramley.runtime.cache import Cache
from bramley.runtime.controller import Controller
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import Outcome
from bramley.runtime.writes import FencedKube

logger = log.get(__name__)

BY_SET = "machines.set"
BY_INFRASTRUCTURE = "machines.infrastructure"
BY_PROVIDER_ID = "machines.provider-id"
BY_NODE = "machines.node"
BY_CLUSTER = "machines.cluster"


@dataclass(frozen=True, slots=True)
class Caches:
    """The objects that Machines depend on."""

    machines: Cache[Machine]
    sets: Cache[MachineSet]
    infrastructure: Cache[ScalewayAppleSiliconMachine]
    nodes: Cache[Node]
    pauses: objects.Pauses

    def observe(self, machine: Machine) -> Observed:
        """Return a Machine and what it depends on."""
        return Observed(
            machine=machine,
            cluster=self.pauses.cluster_of(machine, machine.spec.cluster_name),
            infrastructure=self.infrastructure.find(_infrastructure_key(machine)),
            node=self.node_of(machine),
            has_template=self.set_of(machine) is not None,
        )

    def set_of(self, machine: Machine) -> MachineSet | None:
        """Return the MachineSet that controls a Machine."""
        uids = objects.controller_uids(machine)
        sets = self.sets.all(namespace=machine.namespace)
        return next((each for each in sets if each.uid in uids), None)

    def node_of(self, machine: Machine) -> Node | None:
        """Return the Node with the Machine's provider id; else the one it had, unless that is another Machine's now."""
        provider_id, reference = machine.spec.provider_id, machine.status.node_ref
        if provider_id and (found := self.nodes.by_index(BY_PROVIDER_ID, provider_id)):
            return found[0]
        node = self.nodes.find(Key("", reference.name)) if reference is not None else None
        return node if node is not None and not node.spec.provider_id else None

    def machines_of_infrastructure(self, item: ScalewayAppleSiliconMachine) -> list[Key]:
        """Return the Machines that refer to an infrastructure object."""
        key = Key(item.namespace or "", item.name)
        return _keys(self.machines.by_index(BY_INFRASTRUCTURE, key))

    def machines_of_node(self, node: Node) -> list[Key]:
        """Return the Machines of a Node."""
        by_id = self.machines.by_index(BY_PROVIDER_ID, node.spec.provider_id)
        return _keys([*by_id, *self.machines.by_index(BY_NODE, node.name)])

    def machines_of_cluster(self, cluster: Cluster) -> list[Key]:
        """Return the Machines of a Cluster."""
        return _keys(self.machines.by_index(BY_CLUSTER, (cluster.namespace, cluster.name)))


def _keys(machines: list[Machine]) -> list[Key]:
    return [Key(each.namespace or "", each.name) for each in machines]


def _provider_ids(item: Machine | Node) -> list[str]:
    return [item.spec.provider_id] if item.spec.provider_id else []


def _infrastructure_key(machine: Machine) -> Key:
    reference = machine.spec.infrastructure_ref
    is_ours = reference.kind == ScalewayAppleSiliconMachine.resource.kind
    return Key(machine.namespace or "", reference.name if is_ours else "")


@dataclass(frozen=True, slots=True)
class MachineReconciler:
    """Brings one Machine from its template to a Node, and back."""

    kube: FencedKube
    client: Client
    caches: Caches
    clock: Clock

    async def reconcile(self, machine: Machine) -> Outcome:
        """Do the next steps, and report the status."""
        observed = self.caches.observe(machine)
        if machine.deleting and observed.node is not None:
            observed = dataclasses.replace(observed, pods=await self._pods_on(observed.node))
        decision = decide(observed, self.clock.now())
        status = decision.status
        try:
            for step in decision.steps:
                await self._apply(step, observed)
        except errors.NotConverged as error:
            status = self._with_failure(status, str(error))
            raise
        finally:
            await objects.report(self.kube, machine, status)
        return decision.outcome

    async def _pods_on(self, node: Node) -> list[Pod]:
        """Read the Pods of a Node; a cache that lags could lack a Pod that has a job."""
        found = await self.client.list(Pod, fields={"spec.nodeName": node.name})
        return found.items

    def _with_failure(self, status: MachineStatus, message: str) -> MachineStatus:
        found = objects.put_condition(
            status.conditions,
            names.INFRASTRUCTURE_READY,
            names.TEMPLATE_CLONING_FAILED,
            message=message,
            severity="Error",
            now=self.clock.now(),
        )
        return replace(status, conditions=found)

    async def _apply(self, step: Step, observed: Observed) -> None:
        machine = observed.machine
        match step:
            case SetProviderID():
                await self._patch_spec(machine, step.provider_id)
            case Evict():
                await objects.evict(self.kube, self.client, step.pod)
            case Act(kind="add finalizer"):
                await self.kube.add_finalizer(machine, names.MACHINE_FINALIZER)
            case Act(kind="remove finalizer"):
                with suppress(errors.NotFound):
                    await self.kube.remove_finalizer(machine, names.MACHINE_FINALIZER)
            case Act(kind="clone infrastructure"):
                try:
                    await self._clone(machine)
                except (errors.NotFound, errors.Refused) as error:
                    # Retried with backoff: nothing watches templates.
                    raise errors.NotConverged(str(error)) from error
            case Act():
                await self._change_dependent(step, observed)

    async def _change_dependent(self, act: Act, observed: Observed) -> None:
        infrastructure, node = observed.infrastructure, observed.node
        # Whatever was deleted meanwhile needs no change.
        with suppress(errors.NotFound):
            if act.kind == "delete infrastructure" and infrastructure is not None:
                logger.info("Deleting infrastructure object", machine=observed.machine.name)
                await self.kube.delete(infrastructure)
            elif act.kind == "cordon Node" and node is not None:
                await objects.patch(self.kube, node, {"spec": {"unschedulable": True}})
            elif act.kind == "delete Node" and node is not None:
                logger.info("Deleting Node", machine=observed.machine.name, node=node.name)
                await self.kube.delete(node)

    async def _patch_spec(self, machine: Machine, provider_id: str) -> None:
        await self.kube.merge_patch(
            Machine,
            machine.name,
            {"spec": {"providerID": provider_id}},
            namespace=machine.namespace,
            uid=machine.uid,
        )

    async def _clone(self, machine: Machine) -> None:
        owner = self.caches.set_of(machine)
        if owner is None:
            return
        reference = owner.spec.template.spec.infrastructure_ref
        kind = ScalewayAppleSiliconMachineTemplate
        template = await self.kube.get(kind, reference.name, namespace=machine.namespace)
        group_kind = f"{kind.resource.kind}.{kind.resource.group}"
        origin = {
            names.CLONED_FROM_NAME: template.name,
            names.CLONED_FROM_GROUP_KIND: group_kind,
        }
        metadata = ObjectMeta(
            name=machine.spec.infrastructure_ref.name,
            namespace=machine.namespace,
            labels=_labels(machine),
            annotations={**machine.metadata.annotations, **origin},
            owner_references=[objects.owner_reference(machine)],
        )
        clone = ScalewayAppleSiliconMachine(metadata=metadata, spec=template.spec.template.spec)
        # It exists if the response to an earlier creation was lost.
        with suppress(errors.AlreadyExists):
            await self.kube.create(clone)


def _labels(machine: Machine) -> dict[str, str]:
    return {**machine.metadata.labels, labels.CAPI_CLUSTER: machine.spec.cluster_name}


def add(manager: Manager, client: Client, pauses: objects.Pauses, *, clock: Clock) -> None:
    """Add the Machine controller."""
    caches = Caches(
        manager.informer(Machine).cache,
        manager.informer(MachineSet).cache,
        manager.informer(ScalewayAppleSiliconMachine).cache,
        manager.informer(Node).cache,
        pauses,
    )
    index(caches)
    reconciler = MachineReconciler(manager.kube, client, caches, clock)
    manager.add(
        Controller(reconciler)
        .for_kind(Machine)
        .watches(ScalewayAppleSiliconMachine, to=caches.machines_of_infrastructure)
        .watches(Node, to=caches.machines_of_node)
        .watches(Cluster, to=caches.machines_of_cluster)
    )


def index(caches: Caches) -> None:
    """Add the indexes."""
    machines = caches.machines
    machines.index(BY_SET, objects.controller_uids)
    machines.index(BY_INFRASTRUCTURE, lambda each: [_infrastructure_key(each)])
    machines.index(BY_PROVIDER_ID, _provider_ids)
    machines.index(BY_NODE, lambda each: [ref.name] if (ref := each.status.node_ref) else [])
    machines.index(BY_CLUSTER, lambda each: [(each.namespace, each.spec.cluster_name)])
    caches.nodes.index(BY_PROVIDER_ID, _provider_ids)
