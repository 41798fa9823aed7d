"""The bootstrap of a bare Mac, interrupted after every command and run again: the result is that of an uninterrupted run.

An interrupted run leaves the Mac in the state that the uninterrupted run had at that point, whether the answer of the command
arrived, was lost, or the next command never arrived. So the Macs of all interruptions are copies of one Mac, each taken after a command.
"""

from __future__ import annotations

import functools
import operator
from pathlib import Path

import pytest

from bramley.base.errors import HostUnreachable
from bramley.host import converge
from bramley.host.commands import Command, Stream
from bramley.sim.macos.faults import Cut, CutPoint, Faults
from tests.scenarios.host_bootstrap.macs import steps
from tests.unit.host.steps.interruption import (
    CopyingConnection,
    MacTemplate,
    interruption_points,
    new_claim,
    resume_all,
    wait_until_up,
)

PARTS = 4


@pytest.mark.parametrize(
    # The first part covers resuming in general; the others cover the commands in between.
    "part",
    [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, PARTS))],
)
async def test_interrupted_run_is_resumed(part: int, tmp_path: Path) -> None:
    """All commands, distributed over the parts; only some of them with hypothesis' profile `fast`.

    In the first part each run claims the Mac, as `bramley host apply` does.
    """
    claims = part == 0
    planned = steps(tmp_path / "files")
    template = await MacTemplate.make(tmp_path / "macs")
    numbers = interruption_points(part, PARTS)
    complete = CopyingConnection(template.copy("complete").mac, tmp_path / "copies", numbers)
    await converge.apply(complete, planned, claim=new_claim("first") if claims else None)
    assert len(complete.copies) >= len(complete.done) // numbers.step

    await resume_all(complete, planned, complete.mac.snapshot(), claims=claims)


@pytest.mark.parametrize("point", CutPoint, ids=lambda point: str(point.value))
async def test_every_kind_of_interruption_leaves_a_state_between_two_commands(
    point: CutPoint, tmp_path: Path
) -> None:
    planned = steps(tmp_path / "files")
    template = await MacTemplate.make(tmp_path / "macs")
    numbers = range(2, 1000, 37)
    complete = CopyingConnection(template.copy("complete").mac, tmp_path / "copies", numbers)
    await converge.apply(complete, planned)

    for number, mac in complete.copies.items():
        connection = template.copy(f"cut-{number}")
        connection.faults.at(number + (point is CutPoint.BEFORE), Cut(point))
        with pytest.raises(HostUnreachable):
            await converge.apply(connection, planned)
        assert connection.mac.snapshot() == mac.snapshot(), (
            f"{point} at {complete.done[number].purpose}"
        )


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
async def test_interrupted_streams_are_sent_again(share: float, tmp_path: Path) -> None:
    """One Mac, whose connection is lost in every stream, one after another."""
    planned = steps(tmp_path / "files")
    template = await MacTemplate.make(tmp_path / "macs")
    complete, connection = template.copy("complete"), template.copy("cut")
    await converge.apply(complete, planned)
    streams = [command for command in complete.done if isinstance(command, Stream)]
    assert len(streams) == 5

    for stream in streams:
        at_byte = min(round(stream.artifact.size * share), stream.artifact.size - 1)
        connection.faults.at(functools.partial(operator.eq, stream), Cut(at_byte=at_byte))
        with pytest.raises(HostUnreachable):
            await converge.apply(connection, planned)
    await converge.apply(connection, planned)

    assert connection.mac.snapshot() == complete.mac.snapshot()
    assert (await converge.plan(connection, planned)).is_empty


async def test_run_completes_although_every_tenth_command_is_interrupted(tmp_path: Path) -> None:
    """Repeatedly on the same Mac, with all kinds of interruption in turn, and during probes, too."""
    planned = steps(tmp_path / "files")
    template = await MacTemplate.make(tmp_path / "macs")
    complete, connection = template.copy("complete"), template.copy("cut")
    await converge.apply(complete, planned)

    points = [*CutPoint] * 20
    for attempt, point in enumerate(points):
        # New faults: those that an earlier run did not reach would make the interruptions more frequent.
        connection.faults = Faults()
        connection.faults.at(10, Cut(point))
        if attempt % 4 == 3:
            connection.faults.at_probe(2, Cut(CutPoint.UNANSWERED))
        try:
            await converge.apply(connection, planned)
            break
        except HostUnreachable:
            await wait_until_up(connection.mac)

    assert attempt >= 10
    assert connection.mac.snapshot() == complete.mac.snapshot()


async def test_second_run_probes_once_and_changes_nothing(tmp_path: Path) -> None:
    planned = steps(tmp_path / "files")
    connection = (await MacTemplate.make(tmp_path / "macs")).copy("mac")
    await converge.apply(connection, planned)
    before, done, probes = (
        connection.mac.snapshot(),
        list[Command](connection.done),
        connection.probes,
    )

    report = await converge.apply(connection, planned)

    assert not report.is_changed
    assert connection.done == done
    assert connection.probes == probes + 1
    assert connection.mac.snapshot() == before
    assert (await converge.plan(connection, planned)).is_empty
