"""kill -9 of the agent at every checkpoint: its child processes continue, and the agent does nothing more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bramley.kube.transport import Request, Response, Stream
from bramley.sim.mac.agent_process import AgentProcess
from tests.unit.sim.mac.simulated_macs import IMAGE, AgentOnMac, simulated_mac


async def kill_agent_at(host: AgentOnMac, checkpoint: str, task: asyncio.Task[object]) -> None:
    """Kill the agent when it reaches a checkpoint, and reap it."""
    reached = asyncio.Event()
    agent = host.agent

    def on_checkpoint(label: str) -> None:
        if label == checkpoint:
            agent.kill()
            reached.set()

    agent.on_checkpoint = on_checkpoint
    await reached.wait()
    # A dead agent does nothing until it is reaped.
    await asyncio.sleep(10)
    await agent.reap(task)


async def test_silent_command_of_a_dead_agent_finishes(tmp_path: Path) -> None:
    async with simulated_mac(tmp_path) as host, asyncio.TaskGroup() as group:
        await host.vm("golden")
        agent = group.create_task(host.tart("clone", "golden", "copy"))
        await asyncio.sleep(0.1)
        host.agent.kill()
        await host.agent.reap(agent)
        assert [process.argv[1] for process in host.mac.table.living()] == ["clone"]
        assert not host.config("copy").exists()

        await asyncio.sleep(1)

        assert host.config("copy").exists()
        assert host.mac.table.living() == []


async def test_printing_command_of_a_dead_agent_dies_of_a_broken_pipe(tmp_path: Path) -> None:
    async with simulated_mac(tmp_path) as host, asyncio.TaskGroup() as group:
        host.mac.settings.image(IMAGE, compressed_bytes=10_000_000_000)
        agent = group.create_task(host.tart("pull", IMAGE))
        await asyncio.sleep(30)
        host.agent.kill()
        await host.agent.reap(agent)
        process = host.mac.table.living()[0]

        await asyncio.sleep(30)

        assert process.exit_code.result() == -13
        assert len(list((host.mac.folders.tart_home / "tmp").iterdir())) == 1


async def test_cancelled_command_is_killed(tmp_path: Path) -> None:
    async with simulated_mac(tmp_path) as host, asyncio.TaskGroup() as group:
        await host.vm("golden")
        agent = group.create_task(host.tart("clone", "golden", "copy"))
        await asyncio.sleep(0.1)
        agent.cancel()

        await asyncio.sleep(1)

        assert not host.config("copy").exists()


@pytest.mark.parametrize(
    ("checkpoint", "exists"), [("before tart clone", False), ("after tart clone", True)]
)
async def test_death_around_a_command_is_before_or_after_its_effect(
    checkpoint: str, exists: bool, tmp_path: Path
) -> None:
    async with simulated_mac(tmp_path) as host, asyncio.TaskGroup() as group:
        await host.vm("golden")
        continued = []

        async def clone() -> None:
            await host.tart("clone", "golden", "copy")
            continued.append("never")

        await kill_agent_at(host, checkpoint, group.create_task(clone()))

        assert host.config("copy").exists() == exists
        assert continued == []


@pytest.mark.parametrize(
    ("checkpoint", "exists", "is_alive"),
    [("before run", False, False), ("within run", True, False), ("after run", True, True)],
)
async def test_death_around_the_start_of_a_run_is_seen_by_the_next_agent(
    checkpoint: str, exists: bool, is_alive: bool, tmp_path: Path
) -> None:
    async with simulated_mac(tmp_path) as host, asyncio.TaskGroup() as group:
        vm = await host.vm()
        await kill_agent_at(host, checkpoint, group.create_task(host.start(vm)))
        host.next_agent()
        runs = host.agent.runs

        assert (runs.exists(vm), runs.is_alive(vm)) == (exists, is_alive)
        lost = exists and not is_alive
        ended = runs.find_exit(vm)
        assert (ended is not None and ended.code is None) == lost


async def test_dead_agent_writes_nothing_while_it_is_cancelled(tmp_path: Path) -> None:
    async with simulated_mac(tmp_path) as host, asyncio.TaskGroup() as group:
        kept = host.mac.folders.state / "ledger" / "kept"
        kept.parent.mkdir(parents=True)
        kept.write_text("as it was")

        async def live() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                kept.write_text("changed")
                (kept.parent / "added").write_text("")
                (kept.parent / "folder").mkdir()

        agent = group.create_task(live())
        await asyncio.sleep(1)
        host.agent.kill()
        await host.agent.reap(agent)

        assert [path.name for path in kept.parent.iterdir()] == ["kept"]
        assert kept.read_text() == "as it was"


async def test_dead_agent_cannot_run_start_kill_or_forget(host: AgentOnMac) -> None:
    vm = await host.running_vm()
    host.agent.kill()

    with pytest.raises(asyncio.CancelledError):
        await host.tart("delete", vm)
    with pytest.raises(asyncio.CancelledError):
        await host.start("another")
    host.agent.runs.kill(vm)
    host.agent.runs.forget(vm)

    host.next_agent()
    assert host.agent.runs.is_alive(vm)


class Api:
    """An API that records the requests."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    async def send(self, request: Request) -> Response:
        self.methods.append(request.method)
        return Response(200, {}, b"")

    def stream(self, request: Request) -> Stream:
        raise NotImplementedError

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    ("checkpoint", "methods"), [("before PATCH /pods/a", []), ("after PATCH /pods/a", ["PATCH"])]
)
async def test_death_around_a_write_is_before_or_after_it(
    checkpoint: str, methods: list[str], tmp_path: Path
) -> None:
    async with simulated_mac(tmp_path) as host, asyncio.TaskGroup() as group:
        api = Api()
        transport = host.agent.transport(api)  # type: ignore[arg-type]
        writing = group.create_task(transport.send(Request("PATCH", "/pods/a")))

        await kill_agent_at(host, checkpoint, writing)

        assert api.methods == methods
        assert writing.cancelled()


async def test_each_start_of_the_agent_is_another_process(host: AgentOnMac) -> None:
    agents: list[AgentProcess] = [host.agent, host.mac.start_agent()]

    assert agents[0].pid != agents[1].pid
    agents[0].kill()
    assert [each.is_alive for each in agents] == [False, True]
