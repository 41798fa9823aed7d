"""All controllers of Cluster API's core kinds, and the function that adds them to a manager."""

from __future__ import annotations

from bramley.api.cluster_api import Cluster
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.machines.cluster_api import clusters, machine_deployments, machine_sets, machines
from bramley.machines.objects import Pauses
from bramley.runtime.manager import Manager


def add(manager: Manager, client: Client, *, clock: Clock) -> None:
    """Add them; `client` is that of the manager, for evictions."""
    pauses = Pauses(manager.informer(Cluster).cache)
    clusters.add(manager, clock=clock)
    machines.add(manager, client, pauses, clock=clock)
    machine_sets.add(manager, pauses, clock=clock)
    machine_deployments.add(manager, pauses, clock=clock)
