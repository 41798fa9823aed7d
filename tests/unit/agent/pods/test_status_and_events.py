"""What users see of a Pod: its events, its durations and its deadline."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bramley.api.names import agent, events
from tests.unit.agent.pods.world import IMAGE, World, a_world

POOL = {"pool": agent.UNKNOWN_POOL}


async def test_lifecycle_of_a_pod_is_recorded_in_events(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=5.0) as world:
        await world.pod()
        await world.until_phase("Succeeded")
        await asyncio.sleep(5)
        reasons = await world.events()

    assert sorted(reasons) == sorted(
        [
            events.CREATING_VM,
            events.PULLING_IMAGE,
            events.CLONED_VM,
            events.STARTED_VM,
            events.RUN_EXITED,
        ]
    )


async def test_agents_own_log_follows_a_pod_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with a_world(tmp_path, work=5.0) as world:
        await world.pod()
        await world.until_phase("Succeeded")

    reasons = [getattr(record, "fields", {}).get("reason") for record in caplog.records]
    assert events.STARTED_VM in reasons


async def test_pull_records_its_progress(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=5.0) as world:
        world.mac.settings.image(IMAGE, size_bytes=100_000_000_000)
        await world.pod()
        await world.until_phase("Running", within=3600)
        messages = await world.event_messages(events.PULLING_IMAGE)

    assert any("%" in message for message in messages)
    assert 3 <= len(messages) <= 12


async def test_pod_of_another_restart_policy_runs_once_with_an_event(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=5.0) as world:
        await world.pod(restart_policy="Always")
        await world.until_phase("Succeeded")
        await asyncio.sleep(60)
        messages = await world.event_messages(events.RUNS_ONCE)

    assert any("Always" in message for message in messages)
    assert world.boots == 1


def seconds(world: World, metric: str, **labels: str) -> tuple[float, float]:
    agent = world.agent
    return (
        agent.value(f"tart_kubelet_{metric}_seconds_count", **POOL, **labels),
        agent.value(f"tart_kubelet_{metric}_seconds_sum", **POOL, **labels),
    )


async def test_delay_is_from_creation_to_provisioning_without_the_pull(tmp_path: Path) -> None:
    async with a_world(tmp_path, starts=False, work=5.0) as world:
        world.mac.settings.image(IMAGE, size_bytes=50_000_000_000)
        await world.pod()
        await asyncio.sleep(100)
        world.start()
        await world.until_phase("Succeeded", within=3600)
        delay = seconds(world, "pod_provision_delay")
        work = seconds(world, "vm_provision_work", path="cold")
        boot = seconds(world, "vm_boot_duration")

    assert delay[0] == 1
    assert 100 <= delay[1] < 102
    assert work[0] == 1
    assert work[1] > 100
    assert boot[0] == 1
    assert 8 <= boot[1] < 15


async def test_present_golden_base_creates_a_vm_in_a_second(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=5.0) as world:
        await world.pod("first")
        await world.until_phase("Succeeded", name="first")
        await world.pod("second")
        await world.until_phase("Succeeded", name="second")
        work = seconds(world, "vm_provision_work", path="warm")

    assert work[0] == 1
    assert work[1] < 1


async def test_retries_count_as_one_provisioning(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=5.0) as world:
        world.mac.faults.add("tart run", "no_session", times=2)
        await world.pod()
        await world.until_phase("Succeeded")
        delay = seconds(world, "pod_provision_delay")
        messages = await world.event_messages(events.CREATING_VM)

    assert delay[0] == 1
    assert len(messages) == 1


async def test_exit_is_published_at_once(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=50.0) as world:
        await world.pod()
        await world.until_phase("Running")
        loop = asyncio.get_running_loop()
        while world.mac.tart.guests:
            await asyncio.sleep(0.01)
        ended = loop.time()
        while await world.phase() != "Succeeded":
            await asyncio.sleep(0.01)

        assert loop.time() - ended < 0.1


async def test_vm_beyond_the_active_deadline_is_stopped_and_failed(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=1000.0) as world:
        await world.pod(active_deadline_seconds=120, termination_grace_period_seconds=10)
        await world.until_phase("Running")
        failed = await world.until_phase("Failed", within=180)
        await world.until(world.nothing_left)

    assert failed.status.reason == agent.DEADLINE_EXCEEDED


async def test_pod_beyond_its_deadline_before_it_has_a_vm_fails(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.mac.faults.add("tart pull", "hang")
        await world.pod(active_deadline_seconds=30)
        failed = await world.until_phase("Failed", within=120)
        await world.until(world.nothing_left)

    assert failed.status.reason == agent.DEADLINE_EXCEEDED
    assert world.boots == 0


async def test_job_that_ended_before_the_deadline_keeps_its_exit_code(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=5.0, code=2) as world:
        await world.pod(active_deadline_seconds=300)
        await world.until_phase("Running")
        await world.kill()
        await asyncio.sleep(600)
        world.start()
        failed = await world.until_phase("Failed", within=10)

    terminated = failed.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert (terminated.exit_code, failed.status.reason) == (2, agent.RUN_EXITED)


async def test_status_of_a_running_pod_is_written_once(tmp_path: Path) -> None:
    async with a_world(tmp_path, work=10_000.0) as world:
        await world.pod()
        await world.until_phase("Running")
        await asyncio.sleep(30)
        before = (await world.get_pod()).metadata.resource_version
        await asyncio.sleep(3600)

        assert (await world.get_pod()).metadata.resource_version == before
