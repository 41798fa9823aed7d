"""The process that is measured: a manager with the controllers of machines, whose hosts are at a simulated Scaleway over HTTP.

It reports when it leads. At each signal of its parent it reports its memory and how often it has reconciled, and resets the peak.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import asyncssh  # noqa: F401 - an idle manager that has connected once has imported it
from prometheus_client import CollectorRegistry

from bench.machines import fleet
from bench.machines.fleet import NAMESPACE, Releases
from bench.streaming import memory
from bench.streaming.child_process import parent_signal, report
from bench.streaming.resident_store import CopyReader, ResidentStore
from bramley.api.names import groups, machines
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine
from bramley.base.clock import SystemClock
from bramley.base.secret import Secret
from bramley.host import ssh
from bramley.host.artifacts import Artifact, ArtifactStore
from bramley.host.connection import Connection
from bramley.kube import config_loader
from bramley.kube.client import Client
from bramley.machines import controllers, drift, host_sweep, mac_draft
from bramley.machines.host_access import Login
from bramley.machines.release import fenced_account
from bramley.providers.scaleway import ScalewayProvider
from bramley.providers.scaleway_account import Account
from bramley.runtime.leader_election import LeaderElectionSettings
from bramley.runtime.manager import Manager, ManagerSettings
from bramley.sim.scaleway.scaleway import ACCESS_KEY, PROJECT, SECRET_KEY
from tests.scenarios.machines.provider import NoForge

_CONTROLLER = ScalewayAppleSiliconMachine.resource.kind.lower()


@dataclass(slots=True)
class LateResidentStore:
    """The former store, which holds all artifacts in memory; they are read when the first host gets one."""

    files: list[Path]
    store: ResidentStore | None = None

    def open(self, artifact: Artifact) -> AbstractAsyncContextManager[CopyReader]:
        """Open a copy of an artifact for one host."""
        self.store = self.store or ResidentStore(self.files)
        return self.store.open(artifact)


def connect(login: Login, artifacts: ArtifactStore) -> AbstractAsyncContextManager[Connection]:
    """Connect to a host over SSH."""
    target = ssh.Target(
        host=login.address,
        port=login.port,
        user=login.user,
        credentials=ssh.Credentials(private_keys=login.private_keys),
        host_keys=login.host_key,
        name=login.name,
    )
    return ssh.open(target, clock=SystemClock(), artifacts=artifacts)


async def parts(kube: Client, options: argparse.Namespace) -> controllers.Parts:
    """Return what the controllers are made of."""
    releases = Releases(options.folder)
    store = ArtifactStore()
    defaults = await releases.defaults(fleet.NEW, store)
    if options.copy_per_call:
        late = LateResidentStore([*releases.paths(fleet.NEW)])
        artifacts = replace(defaults.artifacts, store=cast("ArtifactStore", late))
        defaults = replace(defaults, artifacts=artifacts)
    account = Account(ACCESS_KEY, Secret(SECRET_KEY), PROJECT, options.cloud)
    return controllers.Parts(
        client=kube,
        defaults=defaults,
        connect=connect,
        registrations=NoForge(),
        runners=NoForge(),
        clock=SystemClock(),
        registry=CollectorRegistry(),
        provider=lambda check: ScalewayProvider(fenced_account(lambda: account, check)),
    )


def settings(options: argparse.Namespace) -> controllers.Settings:
    """Return the settings: in the worst case all hosts of a fleet are updated at once, after the first one."""
    return controllers.Settings(
        secrets_namespace=NAMESPACE,
        decisions=mac_draft.Settings(drift=drift.Settings(max_unavailable_percent=100)),
        operations=options.operations,
        default_pool_prefix=machines.POOL_PREFIX,
        ssh_port=options.ssh_port,
        sweep=host_sweep.Settings(default_pool_prefix=machines.POOL_PREFIX),
    )


def reconciles(registry: CollectorRegistry) -> int:
    """Return how often machines were reconciled."""

    def values() -> Iterator[float]:
        for family in registry.collect():
            for sample in family.samples:
                if sample.name == "bramley_reconcile_outcomes_total":
                    yield sample.value if sample.labels["controller"] == _CONTROLLER else 0

    return int(sum(values()))


async def run(options: argparse.Namespace) -> None:
    """Run the manager until the parent process is gone."""
    async with (
        parent_signal() as signalled,
        config_loader.connect(options.folder / "kubeconfig", environment={}) as kube,
    ):
        made = await parts(kube, options)
        election = LeaderElectionSettings(NAMESPACE, groups.MACHINES_LEASE, "bench")
        manager = Manager(
            kube,
            clock=made.clock,
            rng=random.Random(0),
            registry=made.registry,
            settings=ManagerSettings(election=election),
        )
        controllers.add(manager, made, settings(options))
        async with asyncio.TaskGroup() as group:
            group.create_task(manager.run())
            await manager.leading.wait()
            report(leads=True)
            while await signalled.wait():
                signalled.clear()
                memory.reset_peak()
                report(resident=memory.resident(), reconciles=reconciles(made.registry))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.machines.manager_process")
    parser.add_argument("folder", type=Path)
    parser.add_argument("cloud")
    parser.add_argument("--ssh-port", type=int, default=22)
    parser.add_argument("--operations", type=int, default=100)
    parser.add_argument("--copy-per-call", action="store_true")
    asyncio.run(run(parser.parse_args()))
