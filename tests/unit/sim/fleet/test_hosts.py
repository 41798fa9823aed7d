from __future__ import annotations

import asyncio

from bramley.api import conditions
from bramley.api.core import Node
from bramley.api.names import agent, events, finalizers, labels
from bramley.sim.fleet.hosts import FleetSettings
from bramley.sim.fleet.images import ImageModel
from tests.unit.sim.fleet.fleets import (
    NAMESPACE,
    NEW,
    OLD,
    Fleet,
    a_fleet,
    has_phase,
    is_ready,
    waiting_reason,
)


async def test_pod_runs_on_a_modelled_host_and_becomes_ready() -> None:
    async with a_fleet() as fleet:
        await fleet.create_pod("runner")

        seconds = await fleet.seconds_until("runner", is_ready)

        pod = await fleet.pod("runner")
        assert 10 <= seconds <= 12
        assert pod.status.phase == "Running"
        assert pod.status.pod_ip
        assert pod.spec.node_name.startswith("mac-")
        assert pod.metadata.finalizers == [finalizers.VM_CLEANUP]
        assert pod.status.container_statuses[0].state.running is not None
        assert conditions.is_true(pod.status.conditions, "PodScheduled")


async def test_nodes_have_the_labels_and_the_taint_of_real_agents() -> None:
    async with a_fleet(FleetSettings(hosts=1, on_disk=(OLD,))) as fleet:
        node = await fleet.kube.get(Node, "mac-1")

        expected = {
            labels.OS: "darwin",
            labels.ARCH: "arm64",
            labels.HOSTNAME: "mac-1",
            labels.RUNTIME: "tart",
            labels.FLEET: "demo",
            labels.golden(OLD): "true",
        }
        assert expected.items() <= node.metadata.labels.items()
        assert [taint.key for taint in node.spec.taints] == [labels.MACOS_TAINT]
        assert node.status.allocatable["pods"] == "1"


async def test_nodes_stay_ready_without_heartbeats() -> None:
    async with a_fleet() as fleet:
        await asyncio.sleep(3_600)

        nodes = (await fleet.kube.list(Node)).items
        assert all(conditions.is_true(node.status.conditions, "Ready") for node in nodes)


async def test_cold_pulls_share_the_uplink() -> None:
    settings = FleetSettings(hosts=4, uplink_bytes_per_second=10, on_disk=(OLD,))
    async with a_fleet(settings) as fleet:
        for number in range(4):
            await fleet.create_pod(f"runner-{number}", NEW)
        await asyncio.sleep(5)
        assert waiting_reason(await fleet.pod("runner-0")) == events.PULLING_IMAGE

        seconds = await fleet.seconds_until("runner-3", is_ready)

        assert 4 * 1000 / 10 <= seconds + 5 <= 4 * 1000 / 10 + 15


async def test_pull_is_limited_by_the_rate_of_the_host() -> None:
    settings = FleetSettings(hosts=2, uplink_bytes_per_second=1000, host_bytes_per_second=10)
    async with a_fleet(settings) as fleet:
        await fleet.create_pod("runner", NEW)

        assert 100 <= await fleet.seconds_until("runner", is_ready) <= 115


async def test_pod_of_a_missing_image_waits_with_the_reason() -> None:
    async with a_fleet(FleetSettings(hosts=1)) as fleet:
        await fleet.create_pod("runner", "ghcr.io/example/absent:1")
        await asyncio.sleep(60)

        pod = await fleet.pod("runner")
        assert pod.status.phase == "Pending"
        assert pod.status.reason == waiting_reason(pod) == events.CREATE_FAILED


async def test_cold_pull_evicts_an_unused_image() -> None:
    async with a_fleet(FleetSettings(hosts=1, disk_bytes=1500, on_disk=(OLD,))) as fleet:
        await fleet.create_pod("runner", NEW)

        await fleet.seconds_until("runner", is_ready)

        assert not await fleet.has_golden("mac-1", OLD)
        assert await fleet.has_golden("mac-1", NEW)


async def test_cold_pull_fails_where_a_vm_uses_the_space() -> None:
    settings = FleetSettings(hosts=1, pods=2, cpu="16", memory="32Gi", disk_bytes=1500)
    async with a_fleet(settings) as fleet:
        await fleet.create_pod("first", OLD)
        await fleet.seconds_until("first", is_ready)
        await fleet.create_pod("second", NEW)
        await asyncio.sleep(10)
        assert waiting_reason(await fleet.pod("second")) == events.CREATE_FAILED

        await fleet.delete_pod("first")

        assert await fleet.seconds_until("second", is_ready) < 60


