"""The processes of `bramley agent-access`: a client of the chosen server, and what is done with it."""

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
from bramley.api.admission import ValidatingAdmissionPolicy
from bramley.api.names import access
from bramley.base import errors
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.kube import connecting
from bramley.kube.client import Client
from bramley.kube.http import HttpTransport
from bramley.runtime.leader_election import LeaderElectionSettings
from bramley.runtime.manager import Manager, ManagerSettings


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which server is meant, as kubectl finds it."""

    kubeconfig: Path | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True)
class Issued:
    """An agent's identity and the kubeconfig that holds its token."""

    identity: Identity
    server: str
    kubeconfig: Secret


def require(cluster: Cluster, server: str | None = None) -> None:
    """Refuse a cluster that no identity can be asked of, or led to, before anybody is asked."""
    kubeconfig.reachable(connecting.find(cluster.kubeconfig, cluster.context), server)


async def create(
    cluster: Cluster, node: str, *, expires: timedelta, server: str | None = None
) -> Issued:
    """Make or renew an agent's identity."""
    found = connecting.find(cluster.kubeconfig, cluster.context)
    address = kubeconfig.reachable(found, server)
    async with Client(HttpTransport(found)) as kube:
        with _served():
            made = await identity.create(kube, node, expires=expires)
    content = kubeconfig.render(node, made.token, server=address, trust=found.trust)
    return Issued(made, address, content)


async def revoke(cluster: Cluster, node: str) -> bool:
    """Withdraw an agent's identity; tell whether there was one."""
    async with connecting.connect(cluster.kubeconfig, cluster.context) as kube:
        return await identity.revoke(kube, node)


async def keep(cluster: Cluster, *, started: Callable[[], None]) -> None:
    """Keep the Roles of all agents until a signal comes; of several such processes one acts."""
    async with connecting.connect(cluster.kubeconfig, cluster.context) as kube:
        with _served():
            await identity.ensure_shared(kube)
        manager = _manager(kube)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, manager.stop)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(manager.run())
            telling = group.create_task(_tell(manager, started))
            await asyncio.wait((running,))
            telling.cancel()


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


async def _tell(manager: Manager, started: Callable[[], None]) -> None:
    await manager.leading.wait()
    started()


@contextmanager
def _served() -> Iterator[None]:
    """Say what is missing where a server knows no admission policies: without them an agent would not be bounded."""
    try:
        yield
    except errors.NotFound as error:
        if ValidatingAdmissionPolicy.resource.plural not in str(error):
            raise
        raise errors.BadConfiguration(
            "the server knows no ValidatingAdmissionPolicy; agents need Kubernetes 1.30 or newer"
        ) from error
