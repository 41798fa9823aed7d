"""The lifecycle of a Pod on a simulated Mac, from its creation until nothing of it is left."""

from __future__ import annotations

from pathlib import Path

from bramley.api.names import finalizers
from tests.unit.agent.pods.world import a_world


async def test_pod_runs_as_a_vm_and_ends_with_its_guests_exit_code(tmp_path: Path) -> None:
    async with a_world(tmp_path, code=3) as world:
        await world.pod()
        running = await world.until_phase("Running")
        ended = await world.until_phase("Failed")
        await world.until(world.nothing_left)

    assert running.status.pod_ip.startswith("192.168.64.")
    assert running.status.container_statuses[0].ready
    terminated = ended.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert terminated.exit_code == 3


async def test_ended_pod_loses_its_finalizer(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.pod()
        running = await world.until_phase("Running")
        await world.until_phase("Succeeded")
        await world.until(world.nothing_left)
        ended = await world.get_pod()

    assert finalizers.VM_CLEANUP in running.metadata.finalizers
    assert finalizers.VM_CLEANUP not in ended.metadata.finalizers
