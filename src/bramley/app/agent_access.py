"""The operations of `bramley agent-access`, each with a client of the selected server."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bramley.access import controller, identity, kubeconfig
from bramley.access.identity import Identity
from bramley.access.registration import Registration
from bramley.api.admission import ValidatingAdmissionPolicy
from bramley.api.names import access
from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport
from bramley.runtime.leader_election import LeaderElectionSettings
from bramley.runtime.manager import Manager, ManagerSettings


@dataclass(frozen=True, slots=True)
class Cluster:
    """The server, selected as kubectl does."""

    kubeconfig: Path | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True)
class Issued:
    """An agent's identity and the kubeconfig with its token."""

    identity: Identity
    server: str
    kubeconfig: Secret


def require(cluster: Cluster, server: str | None = None) -> None:
    """Raise if the kubeconfig has no server that agents can reach, before any request."""
    kubeconfig.server_for_agent(config_loader.load(cluster.kubeconfig, cluster.context), server)


async def create(
    cluster: Cluster,
    node: str,
    *,
    expires: timedelta,
    server: str | None = None,
    registration: Registration | None = None,
) -> Issued:
    """Create or renew an agent's identity."""
    config = config_loader.load(cluster.kubeconfig, cluster.context)
    address = kubeconfig.server_for_agent(config, server)
    async with Client(HttpTransport(config)) as kube:
        with _policies_required():
            made = await identity.create(kube, node, expires=expires, registration=registration)
    content = kubeconfig.render(node, made.token, server=address, trust=config.trust)
    return Issued(made, address, content)


async def revoke(cluster: Cluster, node: str) -> bool:
    """Revoke an agent's identity; return whether there was one."""
    async with config_loader.connect(cluster.kubeconfig, cluster.context) as kube:
        return await identity.revoke(kube, node)


async def run_controller(cluster: Cluster, *, on_leading: Callable[[], None]) -> None:
    """Run the controller of the agents' Roles until a signal arrives; `on_leading` is called once it leads."""
    async with config_loader.connect(cluster.kubeconfig, cluster.context) as kube:
        with _policies_required():
            await identity.ensure_shared(kube)
        manager = _manager(kube)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, manager.stop)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(manager.run())
            notification = group.create_task(_call_when_leading(manager, on_leading))
            await asyncio.wait((running,))
            notification.cancel()


def _manager(kube: Client) -> Manager:
    from prometheus_client import CollectorRegistry

    candidate = f"{socket.gethostname()}_{uuid.uuid4()}"
    manager = Manager(
        kube,
        clock=SystemClock(),
        rng=random.Random(),
        registry=CollectorRegistry(),
        settings=ManagerSettings(
            election=LeaderElectionSettings(access.NAMESPACE, access.LEASE, candidate)
        ),
    )
    controller.add(manager)
    return manager


async def _call_when_leading(manager: Manager, on_leading: Callable[[], None]) -> None:
    await manager.leading.wait()
    on_leading()


@contextmanager
def _policies_required() -> Iterator[None]:
    """Refuse a server without admission policies, which restrict the writes of agents."""
    try:
        yield
    except errors.NotFound as error:
        if ValidatingAdmissionPolicy.resource.plural not in str(error):
            raise
        raise errors.BadConfiguration(
            "the server has no ValidatingAdmissionPolicy; use Kubernetes 1.30 or newer"
        ) from error
