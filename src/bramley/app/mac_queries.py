"""What `bramley explain` and `status` read about machines and MacHosts."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TypeVar

from bramley.api import conditions
from bramley.api.cluster_api import Cluster, Machine
from bramley.api.coordination import Lease
from bramley.api.core import Node
from bramley.api.mac_host import MacHost
from bramley.api.meta import K
from bramley.api.names import conditions as types
from bramley.api.names import labels
from bramley.api.pod import Pod
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.app.pool_queries import Queries
from bramley.base import errors
from bramley.base.explanation import Explanation
from bramley.kube.client import Client
from bramley.machines.explanation import explain_mac
from bramley.machines.explanation_facts import AnyMac, MacFacts

M = TypeVar("M", ScalewayAppleSiliconMachine, MacHost)
_INSTALL = "install it with: bramley crds | kubectl apply -f -"


async def macs(kube: Client) -> tuple[AnyMac, ...] | None:
    """Return all machines and MacHosts that may be read; None if the server has neither kind."""
    machines = await _served(kube, ScalewayAppleSiliconMachine)
    hosts = await _served(kube, MacHost)
    if machines is None and hosts is None:
        return None
    return (*(machines or ()), *(hosts or ()))


async def _served(kube: Client, kind: type[K]) -> list[K] | None:
    with suppress(errors.NotFound, errors.Forbidden):
        return (await kube.list(kind)).items
    return None


async def explain_machine(queries: Queries, name: str, *, now: datetime) -> Explanation:
    """Return the explanation of a machine, by its own name or that of its Machine."""
    kube, namespace = queries.kube, queries.namespace
    machine = await _machine(kube, name, namespace)
    if machine is None:
        raise await _unknown(queries, ScalewayAppleSiliconMachine, f"machine {name}")
    owner = await _owner(kube, machine)
    cluster_name = (
        owner.spec.cluster_name if owner else machine.metadata.labels.get(labels.CAPI_CLUSTER)
    )
    return explain_mac(
        MacFacts(
            mac=machine,
            fleet=await _fleet(kube, machine),
            owner=owner,
            cluster=await _find(kube, Cluster, cluster_name, namespace) if cluster_name else None,
            lease=await _lease(kube, machine.uid),
            node=await _find(kube, Node, machine.name, None),
            pods=await _pods(kube, machine.name),
            events=await queries.events(machine),
        ),
        now=now,
    )


async def explain_mac_host(queries: Queries, name: str, *, now: datetime) -> Explanation:
    """Return the explanation of a MacHost."""
    kube = queries.kube
    host = await _find(kube, MacHost, name, queries.namespace)
    if host is None:
        raise await _unknown(queries, MacHost, f"MacHost {name}")
    return explain_mac(
        MacFacts(
            mac=host,
            fleet=await _fleet(kube, host),
            node=await _find(kube, Node, host.name, None),
            pods=await _pods(kube, host.name),
            events=await queries.events(host),
        ),
        now=now,
    )


async def _machine(kube: Client, name: str, namespace: str) -> ScalewayAppleSiliconMachine | None:
    found = await _find(kube, ScalewayAppleSiliconMachine, name, namespace)
    if found is not None:
        return found
    owner = await _find(kube, Machine, name, namespace)
    if owner is None:
        return None
    cloned = owner.spec.infrastructure_ref.name
    return await _find(kube, ScalewayAppleSiliconMachine, cloned, namespace)


async def _unknown(queries: Queries, kind: type[M], text: str) -> errors.BadConfiguration:
    """Return the error for an object that does not exist, which names those that do."""
    try:
        found = (await queries.kube.list(kind)).items
    except errors.NotFound:
        name = f"{kind.resource.plural}.{kind.resource.group}"
        return errors.BadConfiguration(f"the server has no {name}; {_INSTALL}")
    names = ", ".join(sorted(f"{each.namespace}/{each.name}" for each in found)[:10])
    return errors.BadConfiguration(
        f"{text} does not exist in namespace {queries.namespace}; existing: {names or 'none'}"
    )


async def _find(kube: Client, kind: type[K], name: str, namespace: str | None) -> K | None:
    with suppress(errors.NotFound):
        return await kube.get(kind, name, namespace=namespace)
    return None


async def _owner(kube: Client, machine: ScalewayAppleSiliconMachine) -> Machine | None:
    for reference in machine.metadata.owner_references:
        if reference.kind == Machine.resource.kind:
            found = await _find(kube, Machine, reference.name, machine.namespace)
            if found is not None and found.uid == reference.uid:
                return found
    return None


async def _fleet(kube: Client, mac: M) -> list[M]:
    """Return the hosts of a fleet that serve, this one included."""
    others = (await kube.list(type(mac))).items
    return [
        mac if each.uid == mac.uid else each
        for each in others
        if each.spec.fleet_name == mac.spec.fleet_name and (_serves(each) or each.uid == mac.uid)
    ]


def _serves(mac: AnyMac) -> bool:
    return conditions.is_true(mac.status.conditions, types.BOOTSTRAPPED) and not mac.deleting


async def _lease(kube: Client, uid: str) -> Lease | None:
    # People may not read Leases.
    with suppress(errors.Forbidden):
        found = (await kube.list(Lease, labels={labels.MACHINE_UID: uid})).items
        return found[0] if found else None
    return None


async def _pods(kube: Client, node: str) -> list[Pod]:
    return (await kube.list(Pod, fields={"spec.nodeName": node})).items
