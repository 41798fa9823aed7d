"""A VM keeps running when its agent exits; the next agent adopts it and reports its exit code."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from pathlib import Path

import pytest

from bramley.api.core import Pod
from tests.process.agent_life.lifecycles import code, delete, runs
from tests.process.agent_life.servers import Server
from tests.process.agent_life.stage import CODE, GC_OFF, TIMEOUT_SECONDS, Stage, staged

pytestmark = pytest.mark.side_by_side


async def second_agent(stage: Stage) -> tuple[int | None, str]:
    """Start a second agent of the Mac; return its exit code and output."""
    process = await asyncio.create_subprocess_exec(
        *stage.command(),
        env=stage.mac.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    async with asyncio.timeout(TIMEOUT_SECONDS):
        output, _ = await process.communicate()
    return process.returncode, output.decode()


async def ended(stage: Stage, name: str) -> Pod:
    """Wait until a Pod has ended."""
    return await stage.has(name, lambda pod: pod.status.phase in {"Succeeded", "Failed"})


async def test_vm_is_adopted_by_the_next_agent_and_a_second_agent_is_refused(
    server: Server, tmp_path: Path
) -> None:
    async with staged(server, tmp_path, *GC_OFF, on_crash_point=lambda *_: False) as stage:
        await stage.create("job", image=stage.image("job"))
        await runs(stage, "job")
        vms = stage.mac.vms()

        refused, output = await second_agent(stage)
        assert refused == 2
        assert "another agent" in output
        # In a thread: the last writes of the agent go through this loop.
        assert await asyncio.to_thread(stage.end, signal.SIGTERM) == 0
        assert stage.mac.vms() == vms
        stage.start()
        await stage.has_sent_heartbeat()
        assert stage.mac.vms() == vms
        await stage.halt("job")

        pod = await ended(stage, "job")
        assert (pod.status.phase, code(pod)) == ("Failed", CODE)
        await delete(stage, "job")


async def test_vm_that_ends_while_no_agent_runs_keeps_its_exit_code(
    server: Server, tmp_path: Path
) -> None:
    async with staged(server, tmp_path, *GC_OFF, on_crash_point=lambda *_: False) as stage:
        await stage.create("job", image=stage.image("job"))
        await runs(stage, "job")
        stage.end()
        await stage.halt("job")

        async def is_over() -> bool:
            return not stage.mac.vms()

        await stage.until(is_over, what="the end of the VM")
        stage.start()

        pod = await ended(stage, "job")
        assert (pod.status.phase, code(pod)) == ("Failed", CODE)
        await delete(stage, "job")
