"""How a VM that its guest did not report on ended: only a guest that halts by itself has succeeded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bramley.agent.pods.wait_steps import MONITOR_POLL
from bramley.agent.programs import Programs
from bramley.api.core import Event, Pod
from bramley.api.names import agent
from tests.unit.agent.pods.world import NAMESPACE, World, a_world


def end_of(pod: Pod) -> tuple[str, str, str, int]:
    """Return the phase, the Pod's reason, and the container's reason and exit code."""
    terminated = pod.status.container_statuses[0].state.terminated
    assert terminated is not None
    return pod.status.phase, pod.status.reason, terminated.reason, terminated.exit_code


async def tart(world: World, *arguments: str) -> None:
    """Run tart as an operator of the Mac."""
    programs: Programs = world.mac.start_agent().programs
    home = str(world.mac.folders.tart_home)
    finished = await programs.run(("tart", *arguments), environment={"TART_HOME": home})
    assert finished.code == 0, finished.stderr


async def watch_end(world: World, name: str = "runner") -> Pod:
    """Return the Pod with its final status, which a deleted Pod has only for a moment."""
    last: Pod | None = None
    async with asyncio.timeout(600):
        while (pod := await world.find(name)) is not None:
            last = pod
            if pod.status.phase in {"Succeeded", "Failed"}:
                return pod
            await asyncio.sleep(0.05)
    assert last is not None
    return last


@pytest.mark.parametrize(
    ("then", "end"),
    [
        ("halt", ("Succeeded", agent.RUN_EXITED, agent.RUN_EXITED, 0)),
        ("crash", ("Failed", agent.GUEST_CRASHED, agent.GUEST_CRASHED, 1)),
        ("disconnect", ("Failed", agent.NETWORK_LOST, agent.NETWORK_LOST, 1)),
    ],
)
async def test_guest_that_reports_nothing(tmp_path: Path, then: str, end: tuple[Any, ...]) -> None:
    async with a_world(tmp_path, work=10.0, code=None, then=then) as world:
        await world.pod()
        pod = await world.until_phase("Succeeded", "Failed")

    assert end_of(pod) == end


@pytest.mark.parametrize("then", ["crash", "disconnect"])
async def test_report_of_the_guest_counts_although_it_crashed_afterwards(
    tmp_path: Path, then: str
) -> None:
    async with a_world(tmp_path, work=10.0, code=0, then=then) as world:
        await world.pod()
        pod = await world.until_phase("Succeeded", "Failed")

    assert end_of(pod) == ("Succeeded", agent.RUN_EXITED, agent.COMPLETED, 0)


@pytest.mark.parametrize("command", [("stop",), ("suspend",)])
async def test_vm_that_an_operator_stops_has_failed(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        await world.pod()
        await world.until_phase("Running")
        await tart(world, *command, *world.vms())
        pod = await world.until_phase("Succeeded", "Failed")
        warnings = [
            event
            for event in (await world.kube.list(Event, namespace=NAMESPACE)).items
            if event.reason == agent.STOPPED
        ]

    assert end_of(pod) == ("Failed", agent.STOPPED, agent.STOPPED, 137)
    assert "by others" in pod.status.message
    assert [event.type for event in warnings] == ["Warning"]


@pytest.mark.parametrize("stop", ["works", "hangs", "is ignored"])
async def test_vm_that_the_agent_powers_off_has_code_137(tmp_path: Path, stop: str) -> None:
    async with a_world(tmp_path, work=1000.0, ignores_shutdown=True) as world:
        if stop == "is ignored":
            world.mac.faults.add("tart run", "ignores_stop")
        await world.pod(termination_grace_period_seconds=10)
        await world.until_phase("Running")
        if stop == "hangs":
            world.mac.faults.add("tart stop", "hang")
        await world.delete()
        pod = await watch_end(world)

    assert end_of(pod) == ("Failed", agent.STOPPED, agent.STOPPED, 137)
    assert "the agent powered the VM off" in pod.status.message


async def test_agent_killed_after_the_power_off_reports_the_same(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0, ignores_shutdown=True) as world:
        await world.pod(termination_grace_period_seconds=10)
        await world.until_phase("Running")
        await world.delete()
        await world.until(lambda: any(each.was_powered_off for each in records(world)))
        await world.kill()
        await world.until(lambda: not world.running())
        # Tart's output is lost, too: what the agent did is in the ledger.
        for run in world.mac.supervised.values():
            run.lines.clear()
        world.start()
        pod = await watch_end(world)

    assert end_of(pod) == ("Failed", agent.STOPPED, agent.STOPPED, 137)


def records(world: World) -> list[Any]:
    return list(world.deps.ledger.vms().values())


async def test_guest_that_the_agent_shuts_down_without_a_report_has_code_143(
    tmp_path: Path,
) -> None:
    """Nothing shows that its work was done: the exit must not look like that of a finished job."""
    async with a_world(tmp_path, wait=1000.0) as world:
        await world.pod(termination_grace_period_seconds=40)
        await world.until_phase("Running")
        await asyncio.sleep(60)
        await world.delete()
        pod = await watch_end(world)

    assert end_of(pod) == ("Failed", agent.STOPPED, agent.STOPPED, 143)


async def test_agent_killed_after_the_shutdown_request_reports_the_same(tmp_path: Path) -> None:
    async with a_world(tmp_path, wait=1000.0) as world:
        await world.pod(termination_grace_period_seconds=40)
        await world.until_phase("Running")
        await asyncio.sleep(60)
        await world.delete()
        await world.until(lambda: any(each.was_shut_down for each in records(world)))
        await world.kill()
        await world.until(lambda: not world.running())
        world.start()
        pod = await watch_end(world)

    assert end_of(pod) == ("Failed", agent.STOPPED, agent.STOPPED, 143)


async def test_working_guest_that_is_shut_down_has_the_code_that_it_reports(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        await world.pod(termination_grace_period_seconds=40)
        await world.until_phase("Running")
        await asyncio.sleep(60)
        await world.delete()
        pod = await watch_end(world)

    assert end_of(pod) == ("Failed", agent.RUN_EXITED, agent.ERROR, 143)


async def test_vm_that_is_powered_off_at_its_active_deadline(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0, ignores_shutdown=True) as world:
        await world.pod(active_deadline_seconds=120, termination_grace_period_seconds=10)
        pod = await world.until_phase("Succeeded", "Failed")

    assert end_of(pod) == ("Failed", agent.DEADLINE_EXCEEDED, agent.DEADLINE_EXCEEDED, 137)


async def test_end_without_any_output_is_no_success(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=100.0, code=None) as world:
        await world.pod()
        await world.until_phase("Running")
        await world.kill()
        await world.until(lambda: not world.running())
        for run in world.mac.supervised.values():
            run.lines.clear()
        world.start()
        pod = await world.until_phase("Succeeded", "Failed")

    assert end_of(pod) == ("Failed", agent.RUN_EXITED, agent.RUN_LOST, 1)


async def test_crash_while_no_agent_runs_is_known_to_the_next_agent(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=100.0, code=None, then="crash") as world:
        await world.pod()
        await world.until_phase("Running")
        await world.kill()
        await world.until(lambda: not world.running())
        await asyncio.sleep(MONITOR_POLL.total_seconds())
        world.start()
        pod = await world.until_phase("Succeeded", "Failed")

    assert end_of(pod) == ("Failed", agent.GUEST_CRASHED, agent.GUEST_CRASHED, 1)
