"""Leases of hosts on the embedded API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from bramley.base import errors
from bramley.kube.client import Client
from bramley.machines.host_leases import SETTLED_AFTER, Holder, HostLeases
from bramley.machines.release import fenced_account
from bramley.providers.provider import HostRef
from bramley.runtime.writes import FencedKube, ReadYourWrites
from tests import virtual_time
from tests.scenarios.world import a_world

REF = HostRef("fr-par-1", "a-1")
ONE, TWO = Holder("default", "m1", "u-1"), Holder("default", "m1", "u-2")


@dataclass
class Leader:
    """A process with an epoch; none above it is accepted."""

    kube: Client
    epoch: int
    is_leader: bool = True

    def check(self) -> None:
        if not self.is_leader:
            raise errors.LeaseLost("not the leader")

    async def raise_epoch(self, stored: int) -> None:
        raise errors.LeaseLost(f"epoch {stored} was stored by a later leader")

    @property
    def leases(self) -> HostLeases:
        return HostLeases(
            self.kube,
            FencedKube(self.kube, writes=ReadYourWrites(), check=self.check),
            namespace="default",
            clock=virtual_time.clock(),
            epoch=lambda: self.epoch,
            raise_epoch=self.raise_epoch,
        )


@asynccontextmanager
async def two_leaders() -> AsyncIterator[tuple[Leader, Leader]]:
    async with a_world() as world:
        yield Leader(world.kube, 1), Leader(world.kube, 2)


async def test_lease_has_one_holder() -> None:
    async with two_leaders() as (first, second):
        lease = await first.leases.acquire(REF, ONE)
        assert lease is not None
        assert lease.epoch == 1
        again = await second.leases.acquire(REF, ONE)
        assert again is not None
        assert again.ref == REF
        assert await second.leases.acquire(REF, TWO) is None
        assert [each.holder for each in await second.leases.all()] == [ONE]
        assert await second.leases.of(TWO) == []

        await second.leases.free(again)
        assert await second.leases.acquire(REF, TWO) is not None


@pytest.mark.parametrize("host_id", ["A-1", "a" + "-" * 3 + "B"])
async def test_ids_that_are_no_names_of_objects_are_refused(host_id: str) -> None:
    async with two_leaders() as (first, _):
        with pytest.raises(errors.InvalidSpec):
            await first.leases.acquire(HostRef("fr-par-1", host_id), ONE)


async def test_write_on_an_old_version_is_refused() -> None:
    async with two_leaders() as (first, second):
        old = await first.leases.acquire(REF, ONE)
        assert old is not None
        await second.leases.stamp(old)

        for write in (first.leases.stamp, first.leases.begin_release, first.leases.free):
            with pytest.raises(errors.Conflict):
                await write(old)


async def test_lease_of_a_later_leader_stops_an_earlier_one() -> None:
    async with two_leaders() as (first, second):
        await second.leases.acquire(REF, ONE)
        [lease] = await first.leases.of(ONE)

        for write in (first.leases.stamp, first.leases.begin_release, first.leases.free):
            with pytest.raises(errors.LeaseLost):
                await write(lease)


async def test_release_begins_at_once_for_the_leader_that_claimed_and_later_for_another() -> None:
    async with two_leaders() as (first, second):
        lease = await first.leases.acquire(REF, ONE)
        assert lease is not None
        later = virtual_time.clock().now() + SETTLED_AFTER
        assert not lease.is_settled(virtual_time.clock().now())
        assert (await first.leases.begin_release(lease)).is_settled(later)

        [lease] = await second.leases.of(ONE)
        assert lease.is_releasing
        taken_over = await second.leases.begin_release(lease)
        assert taken_over.epoch == 2
        assert not taken_over.is_settled(virtual_time.clock().now())


def test_request_to_the_provider_is_refused_without_the_leadership() -> None:
    leader = Leader(None, 1)  # type: ignore[arg-type]
    account = fenced_account(lambda: "account", leader.check)

    assert account() == "account"
    leader.is_leader = False
    with pytest.raises(errors.LeaseLost):
        account()
