"""The list of the cluster's controllers: who wants a cluster and not only an API adds them all to a manager."""

from __future__ import annotations

from typing import Protocol

from bramley.apiserver.controllers import (
    disruption,
    namespaces,
    node_lifecycle,
    pod_gc,
    service_accounts,
)
from bramley.apiserver.controllers import clusterrole_aggregation
from bramley.apiserver.controllers import ttl
from bramley.apiserver.controllers import ttl
from bramley.apiserver.controllers.deployments import reconciler as deployments
from bramley.apiserver.controllers.garbage import collector as garbage
from bramley.apiserver.controllers.replica_sets import reconciler as replica_sets
from bramley.apiserver.controllers.scheduling import scheduler
from bramley.apiserver.controllers.timings import DEFAULT, Timings
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.runtime.manager import Manager


class Add(Protocol):
    """Adds one controller, or a few that belong together, to a manager."""

    def __call__(self, manager: Manager, client: Client, *, clock: Clock, timings: Timings) -> None:
        """Add them."""
        ...


def everything() -> tuple[Add, ...]:
    """Return how to add each controller of a cluster."""
    return (
        service_accounts.add,
        namespaces.add,
        garbage.add,
        scheduler.add,
        node_lifecycle.add,
        ttl.add_node_ttl,
        pod_gc.add,
        ttl.add,
        replica_sets.add,
        deployments.add,
        disruption.add,
        clusterrole_aggregation.add,
    )


def add_all(
    manager: Manager,
    client: Client,
    *,
    clock: Clock,
    timings: Timings = DEFAULT,
    authority: str = "",
) -> None:
    """Add every controller of a cluster to the manager; what an authority signs is to be trusted by all Pods."""
    for add in everything():
        add(manager, client, clock=clock, timings=timings)
    if authority:
        service_accounts.add_root_authority(manager, authority)
