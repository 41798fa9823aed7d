"""The annotations by which people act on Macs, as their page describes them."""

from __future__ import annotations

import asyncio

from bramley.api.core import ConfigMap, Event
from bramley.api.mac_host import MacHost, MacHostSpec
from bramley.api.meta import ObjectMeta
from bramley.api.names import annotations as marks
from bramley.api.names import conditions as types
from bramley.api.names import events
from bramley.api.names import host as places
from tests.scenarios.machines.fleet_world import NAMESPACE, FleetWorld, a_fleet_world
from tests.scenarios.machines.stories import (
    Managers,
    annotate,
    create_secret,
    start_job,
    until_reason,
    until_updated,
)
from tests.scenarios.machines.test_life import until_ready

JOB_SECONDS = 3600


async def until_removed(world: FleetWorld, name: str, key: str) -> None:
    """Wait until the manager has removed an annotation."""

    async def is_removed() -> bool:
        return key not in (await world.machines())[name].metadata.annotations

    await world.until(is_removed)


async def phase_of(world: FleetWorld, pod: str) -> str:
    return (await world.pods())[pod].status.phase or ""


async def event_texts(world: FleetWorld, reason: str) -> list[str]:
    await asyncio.sleep(30)
    found = (await world.kube.list(Event, namespace=NAMESPACE)).items
    return [each.message or "" for each in found if each.reason == reason]


async def test_released_host_is_wiped_after_its_job_and_the_machine_gets_another_one() -> None:
    async with a_fleet_world(servers=2) as world:
        await Managers(world).start()
        await world.create_machine("a", fleet_name="fleet-a")
        first = (await until_ready(world, "a"))["a"].status.server_id
        password = world.scaleway.servers[first].password
        await start_job(world, "job", "a", seconds=JOB_SECONDS)

        await annotate(world, "a", marks.RELEASE_HOST)
        await asyncio.sleep(JOB_SECONDS / 2)
        assert (await world.machines())["a"].status.server_id == first
        assert await phase_of(world, "job") == "Running"
        await until_removed(world, "a", marks.RELEASE_HOST)
        await until_reason(world, "a", types.READY, "")

        assert (await world.machines())["a"].status.server_id != first
        await asyncio.sleep(JOB_SECONDS)
        assert world.scaleway.servers[first].password != password
        assert world.scaleway.servers[first].name.startswith("tuist-pool-")
        await world.invariants.check_at_rest()


async def test_quarantined_host_is_released_with_its_reason_and_not_adopted_again() -> None:
    async with a_fleet_world(servers=1) as world:
        await Managers(world).start()
        await world.create_machine("a", fleet_name="fleet-a")
        host = (await until_ready(world, "a"))["a"].status.server_id

        await annotate(world, "a", marks.QUARANTINE_HOST, "loud fan")
        await until_reason(world, "a", types.PROVISIONED, events.NO_AVAILABLE_HOST)
        await asyncio.sleep(3600)
        await until_reason(world, "a", types.PROVISIONED, events.NO_AVAILABLE_HOST)

        machine = (await world.machines())["a"]
        assert marks.QUARANTINE_HOST not in machine.metadata.annotations
        entries = await world.kube.get(ConfigMap, "mac-host-failures", namespace=NAMESPACE)
        assert "loud fan" in entries.data[host]
        # As the page on quarantines lifts it.
        patch = {"data": {host: None}}
        await world.kube.merge_patch(ConfigMap, entries.name, patch, namespace=NAMESPACE)
        await until_reason(world, "a", types.READY, "")
        assert (await world.machines())["a"].status.server_id == host


async def test_paused_macs_are_left_as_they_are_and_are_deleted_nevertheless() -> None:
    async with a_fleet_world(servers=1) as world:
        managers = Managers(world)
        await managers.start()
        await world.create_machine("a", fleet_name="fleet-a")
        await create_mac_host(world)
        before = await until_ready(world, "a")
        await until_reason(world, "own", types.READY, "", kind=MacHost)
        own = await world.kube.get(MacHost, "own", namespace=NAMESPACE)
        await annotate(world, "a", marks.PAUSED)
        await annotate(world, "own", marks.PAUSED, kind=MacHost)

        await managers.start(agent=world.artifacts.newer_agent)
        await asyncio.sleep(3 * 3600)
        assert (await world.machines())["a"].status == before["a"].status
        assert (await world.kube.get(MacHost, "own", namespace=NAMESPACE)).status == own.status

        await annotate(world, "a", marks.PAUSED, None)
        await until_updated(world, "a", before=before.values())
        await annotate(world, "a", marks.PAUSED)
        await world.delete_machine("a")
        await world.kube.delete(MacHost, "own", namespace=NAMESPACE)
        await world.until(lambda: are_gone(world))
        await world.invariants.check_at_rest()


async def test_tart_is_replaced_on_request_once_the_host_is_idle() -> None:
    async with a_fleet_world(servers=1) as world:
        managers = Managers(world)
        await managers.start()
        await world.create_machine("a", fleet_name="fleet-a")
        machine = (await until_ready(world, "a"))["a"]
        mac = world.macs.mac(machine.status.server_id)
        program = f"{places.TART_BUNDLE}/{places.TART_IN_BUNDLE}"
        before = mac.files.digest(program)
        await start_job(world, "job", "a", seconds=JOB_SECONDS)
        await managers.start(tart=world.artifacts.newer_tart)
        await asyncio.sleep(JOB_SECONDS / 4)

        await annotate(world, "a", marks.REPLACE_TART)
        await until_reason(world, "a", types.UP_TO_DATE, events.REPLACING_TART)
        assert (await world.nodes())["a"].spec.unschedulable
        assert (await phase_of(world, "job"), mac.files.digest(program)) == ("Running", before)
        await until_removed(world, "a", marks.REPLACE_TART)

        assert await phase_of(world, "job") == "Succeeded"
        assert mac.files.digest(program) != before
        assert await event_texts(world, events.TART_REPLACED)
        assert not (await world.nodes())["a"].spec.unschedulable


async def test_mac_host_whose_mac_is_gone_is_deleted_without_its_cleanup() -> None:
    async with a_fleet_world(servers=0) as world:
        await Managers(world).start()
        await create_mac_host(world)
        await until_reason(world, "own", types.READY, "", kind=MacHost)
        world.connections.faults(world.macs.address("own")).is_silent = True

        await world.kube.delete(MacHost, "own", namespace=NAMESPACE)
        await until_reason(world, "own", types.PROVISIONED, events.CLEANUP_FAILED, kind=MacHost)
        [text] = set(await event_texts(world, events.CLEANUP_FAILED))
        command = "kubectl annotate machost own tuist.dev/skip-cleanup=true"
        assert text.endswith(f"; to delete the MacHost without it: {command}")
        assert "spec.address is" in text

        await annotate(world, "own", marks.SKIP_CLEANUP, kind=MacHost)
        await world.until(lambda: are_gone(world), within=300)
        assert await world.nodes() == {}


async def create_mac_host(world: FleetWorld) -> None:
    made = await world.add_own_mac("own")
    await create_secret(world, "login", sudo_password=made.password)
    spec = MacHostSpec(address=world.macs.address("own"), credentials_secret_name="login")
    metadata = ObjectMeta(name="own", namespace=NAMESPACE)
    await world.kube.create(MacHost(metadata=metadata, spec=spec))


async def are_gone(world: FleetWorld) -> bool:
    return not await world.machines() and not (await world.kube.list(MacHost)).items
