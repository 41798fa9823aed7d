"""A manager is killed at each request of a claim and of a release; the next one repeats it."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from bramley.base import errors
from bramley.providers.provider import HostRef, HostState
from bramley.providers.scaleway import ScalewayProvider
from bramley.providers.selection import HostRequirements, claimable
from tests.contract.providers import targets
from tests.contract.providers.faults import Fault
from tests.contract.providers.targets import FAST, OS, POOL, ZONE, Target

ONCE = dataclasses.replace(FAST, retries=0)
MOST_REQUESTS = 8


class Killed:
    """Drops all requests from one of them on, which is itself processed or not."""

    def __init__(self, target: Target, after: int, *, is_processed: bool) -> None:
        self._target = target
        self._after = after
        self._is_processed = is_processed
        self.was_killed = False

    async def run(self, act: Callable[[ScalewayProvider], Awaitable[object]]) -> None:
        faults, take = self._target.faults, self._target.faults.take
        first = len(faults.requests)

        def taken(method: str, path: str) -> Fault | None:
            take(method, path)
            number = len(faults.requests) - first
            if number <= self._after:
                return None
            is_last = number == self._after + 1
            return Fault(method, path, is_processed=is_last and self._is_processed)

        faults.take = taken  # type: ignore[method-assign]
        try:
            await act(self._target.provider(ONCE))
        except errors.ProviderUnavailable:
            self.was_killed = True
        finally:
            faults.take = take  # type: ignore[method-assign]


async def claim(provider: ScalewayProvider) -> HostRef | None:
    required = HostRequirements("m1", "M2-L", OS, POOL)
    for host in claimable(await provider.hosts(ZONE), required):
        if await provider.claim(host, "m1"):
            return host.ref
    return None


@pytest.mark.parametrize("is_processed", [False, True])
async def test_interrupted_claim_ends_with_one_host(is_processed: bool) -> None:
    ends = []
    for after in range(MOST_REQUESTS):
        async with targets.connected("scaleway-in-place") as target:
            refs = [await target.add(f"{POOL}{number}") for number in range(3)]
            killed = Killed(target, after, is_processed=is_processed)
            await killed.run(claim)
            # The caller recorded the host, and claims the same one first.
            pending = [ref for ref in refs if not target.name(ref).startswith(POOL)]
            for ref in pending:
                provider = target.provider()
                assert await provider.claim(await provider.host(ref), "m1")
            claimed = pending[0] if pending else await claim(target.provider())

            names = {ref: target.name(ref) for ref in refs}

            assert [ref for ref in refs if names[ref] == "m1"] == [claimed]
            assert sum(name.startswith(POOL) for name in names.values()) == 2
            ends.append(killed.was_killed)
    assert ends == [True] * 6 + [False] * 2


@pytest.mark.parametrize("is_processed", [False, True])
async def test_interrupted_release_ends_with_a_wiped_host(is_processed: bool) -> None:
    ends = []
    for after in range(MOST_REQUESTS):
        async with targets.connected("scaleway-in-place") as target:
            ref = await target.add("m1")

            async def release(provider: ScalewayProvider, ref: HostRef = ref) -> object:
                return await provider.release(ref, "m1", pool_prefix=POOL, os=OS)

            killed = Killed(target, after, is_processed=is_processed)
            await killed.run(release)
            assert await release(target.provider())

            host = await target.provider().host(ref)
            assert (host.name, host.state) == (f"{POOL}{ref.id}", HostState.REINSTALLING)
            ends.append(killed.was_killed)
    assert ends == [True] * 4 + [False] * 4
