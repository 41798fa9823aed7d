"""The process of `bramley runners`: the pool controllers in one manager, with leader election, probes and a client of dispatch."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import uuid
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.api.apiextensions import CustomResourceDefinition
from bramley.api.names import groups
from bramley.api.runner_pool import RunnerPool
from bramley.app.agent_access import Cluster
from bramley.base import errors
from bramley.base.clock import Clock, SystemClock
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport
from bramley.runners import controllers
from bramley.runners.dispatch_client import DispatchClient, DispatchSettings
from bramley.runtime.leader_election import LeaderElectionSettings
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.runtime.probes import ProbeSettings

_INSTALL = "install them with: bramley crds | kubectl apply -f -"
# The controller's memory of a pool; a server whose definition lacks a field drops it without an error.
_REQUIRED_STATUS = ("slots", "draining", "targetImage", "controllerEpoch")


@dataclass(frozen=True, slots=True)
class Settings:
    """The cluster, the pools, dispatch, the endpoints, and the lease."""

    cluster: Cluster = field(default_factory=Cluster)
    pools: controllers.Settings = field(default_factory=controllers.Settings)
    dispatch: DispatchSettings = field(default_factory=DispatchSettings)
    probes: tuple[ProbeSettings, ...] = ()
    leader_elect: bool = True
    # Empty: the namespace of the Pod of this process, or of the kubeconfig's context.
    lease_namespace: str = ""


async def run(settings: Settings, *, on_leading: Callable[[], None]) -> None:
    """Run the controllers until a signal arrives; `on_leading` is called once they reconcile."""
    config = config_loader.load(settings.cluster.kubeconfig, settings.cluster.context)
    kube = Client(HttpTransport(config))
    async with kube, DispatchClient(settings.dispatch) as dispatch:
        await require_definition(kube, settings.pools.namespace)
        clock, registry = SystemClock(), CollectorRegistry()
        election = _election(settings.lease_namespace or config.namespace)
        manager = Manager(
            kube,
            clock=clock,
            rng=random.Random(),
            registry=registry,
            settings=ManagerSettings(
                election=election if settings.leader_elect else None, probes=settings.probes
            ),
        )
        add_controllers(manager, settings, dispatch, clock=clock, registry=registry)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, manager.stop)
        async with asyncio.TaskGroup() as group:
            notification = group.create_task(_call_when_leading(manager, on_leading))
            await manager.run()
            notification.cancel()


def add_controllers(
    manager: Manager,
    settings: Settings,
    dispatch: DispatchClient,
    *,
    clock: Clock,
    registry: CollectorRegistry,
) -> None:
    """Add the controllers; calls to dispatch are only made to the URLs that are set."""
    controllers.add(
        manager,
        settings.pools,
        clock=clock,
        registry=registry,
        signals=dispatch if settings.dispatch.scaling_signals_url else None,
        sessions=dispatch if settings.dispatch.sessions_url else None,
    )


async def require_definition(kube: Client, namespace: str) -> None:
    """Raise if the server has no RunnerPools, or a definition of them that would drop what the controller stores."""
    try:
        async with aclosing(kube.pages(RunnerPool, namespace=namespace, page_size=1)) as pages:
            await anext(pages)
    except errors.NotFound as error:
        raise errors.BadConfiguration(f"the server has no RunnerPools; {_INSTALL}") from error
    resource = CustomResourceDefinition.resource
    name = f"{RunnerPool.resource.plural}.{RunnerPool.resource.group}"
    try:
        definition = await kube.read_wire(resource.path(name=name))
    except errors.Forbidden:
        # Reading definitions is not necessary for anything else.
        return
    missing = [each for each in _REQUIRED_STATUS if each not in _status_fields(definition)]
    if missing:
        raise errors.BadConfiguration(
            f"the server's definition of RunnerPools is older and lacks status.{missing[0]}; {_INSTALL}"
        )


def _status_fields(definition: dict[str, Any]) -> dict[str, Any]:
    for version in definition["spec"]["versions"]:
        if version["name"] == groups.VERSION:
            fields = version["schema"]["openAPIV3Schema"]["properties"]
            found: dict[str, Any] = fields.get("status", {}).get("properties", {})
            return found
    return {}


def _election(namespace: str) -> LeaderElectionSettings:
    candidate = f"{socket.gethostname()}_{uuid.uuid4()}"
    return LeaderElectionSettings(namespace, groups.RUNNERS_LEASE, candidate)


async def _call_when_leading(manager: Manager, on_leading: Callable[[], None]) -> None:
    await manager.leading.wait()
    on_leading()