async def test_deleted_pod_reports_its_exit_and_disappears() -> None:
    async with a_fleet() as fleet:
        await fleet.create_pod("runner")
        await fleet.seconds_until("runner", is_ready)
        seen = asyncio.create_task(_terminal_state(fleet, "runner"))

        await fleet.delete_pod("runner")
        await asyncio.sleep(1)
        assert not await fleet.is_gone("runner")
        await asyncio.sleep(10)

        assert await seen == ("Failed", 143, agent.STOPPED)
        assert await fleet.is_gone("runner")


async def _terminal_state(fleet: Fleet, name: str) -> tuple[str, int, str]:
    from bramley.api.pod import Pod

    async with fleet.kube.watch(Pod, namespace=NAMESPACE) as watch:
        async for event in watch:
            pod = event.object
            states = [each.state.terminated for each in pod.status.container_statuses]
            if pod.name == name and states and states[0] is not None:
                return pod.status.phase, states[0].exit_code, states[0].reason
    raise AssertionError


async def test_pod_deleted_during_its_pull_disappears_and_ends_the_pull() -> None:
    async with a_fleet(FleetSettings(hosts=1, uplink_bytes_per_second=1)) as fleet:
        await fleet.create_pod("runner", NEW)
        await asyncio.sleep(5)

        await fleet.delete_pod("runner")
        await asyncio.sleep(2)

        assert await fleet.is_gone("runner")
        await asyncio.sleep(2000)
        assert not await fleet.has_golden("mac-1", NEW)


async def test_guest_that_exits_fails_its_pod_and_frees_the_host() -> None:
    images = {OLD: ImageModel(size_bytes=0, exits_after=3), NEW: ImageModel(size_bytes=0)}
    async with a_fleet(FleetSettings(hosts=1), images) as fleet:
        await fleet.create_pod("broken", OLD)
        await fleet.seconds_until("broken", has_phase("Failed"))
        await asyncio.sleep(1)
        assert (await fleet.pod("broken")).metadata.finalizers == []

        await fleet.create_pod("next", NEW)

        assert await fleet.seconds_until("next", is_ready) < 15
        await fleet.delete_pod("broken")
        assert await fleet.is_gone("broken")


async def test_guest_without_an_address_is_never_ready() -> None:
    async with a_fleet(FleetSettings(hosts=1), {OLD: ImageModel(is_ready=False)}) as fleet:
        await fleet.create_pod("runner")
        await asyncio.sleep(200)
        assert waiting_reason(await fleet.pod("runner")) == agent.BOOTING
        await asyncio.sleep(1000)

        assert not is_ready(await fleet.pod("runner"))


async def test_killed_host_stops_reporting() -> None:
    async with a_fleet(FleetSettings(hosts=1, on_disk=(OLD,))) as fleet:
        await fleet.create_pod("runner")
        await fleet.seconds_until("runner", is_ready)

        await fleet.hosts.kill_host("mac-1")
        await asyncio.sleep(20)

        node = await fleet.kube.get(Node, "mac-1")
        ready = conditions.find(node.status.conditions, "Ready")
        assert ready is not None
        assert ready.status == "Unknown"
        assert not is_ready(await fleet.pod("runner"))
        await fleet.delete_pod("runner")
        await asyncio.sleep(600)
        assert not await fleet.is_gone("runner")

        await fleet.hosts.revive_host("mac-1")
        await asyncio.sleep(60)
        assert await fleet.is_gone("runner")


async def test_pod_of_a_revived_host_has_failed() -> None:
    async with a_fleet(FleetSettings(hosts=1, on_disk=(OLD,))) as fleet:
        await fleet.create_pod("runner")
        await fleet.seconds_until("runner", is_ready)

        await fleet.hosts.kill_host("mac-1")
        await fleet.hosts.revive_host("mac-1")
        await asyncio.sleep(10)

        assert (await fleet.pod("runner")).status.reason == agent.HOST_REBOOTED


async def test_unresponsive_guest_is_not_ready() -> None:
    async with a_fleet() as fleet:
        await fleet.create_pod("runner")
        await fleet.seconds_until("runner", is_ready)

        fleet.hosts.unready("runner")
        await asyncio.sleep(1)
        silent = await fleet.pod("runner")
        fleet.hosts.unready("runner", is_ready=True)
        await asyncio.sleep(1)

        ready = conditions.find(silent.status.conditions, "Ready")
        assert ready is not None
        assert (ready.status, ready.reason) == ("False", events.GUEST_SILENT)
        assert is_ready(await fleet.pod("runner"))


async def test_stalled_pull_hangs_until_it_continues() -> None:
    async with a_fleet(FleetSettings(hosts=1, uplink_bytes_per_second=100)) as fleet:
        fleet.hosts.stall("mac-1")
        await fleet.create_pod("runner", NEW)
        await asyncio.sleep(3600)
        assert waiting_reason(await fleet.pod("runner")) == events.PULLING_IMAGE

        fleet.hosts.stall("mac-1", is_stalled=False)

        assert await fleet.seconds_until("runner", is_ready) < 30
