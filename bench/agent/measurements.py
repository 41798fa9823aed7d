"""Measures the latencies of a Pod, and the agent's memory and CPU while two VMs run idle."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.agent import stage, usage
from bench.agent.stage import LONG, NAMESPACE, Stage
from bramley.agent.platform import fd_events
from bramley.agent.pods import status
from bramley.api.core import Pod
from tools.kube import processes

SETTLE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class PodLatency:
    """Seconds from the creation of a bound Pod to `tart run`, and from the end of that to the terminal status."""

    bound_to_run: float
    exit_to_status: float


@dataclass(frozen=True, slots=True)
class Idle:
    """Memory and CPU while no Pod changes."""

    agent_bytes: int
    supervisor_bytes: int
    cpu_percent: float
    agent_cpu_percent: float
    waited_cpu_percent: float


async def measure_pod(on: Stage, name: str, image: str) -> PodLatency:
    """Run one Pod from its creation to its end."""
    requested = time.time()
    pod = await on.create(name, image)
    record = on.run_folder(pod) / "tart"

    async def is_started() -> bool:
        return record.exists()

    async with _wait_for_end(on, pod) as ended:
        await on.wait_for(is_started, what=f"tart run for {name}")
        # The supervisor writes it just before it executes tart.
        started = record.stat().st_mtime
        exited = await _wait_for_exit(record)
        acknowledged = await ended
    await on.remove(name)
    return PodLatency(started - requested, acknowledged - exited)


async def _wait_for_exit(record: Path) -> float:
    """Return when the tart of a run ended."""
    handle = os.pidfd_open(_pid(record))
    try:
        async with asyncio.timeout(stage.TIMEOUT):
            await fd_events.wait_readable(handle)
        return time.time()
    finally:
        os.close(handle)


@asynccontextmanager
async def _wait_for_end(on: Stage, pod: Pod) -> AsyncIterator[asyncio.Task[float]]:
    """Yield a task that returns when a watch has delivered the Pod's terminal status."""
    async with (
        asyncio.timeout(stage.TIMEOUT),
        on.kube.watch(
            Pod,
            namespace=NAMESPACE,
            fields={"metadata.name": pod.name},
            resource_version=pod.metadata.resource_version,
        ) as watch,
        asyncio.TaskGroup() as group,
    ):

        async def end() -> float:
            async for event in watch:
                if event.type == "MODIFIED" and event.object.status.phase in {
                    status.SUCCEEDED,
                    status.FAILED,
                }:
                    return time.time()
            raise RuntimeError(f"the watch ended before Pod {pod.name}")

        yield group.create_task(end())


async def measure_idle(on: Stage, *, seconds: float) -> Idle:
    """Run two VMs, and measure what the agent uses meanwhile."""
    names = ("idle-1", "idle-2")
    for name in names:
        await on.create(name, LONG)
    for name in names:
        await on.wait_for_pod(name, stage.is_running)
    await asyncio.sleep(SETTLE_SECONDS)
    before = {each.pid: each for each in usage.family(on.pid)}
    await asyncio.sleep(seconds)
    after = usage.family(on.pid)
    still_running = [each for each in before.values() if each.pid in {one.pid for one in after}]
    agent, first = next(each for each in after if each.pid == on.pid), before[on.pid]
    supervisors = [each.pid for each in after if each.is_supervisor]
    if len(supervisors) != len(names):
        raise RuntimeError(f"{len(names)} VMs run under {len(supervisors)} supervisors")
    used = usage.cpu_seconds(after) - usage.cpu_seconds(still_running)
    return Idle(
        agent_bytes=processes.resident_bytes(on.pid),
        supervisor_bytes=sum(processes.resident_bytes(pid) for pid in supervisors),
        cpu_percent=100 * used / seconds,
        agent_cpu_percent=100 * (agent.own_seconds - first.own_seconds) / seconds,
        waited_cpu_percent=100 * (agent.waited_seconds - first.waited_seconds) / seconds,
    )


def _pid(record: Path) -> int:
    return int(record.read_text().split()[0])
