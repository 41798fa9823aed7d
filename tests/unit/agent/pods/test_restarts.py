"""Restarted agents, rebooted hosts, API outages: VMs are adopted, and a used disk never boots again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from bramley.agent import vm_names
from bramley.agent.ledger import VmState
from bramley.api.core import Namespace
from bramley.api.meta import ObjectMeta
from bramley.api.names import agent, events, finalizers
from bramley.api.pod import Pod
from bramley.base import errors
from bramley.kube.transport import Request, Response, Transport
from bramley.sim.mac.processes import Call
from tests.unit.agent.pods.world import IMAGE, NAMESPACE, NODE, World, a_pod, a_world


async def test_restarted_agent_adopts_the_vm_and_changes_nothing(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        await world.pod()
        before = await world.until_phase("Running")
        await asyncio.sleep(5)
        await world.kill()
        world.start()
        await asyncio.sleep(120)
        after = await world.get_pod()

        assert world.boots == 1
        assert after.metadata.resource_version == before.metadata.resource_version
        assert world.agent.value("tart_kubelet_vm_boot_duration_seconds_count", pool="unknown") == 0


async def test_exit_without_an_agent_is_reported_by_the_next(tmp_path: Path) -> None:
    async with a_world(tmp_path, code=7) as world:
        await world.pod()
        await world.until_phase("Running")
        await world.kill()
        await asyncio.sleep(300)
        assert not world.running()
        world.start()
        ended = await world.until_phase("Failed", within=10)
        await world.until(world.nothing_left)

    terminated = ended.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert terminated.exit_code == 7
    assert terminated.finished_at is not None
    assert terminated.started_at is not None
    assert (terminated.finished_at - terminated.started_at).total_seconds() < 200
    assert world.boots == 1


async def test_reboot_of_the_host_fails_its_pods_with_a_reason(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        await world.pod("one")
        await world.pod("two")
        for name in ("one", "two"):
            await world.until_phase("Running", name=name)
        world.agent.side.kill()
        world.mac.reboot()
        await world.kill()
        world.start()
        failed = [await world.until_phase("Failed", name=name) for name in ("one", "two")]
        await world.until(world.nothing_left)

    assert {pod.status.reason for pod in failed} == {agent.HOST_REBOOTED}
    assert world.boots == 2


async def test_report_from_before_a_reboot_counts(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=5.0, code=4, halt=1000.0) as world:
        await world.pod()
        await world.until_phase("Running")
        await asyncio.sleep(60)
        world.agent.side.kill()
        world.mac.reboot()
        await world.kill()
        world.start()
        failed = await world.until_phase("Failed")

    terminated = failed.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert terminated.exit_code == 4


async def test_clone_that_never_ran_starts_after_a_reboot(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.session.end()
        world.mac.session.logs_in = False
        await world.pod()
        await world.until(lambda: VmState.CLONED in states(world))
        world.agent.side.kill()
        world.mac.session.logs_in = True
        world.mac.reboot()
        await world.kill()
        world.start()
        await world.until_phase("Running", within=60)

    assert world.boots == 1


def states(world: World) -> set[VmState]:
    return {record.state for record in world.deps.ledger.vms().values()}


async def clone_manually(world: World, vm: str) -> None:
    """Create a VM as an agent without a ledger did."""
    for argv in (("tart", "pull", IMAGE), ("tart", "clone", IMAGE, vm)):
        process = world.mac.start(call(argv), parent=1)
        assert await process.exit_code == 0


def call(argv: tuple[str, ...]) -> Call:
    def ignore(_line: str) -> None:
        return

    return Call(argv, ignore, ignore, {})


def held(name: str = "runner", namespace: str = NAMESPACE) -> Pod:
    metadata = ObjectMeta(name=name, namespace=namespace, finalizers=[finalizers.VM_CLEANUP])
    return Pod(metadata=metadata, spec=a_pod().spec)


async def test_running_vm_of_an_older_agent_is_adopted(tmp_path: Path) -> None:
    async with a_world(tmp_path, starts=False, work=100.0, code=5) as world:
        vm = vm_names.legacy_of_pod(NAMESPACE, "runner")
        await world.kube.create(held())
        await clone_manually(world, vm)
        world.mac.start(call(("tart", "run", vm, "--no-graphics")), parent=1)
        await asyncio.sleep(20)
        world.start()
        running = await world.until_phase("Running")
        names = list(world.deps.ledger.vms())
        ended = await world.until_phase("Failed", "Succeeded")
        await world.until(world.nothing_left)
        reasons = await world.events()

    assert names == [vm]
    assert running.status.container_statuses[0].ready
    # The old agent shared no folder with this guest, so its exit code is unknown.
    assert ended.status.phase == "Failed"
    assert world.boots == 1
    assert events.ADOPTED_VM in reasons


async def test_stopped_vm_of_an_older_agent_never_boots_again(tmp_path: Path) -> None:
    async with a_world(tmp_path, starts=False) as world:
        await world.kube.create(held())
        await clone_manually(world, vm_names.legacy_of_pod(NAMESPACE, "runner"))
        world.start()
        await world.until_phase("Failed")
        await world.until(world.nothing_left)

    assert world.boots == 0


async def test_ambiguous_vm_of_an_older_agent_is_left_alone(tmp_path: Path) -> None:
    """Old names join namespace and Pod by a dash: `a-b/c` and `a/b-c` have the same VM name."""
    async with a_world(tmp_path, starts=False, work=1000.0) as world:
        for namespace in ("a", "a-b"):
            await world.kube.create(Namespace(metadata=ObjectMeta(name=namespace)))
        await world.kube.create(held("b-c", "a"))
        await world.kube.create(held("c", "a-b"))
        await clone_manually(world, "a-b-c")
        world.start()
        await world.until(lambda: len(world.running()) == 2)
        vms = world.vms()

    assert "a-b-c" in vms
    assert len(vms) == 3


async def test_vm_of_a_lost_record_is_never_booted(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        await world.pod()
        await world.until_phase("Running")
        await world.kill()
        (record,) = (world.mac.folders.ledger / "vms").glob("*.json")
        record.write_text("{broken")
        world.start()
        await asyncio.sleep(60)
        still = await world.phase()
        adopted = [each.is_adopted for each in world.deps.ledger.vms().values()]
        await world.delete()
        await world.until_gone()
        await world.until(world.nothing_left)

    assert still == "Running"
    assert adopted == [True]
    assert world.boots == 1


async def test_api_outage_of_an_hour_loses_no_vm_and_no_exit_code(tmp_path: Path) -> None:
    async with a_world(tmp_path, code=9) as world:
        await world.pod()
        await world.until_phase("Running")
        world.is_disconnected = True
        await asyncio.sleep(3600)
        kept = list(world.vms())
        world.is_disconnected = False
        ended = await world.until_phase("Failed", within=120)
        await world.until(world.nothing_left)

    # The VM ended long ago, and nothing of it was deleted before the server had its status.
    assert len(kept) == 1
    terminated = ended.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert terminated.exit_code == 9
    assert world.boots == 1


class StaleTransport:
    """A transport with an old list of Pods and no watch, as from a stale server."""

    def __init__(self, inner: Transport, listed: Response) -> None:
        self._inner = inner
        self._listed = listed
        self.close = inner.close

    async def send(self, request: Request) -> Response:
        if request.method == "GET" and request.path == "/api/v1/pods":
            return self._listed
        return await self._inner.send(request)

    def stream(self, _request: Request) -> NoReturn:
        raise errors.ApiUnavailable("no watch today")


async def the_list(world: World) -> Response:
    query = {"fieldSelector": f"spec.nodeName={NODE}", "limit": "500"}
    transport: Transport = world.transport()
    return await transport.send(Request("GET", "/api/v1/pods", query=query))


async def test_finished_pod_of_a_stale_list_is_not_booted_again(tmp_path: Path) -> None:
    """Its record and its VM are gone, its finalizer is still there in the old list."""
    async with a_world(tmp_path, work=5.0) as world:
        transport = world.transport
        await world.pod()
        await world.until(lambda: world.boots == 1)
        old = await the_list(world)
        await world.until_phase("Succeeded")
        await world.until(world.nothing_left)
        await world.kill()
        world.transport = lambda: StaleTransport(transport(), old)
        world.start()
        await asyncio.sleep(120)

        assert world.boots == 1
        assert world.nothing_left()
        assert await world.phase() == "Succeeded"


async def test_empty_list_deletes_no_vm(tmp_path: Path) -> None:
    """A server that lists nothing while the Pod exists is wrong."""
    async with a_world(tmp_path, work=10_000.0) as world:
        transport = world.transport
        empty = await the_list(world)
        await world.pod()
        await world.until_phase("Running")
        await world.kill()
        world.transport = lambda: StaleTransport(transport(), empty)
        world.start()
        await asyncio.sleep(600)

        assert len(world.running()) == 1


async def test_clone_that_a_killed_agent_left_running_is_deleted(world: World) -> None:
    await world.pod("first")
    await world.until_phase("Succeeded", name="first")
    await world.until(world.nothing_left)
    world.mac.settings.timings(clone=30.0)
    await world.pod()
    await world.until(lambda: clones(world))
    await world.kill()
    world.start()
    await world.delete()
    await world.until_gone(within=10)
    await asyncio.sleep(60)
    await world.until(world.nothing_left, within=600)

    assert not clones(world)
    assert world.boots == 1


async def test_late_clone_is_deleted_without_pod_and_record(world: World) -> None:
    await world.pod("first")
    await world.until_phase("Succeeded", name="first")
    await world.until(world.nothing_left)
    world.mac.settings.timings(clone=30.0)
    await world.pod()
    await world.until(lambda: clones(world))
    await world.kill()
    (record,) = (world.mac.folders.ledger / "vms").glob("*.json")
    record.write_text("{broken")
    await world.free()
    await world.delete(grace=timedelta())
    world.start()
    await asyncio.sleep(60)
    assert not clones(world)
    await world.until(world.nothing_left, within=600)
    assert not world.vms()
    await world.until(lambda: not world.deps.ledger.unreadable(), within=600)


def clones(world: World) -> list[tuple[str, ...]]:
    return [each.argv for each in world.mac.table.living() if "clone" in each.argv[:2]]


async def test_vm_of_an_unreadable_record_without_a_pod_is_deleted(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        await world.pod()
        await world.until_phase("Running")
        await world.kill()
        (record,) = (world.mac.folders.ledger / "vms").glob("*.json")
        record.write_text("{broken")
        await world.free()
        await world.delete(grace=timedelta())
        world.start()
        await world.until(world.nothing_left, within=120)
        # Kept for as long as a clone might have been running.
        await world.until(lambda: not world.deps.ledger.unreadable(), within=600)
