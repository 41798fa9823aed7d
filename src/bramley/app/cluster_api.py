"""Cluster API's core kinds on the embedded API: their definitions, and the small controllers in one manager.

`bramley apiserver --cluster-api` and `bramley up --bootstrap` run them. They refuse a server whose definitions are not their own, since
Cluster API's core manager, or another operator, owns the objects there.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from prometheus_client import CollectorRegistry

from bramley.api import cluster_api
from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.names import labels
from bramley.apiserver.auth.bearer_tokens import ADMIN, ADMIN_GROUPS
from bramley.app import pools
from bramley.app.embedded import Api
from bramley.app.restarted_manager import RestartedManager
from bramley.base import errors
from bramley.base.clock import Clock
from bramley.kube.client import Client
from bramley.machines import tuist_clusters
from bramley.machines.cluster_api import controllers
from bramley.runtime.manager import Manager, ManagerSettings

_FIELD_MANAGER = "bramley"
_DRAIN = timedelta(seconds=5)


async def cluster_api_controllers(
    kube: Client,
    *,
    clock: Clock,
    rng: random.Random,
    registry: CollectorRegistry,
    settings: ManagerSettings | None = None,
) -> Manager:
    """Install the definitions, and return a manager of the controllers, to be run."""
    await install_definitions(kube)
    manager = Manager(kube, clock=clock, rng=rng, registry=registry, settings=settings)
    controllers.add(manager, kube, clock=clock)
    tuist_clusters.add(manager, clock=clock)
    return manager


def core_controllers(api: Api, *, clock: Clock, rng: random.Random) -> RestartedManager:
    """Return the controllers of an embedded API, as clients in its process; all definitions that they need are installed first."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Manager]:
        token = api.internal_tokens.issue(ADMIN, ADMIN_GROUPS)
        async with Client(api.transport(token), clock=clock) as kube:
            # Of the infrastructure provider, whose objects these controllers clone and watch.
            await pools.install_definitions(kube)
            yield await cluster_api_controllers(
                kube,
                clock=clock,
                rng=rng,
                registry=CollectorRegistry(),
                settings=ManagerSettings(drain=_DRAIN, tune_gc=False),
            )

    return RestartedManager("Cluster API", opened, rng)


async def install_definitions(kube: Client) -> None:
    """Install the definitions of the core kinds; raise if the server has those of another installation."""
    for manifest in cluster_api.manifests():
        name = manifest["metadata"]["name"]
        try:
            existing = await kube.get(CustomResourceDefinition, name)
        except errors.NotFound:
            existing = None
        if existing is not None and not _is_ours(existing):
            raise errors.BadConfiguration(
                f"the definition {name} belongs to another installation of Cluster API; "
                "run its core manager instead"
            )
        await kube.apply(
            CustomResourceDefinition, name, manifest, manager=_FIELD_MANAGER, force=True
        )


def _is_ours(definition: CustomResourceDefinition) -> bool:
    return definition.metadata.labels.get(labels.APP_MANAGED_BY) == cluster_api.MANAGED_BY
