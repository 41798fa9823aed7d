"""The provider over a simulated Scaleway in place: a day of a host in virtual time."""

from __future__ import annotations

import asyncio
import random

from bramley.providers.provider import HostProvider, HostRef, HostState
from bramley.providers.scaleway import ScalewayProvider
from bramley.providers.selection import HostRequirements, claimable
from bramley.sim.scaleway.scaleway import Settings, SimulatedScaleway
from tests import provider_peer, virtual_time

ZONE, POOL, OS = "fr-par-1", "tuist-pool-", "Tahoe"


async def ready(provider: HostProvider, ref: HostRef) -> None:
    while (await provider.host(ref)).state is not HostState.READY:
        await asyncio.sleep(30)


async def test_host_is_claimed_sealed_released_and_claimed_again() -> None:
    scaleway = SimulatedScaleway(
        provider_peer.NoMacs(), clock=virtual_time.clock(), settings=Settings()
    )
    account = provider_peer.account(scaleway)
    provider: HostProvider = ScalewayProvider(
        lambda: account, rng=random.Random(1), transport=provider_peer.in_place(scaleway)
    )
    async with scaleway.running():
        await scaleway.add_servers([f"{POOL}1"])
        passwords = []
        for name in ("m1", "m2"):
            required = HostRequirements(name, "M2-L", OS, POOL)
            [host] = claimable(await provider.hosts(ZONE), required)
            assert await provider.claim(host, name)
            passwords.append((await provider.credentials(host.ref)).sudo_password)
            await asyncio.sleep(3600)
            assert await provider.release(host.ref, name, pool_prefix=POOL, os=OS)
            assert claimable(await provider.hosts(ZONE), required) == []
            await ready(provider, host.ref)

    assert None not in passwords
    assert passwords[0] != passwords[1]
