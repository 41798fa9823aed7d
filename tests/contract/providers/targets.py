"""Providers over simulated clouds: each target is a provider, and what a test does to the cloud behind it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bramley.app.listen_address import Address, bind, bound_address
from bramley.app.sim_github import serving
from bramley.base.backoff import Backoff
from bramley.base.clock import SystemClock
from bramley.providers.provider import Host, HostRef
from bramley.providers.scaleway import ScalewayProvider
from bramley.providers.scaleway_account import Account
from bramley.providers.scaleway_calls import Settings, Transport
from bramley.sim.scaleway.application import application
from bramley.sim.scaleway.records import Seal, Server, Status
from bramley.sim.scaleway.scaleway import Settings as CloudSettings
from bramley.sim.scaleway.scaleway import SimulatedScaleway
from tests import provider_peer
from tests.contract.providers.faults import Fault, Faults, Faulty

if TYPE_CHECKING:
    import requests

    from bramley.providers.scaleway_sdk import Answer

TARGETS = ("scaleway-http", "scaleway-in-place")
ZONE, OTHER_ZONE = "fr-par-1", "nl-ams-1"
POOL = "tuist-pool-"
PENDING = "tuist-claim-pending-"
OS = "macos-tahoe-26.0"
ONE_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEhlbGxvIEhlbGxvIEhlbGxvIEhlbGxvIEhlbGxvIDEx"
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEhlbGxvIEhlbGxvIEhlbGxvIEhlbGxvIEhlbGxvIDIy"
FAST = Settings(
    backoff=Backoff(initial=timedelta(milliseconds=5), maximum=timedelta(milliseconds=20))
)
_NOTHING = timedelta()
CLOUD = CloudSettings(list_shows_old_name=_NOTHING, requests_per_minute=0)


@dataclass
class Target:
    """Scaleway's provider, and the simulated Scaleway behind it."""

    scaleway: SimulatedScaleway
    account: Account
    faults: Faults
    transport: Transport | None = None
    requests: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.requests = self.faults.requests

    def provider(self, settings: Settings = FAST, seed: int = 1) -> ScalewayProvider:
        return ScalewayProvider(
            lambda: self.account,
            settings=settings,
            rng=random.Random(seed),
            transport=self.transport,
        )

    def fail(self, method: str, path: str, **fields: Any) -> None:
        self.faults.pending.append(Fault(method, path, **fields))

    def writes(self) -> list[str]:
        return [each for each in self.requests if not each.startswith("GET")]

    async def add(self, name: str = f"{POOL}1", zone: str = ZONE, status: str = "ready") -> HostRef:
        [server] = await self.scaleway.add_servers([name], zone=zone)
        server.status = Status(status)
        return HostRef(zone, server.id)

    async def host(self, name: str = f"{POOL}1") -> Host:
        return await self.provider().host(await self.add(name))

    def server(self, ref: HostRef) -> Server:
        return self.scaleway.servers[ref.id]

    def name(self, ref: HostRef) -> str:
        return self.server(ref).name

    def become(self, ref: HostRef, status: str) -> None:
        self.server(ref).status = Status(status)

    def rename(self, ref: HostRef, name: str) -> None:
        self.scaleway.rename(self.server(ref), name)

    def remove(self, ref: HostRef) -> None:
        del self.scaleway.servers[ref.id]

    def seal(self, ref: HostRef) -> None:
        self.scaleway.seal(self.server(ref), Seal(vnc_url="<sealed>"))

    def registered_keys(self) -> list[tuple[str, str]]:
        keys = self.scaleway.ssh_keys.values()
        return [(each.name, " ".join(each.public_key.split()[:2])) for each in keys]


@asynccontextmanager
async def connected(name: str, cloud: CloudSettings = CLOUD) -> AsyncIterator[Target]:
    """Connect a provider to a simulated Scaleway over HTTP, or in place."""
    simulated = SimulatedScaleway(provider_peer.NoMacs(), clock=SystemClock(), settings=cloud)
    faults = Faults()
    async with simulated.running():
        if name == "scaleway-in-place":
            transport = Transport(provider_peer.InPlace(), _in_place(simulated, faults))
            yield Target(simulated, provider_peer.account(simulated), faults, transport)
            return
        loopback = Address("127.0.0.1", 0)
        bound = bind(loopback)
        account = provider_peer.account(simulated, f"http://{bound_address(loopback, bound)}")
        async with serving(Faulty(application(simulated), faults), bound):
            yield Target(simulated, account, faults)


def _in_place(scaleway: SimulatedScaleway, faults: Faults) -> Any:
    from bramley.providers.scaleway_sdk import Answer

    def send(prepared: requests.PreparedRequest, _ends_at: float) -> Answer:
        path = prepared.path_url.partition("?")[0]
        fault = faults.take(prepared.method or "", path)
        if fault is None:
            return provider_peer.sent(scaleway, prepared)
        if fault.is_processed:
            provider_peer.sent(scaleway, prepared)
        return Answer(fault.status, fault.headers, fault.body.encode())

    return send
