"""Claims against a provider whose renames have no condition and whose reads may be stale."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bramley.base import errors
from bramley.providers.claims import Claims
from bramley.providers.provider import Host, HostRef, HostState
from tests import virtual_time
from tests.unit.providers.hosts import PENDING, a_host

LISTED = a_host("a")


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Renames:
    """One host; a read shows its state of `stale` seconds ago, and `on_rename` acts after each rename."""

    state: Host | None = LISTED
    stale: float = 0
    latency: Callable[[], float] = lambda: 0
    on_rename: Callable[[str], None] = lambda _name: None
    names: list[str] = field(default_factory=list)
    history: list[tuple[float, Host | None]] = field(default_factory=list)

    async def host(self, ref: HostRef) -> Host:
        await asyncio.sleep(self.latency())
        shown = next((old for until, old in self.history if now() < until), self.state)
        if shown is None:
            raise errors.NotFound(str(ref))
        return shown

    async def rename(self, ref: HostRef, name: str) -> None:
        await asyncio.sleep(self.latency())
        if self.state is None:
            raise errors.NotFound(str(ref))
        self.become(replace(self.state, name=name))
        self.names.append(name)
        self.on_rename(name)
        await asyncio.sleep(self.latency())

    def become(self, host: Host | None) -> None:
        self.history.append((now() + self.stale, self.state))
        self.state = host


async def test_claim_renames_twice_and_returns_what_was_read_back() -> None:
    renames = Renames()

    claimed = await Claims(renames).claim(LISTED, "m1", "x")

    assert claimed == replace(LISTED, name="m1")
    assert renames.names == [f"{PENDING}x", "m1"]


async def test_repeated_claim_renames_nothing() -> None:
    renames = Renames(replace(LISTED, name="m1"))

    assert await Claims(renames).claim(LISTED, "m1", "x") == renames.state
    assert renames.names == []


@pytest.mark.parametrize(
    "state",
    [
        replace(LISTED, name="m2"),
        replace(LISTED, name=f"{PENDING}y"),
        replace(LISTED, state=HostState.REINSTALLING),
        replace(LISTED, is_deletion_scheduled=True),
        None,
    ],
)
async def test_changed_host_is_lost_and_untouched(state: Host | None) -> None:
    renames = Renames(state)

    assert await Claims(renames).claim(LISTED, "m1", "x") is None
    assert renames.names == []


@pytest.mark.parametrize("renamed", [f"{PENDING}x", "m1"])
@pytest.mark.parametrize("other", ["m2", f"{PENDING}y", None])
async def test_foreign_name_after_a_rename_is_lost(renamed: str, other: str | None) -> None:
    renames = Renames()

    def interfere(name: str) -> None:
        if name == renamed:
            renames.become(None if other is None else replace(LISTED, name=other))

    renames.on_rename = interfere

    assert await Claims(renames).claim(LISTED, "m1", "x") is None
    assert renames.names[-1] == renamed


async def test_stale_reads_are_repeated() -> None:
    renames = Renames(stale=3)

    claimed = await Claims(renames).claim(LISTED, "m1", "x")

    assert claimed is not None
    assert claimed.name == "m1"
    assert now() >= 6


async def test_rename_that_never_shows_is_unavailable_and_never_a_success() -> None:
    renames = Renames(stale=3600)

    with pytest.raises(errors.ProviderUnavailable, match="not visible"):
        await Claims(renames).claim(LISTED, "m1", "x")


async def test_invalid_name_is_refused_before_any_call() -> None:
    renames = Renames()

    with pytest.raises(errors.InvalidSpec):
        await Claims(renames).claim(LISTED, "../m1", "x")
    assert renames.names == []


async def test_interrupted_claim_is_found_again_by_its_marker() -> None:
    renames = Renames(replace(LISTED, name=f"{PENDING}x"))
    assert renames.state is not None

    claimed = await Claims(renames).claim(renames.state, "m1", "y")

    assert claimed is not None
    assert claimed.name == "m1"


@dataclass
class Slow(Renames):
    """Shows what another one had read `seconds` ago, once."""

    inner: Renames = field(default_factory=Renames)
    seconds: float = 0
    has_read: asyncio.Event = field(default_factory=asyncio.Event)

    async def host(self, ref: HostRef) -> Host:
        seen = await self.inner.host(ref)
        if not self.has_read.is_set():
            self.has_read.set()
            await asyncio.sleep(self.seconds)
        return seen

    async def rename(self, ref: HostRef, name: str) -> None:
        await self.inner.rename(ref, name)


@pytest.mark.parametrize(("seconds", "winners"), [(4, ["m1", "m2"]), (6, ["m1"])])
async def test_rename_is_not_sent_long_after_the_read_that_it_is_based_on(
    seconds: float, winners: list[str]
) -> None:
    """Until then both of two claimers may have read their names, so a host is read again later, before it is used."""
    renames = Renames()
    slow, found = Slow(inner=renames, seconds=seconds), []

    async def claim(provider: Renames, name: str) -> None:
        with suppress(errors.TimedOut):
            if await Claims(provider).claim(LISTED, name, name):
                found.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(claim(slow, "m2"))
        await slow.has_read.wait()
        group.create_task(claim(renames, "m1"))

    assert found == winners
    assert renames.state is not None
    assert renames.state.name == winners[-1]


async def test_rename_that_hangs_ends_in_time() -> None:
    renames = Renames(latency=iter([0.0, 3600.0]).__next__)

    with pytest.raises(errors.TimedOut, match="not renamed within 10 s"):
        await Claims(renames).claim(LISTED, "m1", "x")
    assert now() == 10


class Leases:
    """The rule of callers: a host is claimed only under its Lease, which a winner keeps."""

    def __init__(self) -> None:
        self.holders: dict[HostRef, str] = {}

    def acquire(self, ref: HostRef, name: str) -> bool:
        return self.holders.setdefault(ref, name) == name

    def free(self, ref: HostRef) -> None:
        del self.holders[ref]


async def claim_until_settled(
    renames: Renames, leases: Leases, name: str, rng: random.Random
) -> Host | None:
    """Claim as a caller does: it lists, takes the Lease, claims, and frees the Lease if the host is lost."""
    for attempt in range(12):
        await asyncio.sleep(rng.random() * 4)
        listed = await renames.host(LISTED.ref)
        if listed.name != name and not listed.name.startswith(("tuist-pool-", PENDING)):
            continue
        if not leases.acquire(listed.ref, name):
            continue
        if rng.random() < 0.2:  # Another leader takes over at this point: same Lease, new attempt.
            continue
        waits = tuple(timedelta(seconds=each) for each in (0.5, 1, 2, 3))
        claimed = await Claims(renames, waits).claim(listed, name, f"{name}-{attempt}")
        if claimed is not None:
            return claimed
        leases.free(listed.ref)
    return None


def winners_of(seed: int, stale: float) -> list[Host]:
    """Run three claimers, and check that the winner, if there is one, has the host and its Lease."""
    rng = random.Random(seed)
    renames = Renames(stale=stale, latency=rng.random)
    leases = Leases()

    async def race() -> list[Host | None]:
        async with asyncio.TaskGroup() as group:
            claims = [
                group.create_task(claim_until_settled(renames, leases, f"m{n}", rng))
                for n in range(3)
            ]
        return [each.result() for each in claims]

    winners = [host for host in virtual_time.run(race()) if host is not None]
    if winners:
        assert renames.state == winners[0]
        assert leases.holders[LISTED.ref] == winners[0].name
    return winners


@given(st.integers(0, 2**32), st.sampled_from([0.0, 1.0, 4.0]))
def test_at_most_one_wins_under_leases(seed: int, stale: float) -> None:
    assert len(winners_of(seed, stale)) <= 1


def test_one_wins_usually() -> None:
    assert sum(len(winners_of(seed, 1)) for seed in range(20)) >= 18
