"""The provider's controllers in a fleet world, as `bramley machines` runs them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.api.names import machines
from bramley.api.scaleway_machine import GHActionsRunner
from bramley.base.clock import Clock
from bramley.host.artifacts import Artifact
from bramley.kube.client import Client
from bramley.kube.tls import Trust
from bramley.machines import controllers, host_sweep, mac_draft
from bramley.machines.host_configuration import Artifacts, HostDefaults
from bramley.machines.release import fenced_account
from bramley.machines.runner_registration import RunnerRegistration
from bramley.providers.scaleway import ScalewayProvider
from bramley.providers.scaleway_calls import Transport
from bramley.runtime.leader_election import LeaderElectionSettings
from bramley.runtime.manager import Manager, ManagerSettings
from tests import provider_peer, virtual_time
from tests.scenarios.machines.fleet_world import NAMESPACE, FleetWorld

SMOKE_IMAGE = "ghcr.io/example/smoke:1"
LEASE = "machines"


class NoForge:
    """No runner can be registered."""

    async def resolve(
        self, namespace: str, spec: GHActionsRunner | None
    ) -> RunnerRegistration | None:
        del namespace, spec
        return None

    async def find(self, namespace: str, spec: GHActionsRunner | None, name: str) -> None:
        del namespace, spec, name

    async def remove(self, namespace: str, spec: GHActionsRunner | None, name: str) -> bool:
        del namespace, spec, name
        return False


@dataclass(slots=True, kw_only=True)
class Provider:
    """One manager process; `identity` makes it elected."""

    world: FleetWorld
    identity: str = ""
    election_retry: timedelta = timedelta(seconds=2)
    agent: Artifact | None = None
    tart: Artifact | None = None
    decisions: mac_draft.Settings = field(default_factory=mac_draft.Settings)
    settings: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    forge: Any = field(default_factory=NoForge)
    client: Client | None = None
    runner: Any = field(default_factory=provider_peer.InPlace)
    # Instead of those of the world.
    connect: Any = None
    clock: Clock = field(default_factory=virtual_time.clock)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def manager(self) -> Manager:
        """Return a manager with all controllers."""
        world, clock = self.world, self.clock
        election = (
            LeaderElectionSettings(NAMESPACE, LEASE, self.identity, retry=self.election_retry)
            if self.identity
            else None
        )
        client = self.client or world.client()
        manager = Manager(
            client,
            clock=clock,
            rng=random.Random(f"{self.identity}/{world.seed}"),
            registry=self.registry,
            settings=ManagerSettings(election=election, tune_gc=False, drain=timedelta(seconds=2)),
        )
        account = provider_peer.account(world.scaleway)
        transport = Transport(self.runner, provider_peer.in_place(world.scaleway).send)
        parts = controllers.Parts(
            client=client,
            defaults=self._defaults(),
            connect=self.connect or world.connect,
            registrations=self.forge,
            runners=self.forge,
            clock=clock,
            registry=self.registry,
            provider=lambda check: ScalewayProvider(
                fenced_account(lambda: account, check),
                rng=random.Random(world.seed),
                transport=transport,
            ),
        )
        controllers.add(manager, parts, self._settings())
        return manager

    def _defaults(self) -> HostDefaults:
        made = self.world.artifacts
        artifacts = Artifacts(
            store=self.world.store,
            tart=self.tart or made.tart,
            interpreter=made.interpreter,
            agent=self.agent or made.agent,
            actions_runners={made.actions_runner.version: made.actions_runner},
        )
        defaults = HostDefaults(
            artifacts=artifacts,
            server="https://api.example:6443",
            trust=Trust(authorities=None),
        )
        return replace(defaults, **self.defaults)

    def _settings(self) -> controllers.Settings:
        settings = controllers.Settings(
            secrets_namespace=NAMESPACE,
            decisions=self.decisions,
            smoke_image=SMOKE_IMAGE,
            default_pool_prefix=machines.POOL_PREFIX,
            sweep=host_sweep.Settings(default_pool_prefix=machines.POOL_PREFIX),
        )
        return replace(settings, **self.settings)
