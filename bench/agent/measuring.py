"""The measures: how fast the agent starts and reacts, and what it takes while two VMs run and nothing happens."""

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

SETTLING = 15.0


@dataclass(frozen=True, slots=True)
class Life:
    """Seconds of one Pod: from the request that binds it to `tart run`, and from that one's end to the status of it."""

    bound_to_run: float
    exit_to_status: float


@dataclass(frozen=True, slots=True)
class Idle:
    """What is taken while nothing happens."""

    agent_bytes: int
    supervisor_bytes: int
    cpu_percent: float
    agent_cpu_percent: float
    waited_cpu_percent: float


async def live(on: Stage, name: str, image: str) -> Life:
    """Let one Pod live from its creation to its end."""
    asked = time.time()
    pod = await on.create(name, image)
    note = on.run_of(pod) / "tart"

    async def is_noted() -> bool:
        return note.exists()

    async with _ending(on, pod) as ended:
        await on.until(is_noted, what=f"tart run for {name}")
        # Written by the supervisor as the last thing before it turns into tart.
        issued = note.stat().st_mtime
        exited = await _exit_of(note)
        acknowledged = await ended
    await on.remove(name)
    return Life(issued - asked, acknowledged - exited)


async def _exit_of(note: Path) -> float:
    """Return when the tart of a run ended."""
    handle = os.pidfd_open(_pid(note))
    try:
        async with asyncio.timeout(stage.PATIENCE):
            await fd_events.wait_readable(handle)
        return time.time()
    finally:
        os.close(handle)


@asynccontextmanager
async def _ending(on: Stage, pod: Pod) -> AsyncIterator[asyncio.Task[float]]:
    """Give a task that returns when the server has told us of the Pod's end."""
    async with (
        asyncio.timeout(stage.PATIENCE),
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
                if event.type == "MODIFIED" and event.object.status.phase in {status.SUCCEEDED, status.FAILED}:
                    return time.time()
            raise RuntimeError(f"the watch ended before Pod {pod.name}")

        yield group.create_task(end())


async def rest(on: Stage, *, seconds: float) -> Idle:
    """Let two VMs run, and look at what the agent takes meanwhile."""
    names = ("idle-1", "idle-2")
    for name in names:
        await on.create(name, LONG)
    for name in names:
        await on.has(name, stage.is_running)
    await asyncio.sleep(SETTLING)
    before = {each.pid: each for each in usage.family(on.pid)}
    await asyncio.sleep(seconds)
    after = usage.family(on.pid)
    began = [each for each in before.values() if each.pid in {one.pid for one in after}]
    agent, was = next(each for each in after if each.pid == on.pid), before[on.pid]
    supervisors = [each.pid for each in after if each.is_supervisor]
    if len(supervisors) != len(names):
        raise RuntimeError(f"{len(names)} VMs run under {len(supervisors)} supervisors")
    used = usage.cpu_seconds(after) - usage.cpu_seconds(began)
    return Idle(
        agent_bytes=processes.resident_bytes(on.pid),
        supervisor_bytes=sum(processes.resident_bytes(pid) for pid in supervisors),
        cpu_percent=100 * used / seconds,
        agent_cpu_percent=100 * (agent.own_seconds - was.own_seconds) / seconds,
        waited_cpu_percent=100 * (agent.waited_seconds - was.waited_seconds) / seconds,
    )


def _pid(note: Path) -> int:
    return int(note.read_text().split()[0])
