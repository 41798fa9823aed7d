"""Removes a fleet from a server that other tests use, too: also what is left after a failure."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

from bramley.access import identity
from bramley.api.cluster_api import Cluster, Machine, MachineDeployment, MachineSet
from bramley.api.coordination import Lease
from bramley.api.core import Namespace, Node, Secret
from bramley.api.machine_template import ScalewayAppleSiliconMachineTemplate
from bramley.api.meta import Object
from bramley.api.names import machines, secrets
from bramley.api.pod import Pod
from bramley.api.runner_pool import RunnerPool
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.api.tuist_cluster import TuistCluster
from bramley.base import errors
from bramley.kube.client import Client
from tests.process.machines.manifests import APP_SECRET, CLUSTER, NAMESPACE, RUNNERS_NAMESPACE

# Owners first, since they create the others again.
KINDS: tuple[tuple[type[Object], str | None], ...] = (
    (MachineDeployment, NAMESPACE),
    (MachineSet, NAMESPACE),
    (Machine, NAMESPACE),
    (ScalewayAppleSiliconMachine, NAMESPACE),
    (ScalewayAppleSiliconMachineTemplate, NAMESPACE),
    (Cluster, NAMESPACE),
    (TuistCluster, NAMESPACE),
    (RunnerPool, RUNNERS_NAMESPACE),
    (Pod, RUNNERS_NAMESPACE),
    (Pod, NAMESPACE),
    (Node, None),
    (Secret, NAMESPACE),
    (Lease, NAMESPACE),
)
OWN_SECRETS = {APP_SECRET, f"{CLUSTER}-kubeconfig"}
SECRET_SUFFIXES = (secrets.BOOTSTRAP_SUFFIX, secrets.SSH_SUFFIX)


async def clean_up(kube: Client) -> None:
    """Delete everything at once, without its finalizers; the processes have ended."""
    for kind, namespace in KINDS:
        for each in (await kube.list(kind, namespace=namespace)).items:
            if _is_ours(each):
                await _delete(kube, each)
    with suppress(errors.NotFound, errors.Conflict):
        await kube.delete(Namespace, RUNNERS_NAMESPACE)
    async with asyncio.timeout(60):
        # The next test creates it again.
        while await _exists(kube):
            await asyncio.sleep(0.2)


def _is_ours(obj: Object) -> bool:
    match obj:
        case Node():
            return obj.spec.provider_id.startswith(machines.PROVIDER_ID_SCHEME)
        case Secret():
            return obj.name in OWN_SECRETS or obj.name.endswith(SECRET_SUFFIXES)
        case Lease():
            return obj.name.startswith(machines.HOST_LEASE_PREFIX)
    return True


async def _delete(kube: Client, obj: Object) -> None:
    without = {"metadata": {"finalizers": None}}
    with suppress(errors.NotFound):
        await kube.merge_patch(type(obj), obj.name, without, namespace=obj.namespace)
        await kube.delete(type(obj), obj.name, namespace=obj.namespace, grace=timedelta())
    if isinstance(obj, ScalewayAppleSiliconMachine | Node):
        await identity.revoke(kube, obj.name)


async def _exists(kube: Client) -> bool:
    try:
        await kube.get(Namespace, RUNNERS_NAMESPACE)
    except errors.NotFound:
        return False
    return True
