"""Every tart command has a deadline, and each timeout is counted under its name."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from bramley.agent.runs import Run
from bramley.agent.supervised_runs import SupervisedRuns
from bramley.agent.tart.driver import LOCK_TIMEOUT, Deadlines, Tart
from bramley.base import errors
from tests.unit.agent.tart.fakes import Hung, Metrics, Programs, a_tart

LIMITS = Deadlines(
    pull=timedelta(seconds=11),
    clone=timedelta(seconds=12),
    set=timedelta(seconds=13),
    delete=timedelta(seconds=14),
    get=timedelta(seconds=15),
    list=timedelta(seconds=16),
    version=timedelta(seconds=17),
    run=timedelta(seconds=9),
    stop_margin=timedelta(seconds=18),
    ip_margin=timedelta(seconds=19),
)
Calling = Callable[[Tart], Awaitable[object]]
CALLS: dict[str, tuple[Calling, float]] = {
    "pull": (lambda tart: tart.pull("registry/image:1"), 11),
    "clone": (lambda tart: tart.clone("golden", "vm"), 12),
    "set": (lambda tart: tart.set("vm", random_serial=True), 13),
    "delete": (lambda tart: tart.delete("vm"), 14),
    "get": (lambda tart: tart.get("vm"), 15),
    "list": (lambda tart: tart.list(), 16),
    "version": (lambda tart: tart.version(), 17),
    # The grace period and a margin, but no less than two minutes.
    "stop": (lambda tart: tart.stop("vm", timedelta(seconds=300)), 318),
    "ip": (lambda tart: tart.ip("vm", timedelta(seconds=30)), 49),
    "exec": (lambda tart: tart.exec("vm", ["/bin/df"], timedelta(seconds=20)), 20),
}


@pytest.mark.parametrize("operation", CALLS)
async def test_command_that_hangs_is_killed_at_its_deadline_and_counted(
    operation: str, tmp_path: Path
) -> None:
    programs = Programs(**{operation: Hung()})
    metrics = Metrics()
    tart = a_tart(tmp_path, programs, metrics=metrics, deadlines=LIMITS)
    call, limit = CALLS[operation]
    loop = asyncio.get_running_loop()
    began = loop.time()

    with pytest.raises(errors.TimedOut):
        await call(tart)

    assert loop.time() - began == pytest.approx(limit)
    assert programs.killed == programs.calls[-1:]
    assert metrics.timeouts(operation) == 1


class NeverStarted(SupervisedRuns):
    """A supervisor that never starts."""

    def __init__(self) -> None:
        pass

    async def start(self, run: Run) -> None:  # noqa: ARG002
        await asyncio.get_running_loop().create_future()


async def test_run_that_does_not_begin_in_time_is_counted(tmp_path: Path) -> None:
    metrics = Metrics()
    tart = a_tart(tmp_path, Programs(), metrics=metrics, deadlines=LIMITS)

    with pytest.raises(errors.TimedOut):
        await tart.start(NeverStarted(), "vm")

    assert asyncio.get_running_loop().time() == pytest.approx(9)
    assert metrics.timeouts("run") == 1


def test_every_command_of_the_driver_is_in_this_table() -> None:
    commands = {
        name
        for name, member in inspect.getmembers(Tart, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }

    assert commands - {"start"} == set(CALLS)


async def test_short_grace_still_leaves_tart_two_minutes_to_stop(tmp_path: Path) -> None:
    tart = a_tart(tmp_path, Programs(stop=Hung()))
    loop = asyncio.get_running_loop()

    with pytest.raises(errors.TimedOut):
        await tart.stop("vm", timedelta(seconds=1))

    assert loop.time() == pytest.approx(120)


async def test_hanging_clones_do_not_delay_the_deletion_of_another_vm(tmp_path: Path) -> None:
    tart = a_tart(tmp_path, Programs(clone=Hung()))
    loop = asyncio.get_running_loop()

    async with asyncio.TaskGroup() as group:
        hanging = [group.create_task(tart.clone("golden", name)) for name in ("one", "two")]
        await asyncio.sleep(0)
        await tart.delete("three")
        for task in hanging:
            task.cancel()

    assert loop.time() == pytest.approx(LOCK_TIMEOUT.total_seconds())


async def test_hanging_clone_delays_no_other_clone(tmp_path: Path) -> None:
    programs = Programs(clone=Hung())
    tart = a_tart(tmp_path, programs)

    async with asyncio.TaskGroup() as group:
        hanging = group.create_task(tart.clone("golden", "one"))
        await asyncio.sleep(0)
        programs.answers = {}
        await tart.clone("golden", "two")
        hanging.cancel()

    assert asyncio.get_running_loop().time() == 0


async def test_duration_of_clones_is_measured_by_result(tmp_path: Path) -> None:
    metrics = Metrics()
    programs = Programs()
    tart = a_tart(tmp_path, programs, metrics=metrics)

    await tart.clone("golden", "one")
    programs.answers["clone"] = Hung()
    with pytest.raises(errors.TimedOut):
        await tart.clone("golden", "two")

    assert (metrics.clones("done"), metrics.clones("failed")) == (1, 1)
    assert asyncio.get_running_loop().time() == pytest.approx(60)


async def test_name_is_cloned_once_at_a_time(tmp_path: Path) -> None:
    tart = a_tart(tmp_path, Programs(clone=Hung()))

    async with asyncio.TaskGroup() as group:
        hanging = group.create_task(tart.clone("golden", "one"))
        await asyncio.sleep(0)
        with pytest.raises(errors.AlreadyExists):
            await tart.clone("golden", "one")
        hanging.cancel()


async def test_hanging_deletion_delays_others_only_once(tmp_path: Path) -> None:
    tart = a_tart(tmp_path, Programs(delete=Hung()))
    loop, taken = asyncio.get_running_loop(), []

    async with asyncio.TaskGroup() as group:
        hanging = group.create_task(tart.delete("one"))
        await asyncio.sleep(0)
        for _ in range(3):
            began = loop.time()
            await tart.set("two", cpu=4)
            taken.append(loop.time() - began)
        hanging.cancel()

    assert taken == [LOCK_TIMEOUT.total_seconds(), 0, 0]


async def test_commands_that_change_vms_take_turns(tmp_path: Path) -> None:
    seen = []

    class Slow(Programs):
        async def run(self, argv, **rest):  # type: ignore[no-untyped-def]  # noqa: ANN001,ANN003,ANN202
            seen.append(("begins", argv[1]))
            await asyncio.sleep(0.5)
            seen.append(("ends", argv[1]))
            return await super().run(argv, **rest)

    tart = a_tart(tmp_path, Slow())

    async with asyncio.TaskGroup() as group:
        group.create_task(tart.clone("golden", "one"))
        group.create_task(tart.set("two", cpu=4))
        group.create_task(tart.delete("three"))

    assert [what for what, _ in seen] == ["begins", "ends"] * 3
