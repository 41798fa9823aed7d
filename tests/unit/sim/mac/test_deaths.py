"""kill -9 of the agent at every kind of moment: what it had running goes on as processes would, and it does nothing more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bramley.kube.transport import Request, Response, Stream
from bramley.sim.mac.agent_process import AgentProcess
from tests.unit.sim.mac.worlds import IMAGE, World, a_mac


async def die_at(world: World, moment: str, agent: asyncio.Task[object]) -> None:
    """Kill the agent when it reaches a moment, and bury it."""
    reached = asyncio.Event()
    side = world.side

    def hear(told: str) -> None:
        if told == moment:
            side.kill()
            reached.set()

    side.on_checkpoint = hear
    await reached.wait()
    # Nobody hurries to bury it; it does nothing meanwhile.
    await asyncio.sleep(10)
    await side.reap(agent)


async def test_a_silent_command_of_a_dead_agent_ends_its_work(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world, asyncio.TaskGroup() as group:
        await world.vm("golden")
        agent = group.create_task(world.tart("clone", "golden", "copy"))
        await asyncio.sleep(0.1)
        world.side.kill()
        await world.side.reap(agent)
        assert [process.argv[1] for process in world.mac.table.living()] == ["clone"]
        assert not world.config("copy").exists()

        await asyncio.sleep(1)

        assert world.config("copy").exists()
        assert world.mac.table.living() == []


async def test_a_talking_command_of_a_dead_agent_dies_of_its_broken_pipe(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world, asyncio.TaskGroup() as group:
        world.mac.settings.image(IMAGE, compressed_bytes=10_000_000_000)
        agent = group.create_task(world.tart("pull", IMAGE))
        await asyncio.sleep(30)
        world.side.kill()
        await world.side.reap(agent)
        process = world.mac.table.living()[0]

        await asyncio.sleep(30)

        assert process.ended.result() == -13
        assert len(list((world.mac.folders.tart_home / "tmp").iterdir())) == 1


async def test_the_same_command_is_killed_when_it_is_only_cancelled(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world, asyncio.TaskGroup() as group:
        await world.vm("golden")
        agent = group.create_task(world.tart("clone", "golden", "copy"))
        await asyncio.sleep(0.1)
        agent.cancel()

        await asyncio.sleep(1)

        assert not world.config("copy").exists()


@pytest.mark.parametrize(
    ("moment", "exists"), [("before tart clone", False), ("after tart clone", True)]
)
async def test_a_death_around_a_command_is_before_or_after_its_effect(
    moment: str, exists: bool, tmp_path: Path
) -> None:
    async with a_mac(tmp_path) as world, asyncio.TaskGroup() as group:
        await world.vm("golden")
        went_on = []

        async def clone() -> None:
            await world.tart("clone", "golden", "copy")
            went_on.append("never")

        await die_at(world, moment, group.create_task(clone()))

        assert world.config("copy").exists() == exists
        assert went_on == []


@pytest.mark.parametrize(
    ("moment", "exists", "is_alive"),
    [("before run", False, False), ("within run", True, False), ("after run", True, True)],
)
async def test_a_death_around_the_start_of_a_run_is_seen_by_the_next_agent(
    moment: str, exists: bool, is_alive: bool, tmp_path: Path
) -> None:
    async with a_mac(tmp_path) as world, asyncio.TaskGroup() as group:
        vm = await world.vm()
        await die_at(world, moment, group.create_task(world.start(vm)))
        world.next_agent()
        runs = world.side.runs

        assert (runs.exists(vm), runs.is_alive(vm)) == (exists, is_alive)
        lost = exists and not is_alive
        ended = runs.ended(vm)
        assert (ended is not None and ended.code is None) == lost


async def test_a_dead_agent_writes_nothing_on_its_way_out(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world, asyncio.TaskGroup() as group:
        kept = world.mac.folders.state / "ledger" / "kept"
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
        world.side.kill()
        await world.side.reap(agent)

        assert [path.name for path in kept.parent.iterdir()] == ["kept"]
        assert kept.read_text() == "as it was"


async def test_a_dead_agent_can_run_start_kill_and_forget_nothing(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        vm = await world.running_vm()
        world.side.kill()

        with pytest.raises(asyncio.CancelledError):
            await world.tart("delete", vm)
        with pytest.raises(asyncio.CancelledError):
            await world.start("another")
        world.side.runs.kill(vm)
        world.side.runs.forget(vm)

        world.next_agent()
        assert world.side.runs.is_alive(vm)


class Api:
    """An API that notes what reaches it."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def send(self, request: Request) -> Response:
        self.heard.append(request.method)
        return Response(200, {}, b"")

    def stream(self, request: Request) -> Stream:
        raise NotImplementedError

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    ("moment", "heard"), [("before PATCH /pods/a", []), ("after PATCH /pods/a", ["PATCH"])]
)
async def test_a_death_around_a_write_is_before_or_after_it(
    moment: str, heard: list[str], tmp_path: Path
) -> None:
    async with a_mac(tmp_path) as world, asyncio.TaskGroup() as group:
        api = Api()
        transport = world.side.transport(api)  # type: ignore[arg-type]
        writing = group.create_task(transport.send(Request("PATCH", "/pods/a")))

        await die_at(world, moment, writing)

        assert api.heard == heard
        assert writing.cancelled()


async def test_each_life_of_the_agent_is_another_process(tmp_path: Path) -> None:
    async with a_mac(tmp_path) as world:
        sides: list[AgentProcess] = [world.side, world.mac.start_agent()]

        assert sides[0].pid != sides[1].pid
        sides[0].kill()
        assert [side.is_alive for side in sides] == [False, True]
