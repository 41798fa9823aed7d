"""What must hold for the hosts of a fleet: at every moment, and once nothing is left to do."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from bramley.api import core
from bramley.api.coordination import Lease
from bramley.api.core import ServiceAccount
from bramley.api.mac_host import MacHost
from bramley.api.names import access, agent, host, labels, machines, secrets
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from bramley.kube.client import Client
from bramley.sim.scaleway.macs import ModelMacs
from bramley.sim.scaleway.records import Server, Status
from bramley.sim.scaleway.scaleway import SimulatedScaleway
from tests.scenarios.machines.builders import Builders
from tests.scenarios.machines.mac_agents import MacAgents

_FREE = (machines.POOL_PREFIX, machines.CLAIM_PREFIX)
_TRACES = (host.AGENT_KUBECONFIG, host.STAMPS, host.ACTIONS_RUNNER_NOTE)


@dataclass(slots=True, eq=False)
class FleetInvariants:
    """The checks; `users` has the machine that was bound to each installation of a host."""

    kube: Client
    scaleway: SimulatedScaleway
    macs: ModelMacs
    agents: MacAgents
    builders: Builders | None = None
    # In seconds.
    every: float = 60.0
    # Whether a test kills jobs or disturbs VMs on purpose.
    expects_harm: bool = False
    users: dict[tuple[str, str], str] = field(default_factory=dict)
    # The ids of the Macs that are not rented.
    own: set[str] = field(default_factory=set)

    async def run(self) -> None:
        """Check again and again until cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(self.every)

    async def check(self) -> None:
        """Check what must hold at every moment."""
        found = (await self.kube.list(Machine)).items
        _require_distinct(each.status.server_id for each in found)
        _require_distinct(each.spec.provider_id or "" for each in found)
        for machine in found:
            server = self.scaleway.servers.get(machine.status.server_id)
            if server is not None and machine.spec.provider_id and not machine.deleting:
                user = self.users.setdefault((server.id, server.password), machine.uid)
                assert user == machine.uid, f"{server.id} was not wiped before {machine.name}"
        leased = {name.removeprefix(machines.HOST_LEASE_PREFIX) for name in await self._leases()}
        recorded = {each.status.server_id for each in found}
        for server in self.scaleway.servers.values():
            if server.id not in leased | recorded and server.name.startswith(machines.POOL_PREFIX):
                self._require_wiped(server)
        if not self.expects_harm:
            _require_none(self.agents.jobs.killed, "Pods were killed while they ran a job")
            _require_none(self.agents.disturbances, "Macs were changed under running VMs")
            builders = self.builders.killed if self.builders else ()
            _require_none(builders, "builders lost their job")

    async def check_at_rest(self) -> None:
        """Check that no host is lost, and that nothing is left of machines that are gone."""
        await self.check()
        found = {each.name: each for each in (await self.kube.list(Machine)).items}
        ids = {each.status.server_id for each in found.values()} - {""}
        leases = {f"{machines.HOST_LEASE_PREFIX}{id}" for id in ids}
        _require_none(
            leases ^ await self._leases(), "Leases of hosts without a machine, or missing"
        )
        for server in self.scaleway.servers.values():
            is_used = server.id in ids and server.name in found
            assert is_used or server.name.startswith(_FREE), f"{server.name} is lost"
        own = {each.name: each for each in (await self.kube.list(MacHost)).items}
        _require_none(await self._secrets() - set(found), "Secrets with logins of hosts are left")
        names = set(found) | set(own)
        _require_none(await self._identities() - names, "identities are left")
        _require_none(await self._smoke_pods() - names, "smoke Pods are left")
        _require_none(self._runners() - names, "runners of builders are left at GitHub")
        addresses = {each.spec.address for each in own.values()}
        for id in self.own:
            if self.macs.address(id) not in addresses:
                self._require_clean(id)

    def _require_wiped(self, server: Server) -> None:
        if server.status is Status.REINSTALLING:
            return
        assert (server.id, server.password) not in self.users, f"{server.id} was not wiped"
        self._require_clean(server.id)

    def _require_clean(self, id: str) -> None:
        mac = self.macs.mac(id)
        left = [path for path in _TRACES if mac.files.exists(path)]
        assert not left, f"the free host {id} still has {left}"

    async def _leases(self) -> set[str]:
        selector = {labels.APP_COMPONENT: labels.COMPONENT_HOST_LEASE}
        return {each.name for each in (await self.kube.list(Lease, labels=selector)).items}

    async def _secrets(self) -> set[str]:
        suffix = secrets.BOOTSTRAP_SUFFIX
        names = [each.name for each in (await self.kube.list(core.Secret)).items]
        return {each.removesuffix(suffix) for each in names if each.endswith(suffix)}

    async def _smoke_pods(self) -> set[str]:
        """Return the names of the Nodes that have a smoke Pod."""
        found = (await self.kube.list(core.Pod, labels={labels.SMOKE: labels.TRUE})).items
        return {each.spec.node_name for each in found}

    def _runners(self) -> set[str]:
        """Return the names of the builders that GitHub lists."""
        runners = self.builders.github.actions.runners.values() if self.builders else ()
        return {each.name for each in runners}

    async def _identities(self) -> set[str]:
        """Return the names of the Nodes that have an identity."""
        found = (await self.kube.list(ServiceAccount, namespace=access.NAMESPACE)).items
        prefix = agent.service_account("")
        return {each.name.removeprefix(prefix) for each in found if each.name.startswith(prefix)}


def _require_none(found: Collection[str], what: str) -> None:
    assert not found, f"{what}: {', '.join(sorted(found))}"


def _require_distinct(values: Iterable[str]) -> None:
    found = [each for each in values if each]
    assert len(found) == len(set(found)), f"one host, two machines: {found}"
