from __future__ import annotations

import asyncio

from bramley.api.staging import NO_ROOM, State
from bramley.sim.fleet.hosts import FleetSettings
from tests.unit.sim.fleet.fleets import NEW, OLD, a_fleet, is_ready

SLOW = FleetSettings(hosts=2, uplink_bytes_per_second=10, on_disk=(OLD,))


async def test_staged_image_is_reported_and_labelled() -> None:
    async with a_fleet(SLOW) as fleet:
        await fleet.stage("mac-1", NEW, OLD)
        await asyncio.sleep(41)
        assert [each.state for each in (await fleet.report("mac-1")).images] == [
            State.PULLING,
            State.WAITING,
        ]
        assert (await fleet.report("mac-1")).images[0].percent in range(30, 45)
        assert not await fleet.has_golden("mac-1", NEW)

        await asyncio.sleep(80)

        report = await fleet.report("mac-1")
        assert [each.state for each in report.images] == [State.STAGED, State.STAGED]
        assert report.images[0].digest.startswith("sha256:")
        assert await fleet.has_golden("mac-1", NEW)
        assert not await fleet.has_golden("mac-2", NEW)


async def test_staged_image_lets_a_pod_start_without_a_pull() -> None:
    async with a_fleet(SLOW) as fleet:
        await fleet.stage("mac-1", NEW)
        await asyncio.sleep(120)

        await fleet.create_pod("runner", NEW, node="mac-1")

        assert await fleet.seconds_until("runner", is_ready) <= 12


async def test_requests_share_the_uplink_with_each_other() -> None:
    async with a_fleet(SLOW) as fleet:
        await fleet.stage("mac-1", NEW)
        await fleet.stage("mac-2", NEW)
        await asyncio.sleep(195)
        assert not await fleet.has_golden("mac-1", NEW)

        await asyncio.sleep(10)

        assert await fleet.has_golden("mac-1", NEW)
        assert await fleet.has_golden("mac-2", NEW)


async def test_rate_of_the_request_limits_its_pull() -> None:
    settings = FleetSettings(hosts=1, uplink_bytes_per_second=100)
    async with a_fleet(settings) as fleet:
        await fleet.stage("mac-1", NEW, rate=10 / 1e6)
        await asyncio.sleep(95)
        assert not await fleet.has_golden("mac-1", NEW)

        await fleet.stage("mac-1", NEW)
        await asyncio.sleep(3)

        assert await fleet.has_golden("mac-1", NEW)


async def test_image_without_room_is_not_staged() -> None:
    async with a_fleet(FleetSettings(hosts=1, disk_bytes=1500, on_disk=(OLD,))) as fleet:
        await fleet.stage("mac-1", NEW, OLD)
        await asyncio.sleep(30)

        new, old = (await fleet.report("mac-1")).images
        assert new.state is State.FAILED
        assert new.message.startswith(NO_ROOM)
        assert old.state is State.STAGED


async def test_full_disk_fails_a_pull_that_is_going_on() -> None:
    async with a_fleet(SLOW) as fleet:
        await fleet.stage("mac-1", NEW)
        await asyncio.sleep(50)

        fleet.hosts.fill_disk("mac-1")
        await asyncio.sleep(200)

        assert (await fleet.report("mac-1")).images[0].message.startswith(NO_ROOM)
        assert not await fleet.has_golden("mac-1", NEW)


async def test_withdrawn_request_ends_its_pull_and_its_report() -> None:
    async with a_fleet(SLOW) as fleet:
        await fleet.stage("mac-1", NEW)
        await asyncio.sleep(50)
        await fleet.stage("mac-1", OLD)
        await asyncio.sleep(200)

        assert [each.image for each in (await fleet.report("mac-1")).images] == [OLD]
        assert not await fleet.has_golden("mac-1", NEW)


async def test_missing_image_is_reported_as_failed() -> None:
    async with a_fleet(SLOW) as fleet:
        await fleet.stage("mac-1", "ghcr.io/example/absent:1")
        await asyncio.sleep(15)

        assert (await fleet.report("mac-1")).images[0].message.startswith("ImageNotFound")


async def test_pod_joins_the_pull_of_its_host_without_its_limit() -> None:
    settings = FleetSettings(hosts=1, uplink_bytes_per_second=100)
    async with a_fleet(settings) as fleet:
        await fleet.stage("mac-1", NEW, rate=1 / 1e6)
        await asyncio.sleep(10)

        await fleet.create_pod("runner", NEW)

        assert await fleet.seconds_until("runner", is_ready) < 25
