"""Managers that only sweep: elected, and killed or paused before or after one of their calls."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from prometheus_client import CollectorRegistry

from bramley.api.names import machines
from bramley.base import errors
from bramley.kube.client import Client
from bramley.machines import host_sweep
from bramley.machines.bootstrap_secrets import BootstrapSecrets
from bramley.machines.host_failures import HostFailures
from bramley.machines.host_leases import Holder, HostLeases
from bramley.machines.host_metrics import HostMetrics
from bramley.machines.host_sweep import HostSweep, Settings
from bramley.machines.release import Releases, fenced_account
from bramley.providers.scaleway import ScalewayProvider
from bramley.providers.scaleway_calls import Transport
from bramley.providers.zone_lists import ZoneLists
from bramley.runtime.leader_election import LeaderElectionSettings
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.runtime.writes import FencedKube, ReadYourWrites
from tests import provider_peer, virtual_time
from tests.scenarios.machines.gates import LEADER, Gate, GatedRunner, GatedTransport
from tests.scenarios.machines.managers import NAMESPACE
from tests.scenarios.machines.world import World, a_world

FLEET = "fleet-"
SETTINGS = Settings(claim_name_prefix=FLEET, default_pool_prefix=machines.POOL_PREFIX)


async def nothing() -> None:
    """Observe nothing."""


@dataclass(slots=True)
class Sweeper:
    """One manager process with a sweep."""

    sweep: HostSweep
    gate: Gate
    registry: CollectorRegistry
    task: asyncio.Task[None]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of a metric."""
        return self.registry.get_sample_value(name, labels)

    async def stop(self) -> None:
        """End the process where it is."""
        self.task.cancel()
        await asyncio.wait([self.task])


@dataclass(slots=True)
class Sweepers:
    """The managers of a world."""

    world: World
    started: list[Sweeper] = field(default_factory=list)

    def start(
        self, name: str = "first", settings: Settings = SETTINGS, *, stop_at: int | None = None
    ) -> Sweeper:
        """Start a manager."""
        cluster, gate = self.world.cluster, Gate(nothing, stop_at)
        client = Client(
            GatedTransport(cluster.api.transport(cluster.token), gate), clock=virtual_time.clock()
        )
        registry = CollectorRegistry()
        election = LeaderElectionSettings(NAMESPACE, LEADER, name)
        manager = Manager(
            client,
            clock=virtual_time.clock(),
            rng=random.Random(name),
            registry=registry,
            settings=ManagerSettings(election=election, tune_gc=False),
        )
        releases = self._releases(manager, client, gate)
        sweep = a_sweep(manager, client, releases, settings, HostMetrics(registry))
        host_sweep.add(manager, sweep)
        task = self.world.group.create_task(run_until_lost(manager))
        self.started.append(Sweeper(sweep, gate, registry, task))
        return self.started[-1]

    def _releases(self, manager: Manager, client: Client, gate: Gate) -> Releases:
        scaleway, clock = self.world.scaleway, virtual_time.clock()
        known = provider_peer.account(scaleway)
        provider = ScalewayProvider(
            fenced_account(lambda: known, manager.check),
            rng=random.Random(0),
            transport=Transport(GatedRunner(gate), provider_peer.in_place(scaleway).send),
        )
        leases = HostLeases(
            client,
            manager.kube,
            namespace=NAMESPACE,
            clock=clock,
            epoch=lambda: manager.leadership.epoch if manager.leadership else 0,
            raise_epoch=manager.raise_epoch,
        )
        secrets = BootstrapSecrets(client, manager.kube, NAMESPACE)
        return Releases(provider, leases, secrets, client, manager.kube, clock)


def a_sweep(
    manager: Manager, client: Client, releases: Releases, settings: Settings, metrics: HostMetrics
) -> HostSweep:
    """Return the sweep of a manager."""
    failures = HostFailures(
        reader=client,
        kube=manager.kube,
        namespace=NAMESPACE,
        clock=releases.clock,
        metrics=metrics,
    )
    zones = ZoneLists(releases.provider, releases.clock)
    return HostSweep(
        settings=settings, zones=zones, releases=releases, failures=failures, metrics=metrics
    )


async def run_until_lost(manager: Manager) -> None:
    """Run a manager; one that was paused for long is no leader any more."""
    with contextlib.suppress(errors.LeaseLost):
        await manager.run()


@asynccontextmanager
async def a_swept_world(*, servers: int = 0) -> AsyncIterator[tuple[World, Sweepers]]:
    """Run a world without machines, and end its managers at the end."""
    async with a_world(servers=servers) as world:
        sweepers = Sweepers(world)
        yield world, sweepers
        for sweeper in sweepers.started:
            sweeper.task.cancel()


def minutes(count: float) -> float:
    """Return the seconds of some minutes."""
    return timedelta(minutes=count).total_seconds()


def leases_of(world: World) -> HostLeases:
    """Return the Leases of hosts for a test, without an election."""
    kube = FencedKube(world.kube, writes=ReadYourWrites(), check=lambda: None)

    async def raise_epoch(_: int) -> None:
        """Accept any."""

    return HostLeases(
        world.kube,
        kube,
        namespace=NAMESPACE,
        clock=virtual_time.clock(),
        epoch=lambda: 0,
        raise_epoch=raise_epoch,
    )


async def holders(world: World) -> dict[str, Holder]:
    """Return the holders of the Leases of hosts."""
    return {lease.ref.id: lease.holder for lease in await leases_of(world).all()}
