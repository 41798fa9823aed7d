"""All controllers of a cluster, and the function that adds them to a manager."""

from __future__ import annotations

from typing import Protocol

from bramley.apiserver.controllers import (
    clusterrole_aggregation,
    disruption,
    namespaces,
    node_lifecycle,
    pod_gc,
    service_accounts,
    ttl,
)
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


CONTROLLERS: tuple[Add, ...] = (
    service_accounts.add,
    namespaces.add,
    garbage.add,
    scheduler.add,
    node_lifecycle.add,
    ttl.add_node_ttl,
    pod_gc.add,
    ttl.add_event_ttl,
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
    """Add all controllers; `authority` is the certificate that is published in every namespace, if any."""
    for add in CONTROLLERS:
        add(manager, client, clock=clock, timings=timings)
    if authority:
        service_accounts.add_root_authority(manager, authority)
