"""The whole bootstrap of a bare Mac, cut after every single command and run again: the Mac becomes what an uncut run makes of it.

A run that is cut leaves the Mac as the uncut one had it at that moment, whether the command's answer still came, was lost, or the
next command never arrived. So the Macs of all cuts are copies of one that is made without any, each taken after a command.
"""

from __future__ import annotations

import functools
import operator
from pathlib import Path

import pytest

from bramley.base.errors import HostUnreachable
from bramley.host import converge
from bramley.host.commands import Command, Stream
from bramley.sim.macos.faults import Cut, Faults, Moment
from tests.scenarios.host_bootstrap.macs import steps
from tests.unit.host.steps.cutting import Copying, Scene, a_claim, come_back, cuts, take_up

PARTS = 4


@pytest.mark.parametrize(
    # The first part shows how a run is taken up; the others do it at the commands between its own.
    "part",
    [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, PARTS))],
)
async def test_a_run_that_is_cut_after_a_command_is_taken_up(part: int, tmp_path: Path) -> None:
    """All commands, dealt out to as many tests as there are parts; some of them under hypothesis' profile `fast`.

    In the first part each run claims the Mac, as `bramley host apply` does.
    """
    claims = part == 0
    planned = steps(tmp_path / "files")
    scene = await Scene.make(tmp_path / "macs")
    numbers = cuts(part, PARTS)
    whole = Copying(scene.copy("whole").mac, tmp_path / "copies", numbers)
    await converge.apply(whole, planned, claim=a_claim("first") if claims else None)
    assert len(whole.copies) >= len(whole.done) // numbers.step

    await take_up(whole, planned, whole.mac.snapshot(), claims=claims)


@pytest.mark.parametrize("moment", Moment, ids=lambda moment: str(moment.value))
async def test_every_kind_of_cut_leaves_the_mac_as_it_was_between_two_commands(
    moment: Moment, tmp_path: Path
) -> None:
    planned = steps(tmp_path / "files")
    scene = await Scene.make(tmp_path / "macs")
    numbers = range(2, 1000, 37)
    whole = Copying(scene.copy("whole").mac, tmp_path / "copies", numbers)
    await converge.apply(whole, planned)

    for number, mac in whole.copies.items():
        line = scene.copy(f"cut-{number}")
        line.faults.at(number + (moment is Moment.BEFORE), Cut(moment))
        with pytest.raises(HostUnreachable):
            await converge.apply(line, planned)
        assert line.mac.snapshot() == mac.snapshot(), f"{moment} at {whole.done[number].purpose}"


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
async def test_streams_that_break_anywhere_are_begun_again(share: float, tmp_path: Path) -> None:
    """One Mac, on which the line breaks in every stream, one after another."""
    planned = steps(tmp_path / "files")
    scene = await Scene.make(tmp_path / "macs")
    whole, line = scene.copy("whole"), scene.copy("cut")
    await converge.apply(whole, planned)
    streams = [command for command in whole.done if isinstance(command, Stream)]
    assert len(streams) == 5

    for stream in streams:
        at_byte = min(round(stream.artifact.size * share), stream.artifact.size - 1)
        line.faults.at(functools.partial(operator.eq, stream), Cut(at_byte=at_byte))
        with pytest.raises(HostUnreachable):
            await converge.apply(line, planned)
    await converge.apply(line, planned)

    assert line.mac.snapshot() == whole.mac.snapshot()
    assert (await converge.plan(line, planned)).is_empty


async def test_a_line_that_breaks_after_every_tenth_command_gets_there(tmp_path: Path) -> None:
    """Again and again on the same Mac, in every way by turns, and in questions, too."""
    planned = steps(tmp_path / "files")
    scene = await Scene.make(tmp_path / "macs")
    whole, line = scene.copy("whole"), scene.copy("cut")
    await converge.apply(whole, planned)

    moments = [*Moment] * 20
    for tries, moment in enumerate(moments):
        # Anew: what an earlier try did not come to would make the cuts closer and closer.
        line.faults = Faults()
        line.faults.at(10, Cut(moment))
        if tries % 4 == 3:
            line.faults.at_look(2, Cut(Moment.UNANSWERED))
        try:
            await converge.apply(line, planned)
            break
        except HostUnreachable:
            await come_back(line.mac)

    assert tries >= 10
    assert line.mac.snapshot() == whole.mac.snapshot()


async def test_a_second_run_asks_once_and_does_nothing(tmp_path: Path) -> None:
    planned = steps(tmp_path / "files")
    line = (await Scene.make(tmp_path / "macs")).copy("mac")
    await converge.apply(line, planned)
    before, done, probes = line.mac.snapshot(), list[Command](line.done), line.probes

    report = await converge.apply(line, planned)

    assert not report.is_changed
    assert line.done == done
    assert line.probes == probes + 1
    assert line.mac.snapshot() == before
    assert (await converge.plan(line, planned)).is_empty
