"""How many Machines each MachineSet has, which ones are created and deleted, and the status that follows. Pure.

Machines that are being deleted count until they are gone, as in Cluster API: their hosts are still occupied, and a
MachineDeployment has the time to scale down the MachineSet of an old template before it would replace them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from bramley.api import conditions
from bramley.api.cluster_api import (
    Machine,
    MachineDeployment,
    MachineDeploymentStatus,
    MachineSet,
    MachineSetStatus,
    MachineTemplate,
)
from bramley.api.names import cluster_api as names
from bramley.api.names import labels
from bramley.machines.objects import put_condition, selector_text

# Without vowels and digits that resemble letters, as in the generated names of Kubernetes.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_NAME_LENGTH, _HASH_LENGTH = 5, 10
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


def name_suffix(text: str, *, length: int = _NAME_LENGTH) -> str:
    """Return characters for a name that depend on the text alone."""
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:length])


def template_hash(template: MachineTemplate) -> str:
    """Return a hash of a template, without the labels that identify its MachineDeployment and MachineSet."""
    identity = (labels.CAPI_CLUSTER, names.DEPLOYMENT_NAME, names.TEMPLATE_HASH)
    meta = template.metadata
    own = {key: value for key, value in meta.labels.items() if key not in identity}
    content = msgspec.json.encode((own, meta.annotations, template.spec), order="sorted")
    return name_suffix(content.decode(), length=_HASH_LENGTH)


def new_names(owner: MachineSet, machines: Sequence[Machine]) -> list[str]:
    """Return names for the Machines that are missing; a repetition before the cache shows them gives the same ones."""
    known = ",".join(sorted(each.uid for each in machines))
    seed = f"{owner.uid}/{owner.metadata.generation}/{known}"
    missing = range(owner.spec.replicas - len(machines))
    return [f"{owner.name}-{name_suffix(f'{seed}/{number}')}" for number in missing]


def to_delete(owner: MachineSet, machines: Sequence[Machine]) -> list[Machine]:
    """Return the surplus Machines.

    First those with the annotation, then those without a healthy Node, then by the policy: Newest, Oldest, or by name
    where Cluster API picks at random. Surplus Machines that are being deleted already are not returned.
    """
    surplus = max(len(machines) - owner.spec.replicas, 0)
    ranked = sorted(machines, key=lambda each: _deletion_rank(each, owner.spec.delete_policy))
    return [each for each in ranked[:surplus] if not each.deleting]


def _deletion_rank(machine: Machine, policy: str) -> tuple[bool, bool, bool, float, str]:
    created = (machine.metadata.creation_timestamp or _LONG_AGO).timestamp()
    age = {"Oldest": created, "Newest": -created}.get(policy, 0.0)
    return (
        not machine.deleting,
        names.DELETE_MACHINE not in machine.metadata.annotations,
        is_ready(machine) and machine.status.failure_reason is None,
        age,
        machine.name,
    )


def is_ready(machine: Machine) -> bool:
    """Return whether a Machine has a Node that is ready."""
    status = machine.status
    return status.node_ref is not None and conditions.is_true(status.conditions, names.NODE_HEALTHY)


def set_status(
    owner: MachineSet, machines: Sequence[Machine], *, failure: str, now: datetime
) -> MachineSetStatus:
    """Return the status of a MachineSet; `failure` is why a Machine could not be created."""
    desired = owner.spec.template.metadata.labels.items()
    ready = sum(map(is_ready, machines))
    problem = names.MACHINE_CREATION_FAILED if failure else ""
    return MachineSetStatus(
        selector=selector_text(owner.spec.selector),
        replicas=len(machines),
        fully_labeled_replicas=sum(desired <= each.metadata.labels.items() for each in machines),
        ready_replicas=ready,
        available_replicas=ready,
        observed_generation=owner.metadata.generation,
        conditions=put_condition(
            owner.status.conditions,
            names.MACHINES_CREATED,
            problem,
            message=failure,
            severity="Error",
            now=now,
        ),
    )


@dataclass(frozen=True, slots=True)
class SetPlan:
    """The sizes to give to MachineSets, the size of the one to create if there is none, and those to delete."""

    sizes: tuple[tuple[MachineSet, int], ...] = ()
    create: int | None = None
    delete: tuple[MachineSet, ...] = ()


def find_new_set(deployment: MachineDeployment, sets: Sequence[MachineSet]) -> MachineSet | None:
    """Return the MachineSet of the current template, the oldest if there are several."""
    current = template_hash(deployment.spec.template)
    found = [each for each in sets if template_hash(each.spec.template) == current]
    return min(found, key=_age, default=None)


def plan_sets(
    deployment: MachineDeployment, sets: Sequence[MachineSet], kept: Mapping[str, int]
) -> SetPlan:
    """Return the sizes of all MachineSets; `kept` counts their Machines that are not being deleted, by uid of the MachineSet.

    A MachineSet of an old template never grows: it loses the Machines that are deleted, and the new one replaces them once
    they are gone. A scale-down takes from the oldest MachineSet first.
    """
    desired = deployment.spec.replicas
    new = find_new_set(deployment, sets)
    olds = sorted((each for each in sets if each is not new), key=_age)
    sizes = {each.uid: min(each.spec.replicas, kept.get(each.uid, 0)) for each in olds}
    size = new.spec.replicas if new is not None else 0
    surplus = max(sum(sizes.values()) + size - desired, 0)
    for each in olds:
        taken = min(surplus, sizes[each.uid])
        sizes[each.uid] -= taken
        surplus -= taken
    occupied = sum(max(sizes[each.uid], each.status.replicas) for each in olds)
    size = max(size - surplus, desired - occupied)
    if new is not None:
        sizes[new.uid] = size
    resized = ((each, sizes[each.uid]) for each in sets)
    return SetPlan(
        tuple((each, size) for each, size in resized if size != each.spec.replicas),
        create=max(size, 0) if new is None else None,
        delete=tuple(each for each in olds if not each.spec.replicas and not each.status.replicas),
    )


def _age(each: MachineSet) -> tuple[datetime, str]:
    return each.metadata.creation_timestamp or _LONG_AGO, each.name


def deployment_status(
    deployment: MachineDeployment, sets: Sequence[MachineSet], *, now: datetime
) -> MachineDeploymentStatus:
    """Return the status of a MachineDeployment with these MachineSets."""
    new, desired = find_new_set(deployment, sets), deployment.spec.replicas
    replicas = sum(each.status.replicas for each in sets)
    available = sum(each.status.available_replicas for each in sets)
    problem = names.WAITING_FOR_AVAILABLE_MACHINES if available < desired else ""
    return MachineDeploymentStatus(
        selector=selector_text(deployment.spec.selector),
        replicas=replicas,
        updated_replicas=new.status.replicas if new is not None else 0,
        ready_replicas=sum(each.status.ready_replicas for each in sets),
        available_replicas=available,
        unavailable_replicas=max(desired - available, 0),
        phase=_phase(replicas, desired, available),
        observed_generation=deployment.metadata.generation,
        conditions=put_condition(
            deployment.status.conditions,
            names.AVAILABLE,
            problem,
            message=f"{available} of {desired} Machines are available" if problem else "",
            severity="Warning",
            now=now,
        ),
    )


def _phase(replicas: int, desired: int, available: int) -> str:
    if replicas > desired:
        return "ScalingDown"
    return "Running" if replicas == desired == available else "ScalingUp"
