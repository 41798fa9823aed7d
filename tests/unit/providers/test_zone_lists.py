from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import cast

import pytest

from bramley.base import errors
from bramley.providers.provider import Host, HostProvider
from bramley.providers.zone_lists import ZoneLists
from tests import virtual_time
from tests.unit.providers.hosts import a_host

ZONE, OTHER = "fr-par-1", "nl-ams-1"


class Lister:
    """A provider of which only `hosts` is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failures: list[errors.BramleyError] = []

    async def hosts(self, zone: str) -> list[Host]:
        self.calls.append(zone)
        await asyncio.sleep(1)
        if self.failures:
            raise self.failures.pop()
        return [a_host("a")]


def lists(lister: Lister) -> ZoneLists:
    return ZoneLists(
        cast("HostProvider", lister), virtual_time.clock(), interval=timedelta(seconds=30)
    )


async def test_many_callers_share_one_call_per_zone_and_interval() -> None:
    lister = Lister()
    shared = lists(lister)

    for _ in range(3):
        async with asyncio.TaskGroup() as group:
            for zone in (ZONE, OTHER) * 200:
                group.create_task(shared.current(zone))
        await asyncio.sleep(9)

    assert sorted(lister.calls) == [ZONE, OTHER]
    await asyncio.sleep(10)
    assert len((await shared.current(ZONE)).hosts) == 1
    assert lister.calls.count(ZONE) == 2


async def test_list_newer_than_a_write_is_requested_again() -> None:
    lister = Lister()
    shared = lists(lister)
    await shared.current(ZONE)
    written = virtual_time.clock().monotonic()

    found = await shared.current(ZONE, newer_than=written - 0.5)

    assert found.requested_at >= written - 0.5
    assert len(lister.calls) == 2


async def test_failure_is_shared_and_not_repeated_at_once() -> None:
    lister = Lister()
    lister.failures = [errors.ProviderUnavailable("down")]
    shared = lists(lister)

    for _ in range(20):
        with pytest.raises(errors.ProviderUnavailable, match="down"):
            await shared.current(ZONE)

    assert len(lister.calls) == 1
    await shared.current(OTHER)
    await asyncio.sleep(5)
    await shared.current(ZONE)


async def test_requested_wait_is_respected() -> None:
    lister = Lister()
    lister.failures = [errors.RateLimited("slow down", after=timedelta(seconds=60))]
    shared = lists(lister)
    with pytest.raises(errors.RateLimited):
        await shared.current(ZONE)
    await asyncio.sleep(20)

    with pytest.raises(errors.RateLimited) as raised:
        await shared.current(ZONE)

    assert timedelta(seconds=35) < raised.value.after < timedelta(seconds=45)
    assert len(lister.calls) == 1


async def test_cancelled_caller_does_not_fail_the_others() -> None:
    lister = Lister()
    shared = lists(lister)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(shared.current(ZONE))
        second = group.create_task(shared.current(ZONE))
        await asyncio.sleep(0.5)
        first.cancel()

    assert len(second.result().hosts) == 1
