"""A script in place of the machine controller: it bootstraps each bound machine, and revokes identities of machines that are gone.

Binding and releasing is done by `managers.RunningManager`. There is no recovery, no drift and no drain.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from bramley.access import identity, kubeconfig
from bramley.api import core
from bramley.api.names import labels, secrets
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.base import errors
from bramley.base.secret import Secret
from bramley.host import converge, sequence
from bramley.host.agent_daemon import AgentJob
from bramley.host.spec import Builder, MacSpec
from bramley.host.ssh import Pin
from bramley.kube.tls import Trust
from tests import virtual_time
from tests.scenarios.machines.fleet_world import NAMESPACE, FleetWorld
from tests.scenarios.machines.gates import Gate
from tests.scenarios.machines.managers import RunningManager
from tests.unit.host.steps import fixtures

SERVER = "https://api.example:6443"


@dataclass(frozen=True, slots=True)
class Login:
    """The login of a Mac."""

    name: str
    address: str
    user: str
    password: Secret | None = None
    private_keys: tuple[Secret, ...] = ()
    port: int = 22
    host_key: Pin = field(default_factory=Pin)


@dataclass(slots=True)
class ScriptedBootstrap:
    """The script; `run` until cancelled."""

    world: FleetWorld
    builder: Builder | None = None
    # By the uid of the machine.
    done: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Bind, bootstrap and release."""
        world = self.world
        manager = RunningManager(
            world.client(),
            world.scaleway,
            Gate(world.invariants.check),
            name="script",
            seed=world.seed,
            stale=0,
            leads_always=True,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(manager.run())
            while True:
                await self._bootstrap_all()
                await asyncio.sleep(2)

    async def _bootstrap_all(self) -> None:
        found = await self.world.machines()
        for machine in found.values():
            if machine.spec.provider_id and not machine.deleting and machine.uid not in self.done:
                # A failure is repeated.
                with suppress(errors.BramleyError):
                    await self.bootstrap(machine)
                    self.done[machine.uid] = machine.name
        alive = {machine.uid for machine in found.values()}
        for uid, name in list(self.done.items()):
            if uid not in alive:
                await identity.revoke(self.world.kube, name)
                del self.done[uid]

    async def bootstrap(self, machine: Machine) -> None:
        """Apply all steps to the host of a machine."""
        name = secrets.machine_bootstrap(machine.name)
        values = (await self.world.kube.get(core.Secret, name, namespace=NAMESPACE)).data
        password = Secret(values[secrets.SUDO_PASSWORD].decode())
        user = values[secrets.SSH_USERNAME].decode()
        login = Login(machine.name, machine.status.addresses[0].address, user, password)
        spec = await self._spec(machine, password)
        steps = sequence.steps(spec, clock=virtual_time.clock())
        async with self.world.connect(login, self.world.store) as mac:
            await converge.apply(mac, steps)
        await self.world.kube.merge_patch(
            Machine,
            machine.name,
            {"status": {"ready": True}},
            namespace=NAMESPACE,
            subresource="status",
        )

    async def _spec(self, machine: Machine, password: Secret) -> MacSpec:
        made = await identity.create(self.world.kube, machine.name, expires=timedelta(days=30))
        trust = Trust(authorities=fixtures.AUTHORITY)
        job = AgentJob(
            node_name=machine.name,
            host_cpu=8,
            host_memory_mb=16384,
            max_pods=2,
            node_labels={labels.FLEET: machine.spec.fleet_name or "standalone"},
            register_taints=(f"{labels.UNPROVEN_TAINT}:{labels.NO_SCHEDULE}",),
            provider_id=machine.spec.provider_id or "",
        )
        return MacSpec(
            job=job,
            password=password,
            kubeconfig=kubeconfig.render(machine.name, made.token, server=SERVER, trust=trust),
            tart=self.world.artifacts.tart,
            interpreter=self.world.artifacts.interpreter,
            agent=self.world.artifacts.agent,
            builder=self.builder,
        )
