"""Status and heartbeats of the Node while its Mac has faults; the whole agent on a simulated Mac."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from bramley.agent.gc.plan import MIN_AGE
from bramley.agent.host import HostProcess
from bramley.api import conditions
from bramley.api.coordination import Lease
from bramley.api.core import Event, Node
from bramley.api.meta import moment
from bramley.api.names import labels
from bramley.base import errors
from bramley.kube.transport import Request
from bramley.sim.mac.settings_file import Fault
from tests.scenarios.agent_life.world import IMAGE, NODE, TAGGED, World, a_world, is_ready

SOON = timedelta(minutes=3)
OTHER = "ghcr.io/example/other:1"


async def node(world: World) -> Node:
    return await world.kube.get(Node, NODE)


async def condition(world: World, kind: str) -> tuple[str, str]:
    found = conditions.find((await node(world)).status.conditions, kind)
    return (found.status, found.reason) if found else ("", "")


async def renewed(world: World) -> datetime:
    lease = await world.kube.get(Lease, NODE, namespace="kube-node-lease")
    assert lease.spec.renew_time
    return moment(lease.spec.renew_time)


def has_condition(
    world: World, kind: str, status: str, reason: str = ""
) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        observed = await condition(world, kind)
        return observed[0] == status and reason in {"", observed[1]}

    return check


def has_phase(world: World, expected: str, name: str = "job") -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        pod = await world.find(name)
        return pod is not None and pod.status.phase == expected

    return check


async def until(world: World, predicate: Callable[[], Awaitable[bool]], what: str) -> None:
    await world.until(predicate, within=SOON, what=what)


async def started(world: World) -> None:
    world.start()
    await until(world, lambda: is_ready(world.kube), "Ready")


async def test_hung_tart_makes_the_node_unready_and_heartbeats_continue(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await started(world)
        world.mac.faults._others.append(Fault("tart", "hang"))
        worst = timedelta()
        for _ in range(300):
            await asyncio.sleep(1)
            ready = conditions.find((await node(world)).status.conditions, "Ready")
            assert ready
            assert ready.last_heartbeat_time
            worst = max(worst, world.clock.now() - await renewed(world))
            assert world.clock.now() - ready.last_heartbeat_time < timedelta(seconds=35)

        assert worst < timedelta(seconds=15)
        assert await condition(world, "Ready") == ("False", "TartNotAnswering")

        world.mac.faults.clear()
        await until(world, has_condition(world, "Ready", "True"), "Ready again")


async def test_lost_session_is_reported_and_not_restarted_while_a_vm_runs(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.settings.image(TAGGED, guest={"work": 400.0})
        await started(world)
        await world.pod("job", image=IMAGE)
        await until(world, has_phase(world, "Running"), "Running")

        world.mac.session.end()
        await until(world, has_condition(world, "Ready", "False", "NoGuiSession"), "reported")
        await asyncio.sleep(120)

        assert world.mac.session.loginwindow_commands == []
        assert await has_phase(world, "Running")()
        await world.until(
            has_condition(world, "Ready", "True"),
            within=timedelta(minutes=10),
            what="Ready once the VM is over",
        )
        assert len(world.mac.session.loginwindow_commands) == 1
        assert (
            "kickstart -k system/com.apple.loginwindow" in world.mac.session.loginwindow_commands[0]
        )


async def test_deleted_node_is_registered_at_once_and_its_vm_keeps_running(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.settings.image(TAGGED, guest={"work": 100.0})
        await started(world)
        await world.pod("job", image=IMAGE)
        await until(world, has_phase(world, "Running"), "Running")
        old, guests = await node(world), set(world.mac.tart.guests)

        await world.kube.delete(Node, NODE)

        async def is_back() -> bool:
            try:
                return (await node(world)).uid != old.uid
            except errors.NotFound:
                return False

        await world.until(is_back, within=timedelta(seconds=1), what="registered again")
        assert set(world.mac.tart.guests) == guests
        await until(world, has_phase(world, "Succeeded"), "the Pod ends as if nothing had been")


async def test_images_on_disk_are_published_as_labels_and_images(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.settings.image(TAGGED, guest={"work": 100.0})
        await started(world)
        await world.pod("job", image=IMAGE)
        await until(world, has_phase(world, "Running"), "Running")
        await asyncio.sleep(11)

        now = await node(world)

    assert now.metadata.labels[labels.golden(IMAGE)] == "true"
    assert IMAGE in [name for image in now.status.images for name in image.names or []]


async def test_unknown_vm_takes_a_slot_and_is_reported(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await started(world)
        assert world.side is not None
        known = world.side.host.guest_processes
        stranger = HostProcess(4711, ("tart", "run", "unknown-vm"))
        world.side.host.guest_processes = lambda: [*known(), stranger]  # type: ignore[method-assign]

        await until(world, has_condition(world, "SlotLeaked", "True"), "reported")

        now = await node(world)
        assert (now.status.capacity["pods"], now.status.allocatable["pods"]) == ("2", "1")
        world.side.host.guest_processes = known  # type: ignore[method-assign]
        await until(world, has_condition(world, "SlotLeaked", "False"), "taken back")


@pytest.mark.parametrize("collects", [True, False])
async def test_full_disk_is_freed_only_with_a_collector(tmp_path: Path, *, collects: bool) -> None:
    async with a_world(tmp_path, collects=collects) as world:
        world.mac.settings.image(OTHER, size_bytes=2_000_000_000)
        await started(world)
        await world.pod("first", image=IMAGE)
        await until(world, has_phase(world, "Succeeded", "first"), "first is over")
        await world.delete("first")
        golden = (
            world.agent.components.images.present()[0].golden
            if world.agent and world.agent.components
            else ""
        )
        assert golden
        # An image that was used recently is kept in any case.
        await asyncio.sleep(2 * MIN_AGE.total_seconds())
        world.mac.faults.add("tart pull", "no_space", times=1)

        await world.pod("second", image=OTHER)
        await world.until(
            has_phase(world, "Succeeded", "second"), within=timedelta(minutes=20), what="second"
        )

        is_there = (world.mac.folders.tart_home / "vms" / golden).exists()
        assert is_there is not collects


async def test_stopped_agent_keeps_its_vms_running_and_writes_its_events(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.settings.image(TAGGED, guest={"work": 400.0})
        await started(world)
        await world.pod("job", image=IMAGE)
        await until(world, has_phase(world, "Running"), "Running")
        assert world.agent
        assert world.task
        began = world.clock.monotonic()

        world.agent.stop()
        await asyncio.wait((world.task,))

        assert world.clock.monotonic() - began < 10
        assert len(world.mac.tart.guests) == 1
        reasons = {event.reason for event in (await world.kube.list(Event)).items}
        assert {"CreatingVM", "StartedVM"} <= reasons


async def test_wide_table_of_nodes_shows_the_system_and_the_version_of_tart(
    tmp_path: Path,
) -> None:
    """The cells of `kubectl get nodes -o wide`."""
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    async with a_world(tmp_path) as world:
        await started(world)
        request = Request("GET", f"/api/v1/nodes/{NODE}", accept=table)
        response = msgspec.json.decode((await world.transport().send(request)).body)
        (row,) = response["rows"]
        names = [column["name"] for column in response["columnDefinitions"]]
        cells = dict(zip(names, row["cells"], strict=True))
        info = (await node(world)).status.node_info

    assert cells["OS-Image"] == "macOS 26.3 (25D125)"
    assert cells["Kernel-Version"] == "25.3.0"
    assert cells["Container-Runtime"] == "tart://2.32.1"
    assert info.system_uuid.replace("-", "").lower() == info.machine_id != ""
    assert info.boot_id == "boot-1"
