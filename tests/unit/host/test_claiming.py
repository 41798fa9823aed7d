"""Two runs over one Mac: the later one goes on, the earlier one stops, and nobody is kept out by the dead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from bramley.base import errors
from bramley.base.secret import Secret
from bramley.host import claiming, ensuring
from bramley.host.claiming import Claim
from bramley.host.commands import Command, Remove, Write
from bramley.host.ensuring import Progress
from bramley.host.step import Step
from bramley.host.steps.hostname import Hostname
from bramley.host.steps.sudo import Sudo
from tests.unit.host.steps.cutting import PASSWORD, Scene
from tests.unit.host.test_ensuring import OneFile, PaperMac, a_few

OURS, THEIRS = Claim(run="1", by="us"), Claim(run="2", by="laptop")


def written(mac: PaperMac) -> list[str]:
    return [one.path for one in mac.done if isinstance(one, Write)]


def taking(mac: PaperMac, name: str, by: Claim = THEIRS) -> Callable[[Progress], None]:
    """Let another run claim the Mac when a step is begun."""

    def tell(news: Progress) -> None:
        if isinstance(news, ensuring.Began) and news.step.name == name:
            mac.files[claiming.FILE.path] = msgspec.json.encode(by)

    return tell


@pytest.mark.parametrize(("step", "left"), [("b", ["/a"]), ("c", ["/a", "/b"])])
async def test_the_earlier_run_stops_before_its_next_command(step: str, left: list[str]) -> None:
    mac = PaperMac()
    told = rf"^mac-1: step {step}: another run works on this Mac \(laptop\)"
    with pytest.raises(errors.Conflict, match=told):
        await ensuring.apply(mac, a_few(), tell=taking(mac, step), claim=OURS)
    assert [path for path in written(mac) if len(path) == 2] == left


@dataclass(frozen=True)
class Tidied(OneFile):
    """Leaves something behind that must not stay."""

    def tidy(self) -> Iterator[Command]:
        yield Remove(path=self.path, purpose="tidy up")


async def test_what_the_other_run_has_brought_is_not_tidied_away() -> None:
    mac = PaperMac()
    steps = [OneFile("/a"), Tidied("/b")]
    with pytest.raises(errors.Conflict):
        await ensuring.apply(mac, steps, tell=taking(mac, "b"), claim=OURS)
    assert not [one for one in mac.done if isinstance(one, Remove)]


async def test_a_mac_that_is_as_wanted_is_not_claimed() -> None:
    mac = PaperMac()
    await ensuring.apply(mac, a_few())
    mac.done.clear()
    await ensuring.apply(mac, a_few(), claim=OURS)
    assert mac.done == []


@pytest.mark.parametrize("left", [msgspec.json.encode(THEIRS), b"", b"{", b"\xff"])
async def test_the_claim_of_a_run_that_died_keeps_nobody_out(left: bytes) -> None:
    mac = PaperMac(files={claiming.FILE.path: left})
    await ensuring.apply(mac, a_few(), claim=OURS)
    assert written(mac)[0] == claiming.FILE.path
    assert msgspec.json.decode(mac.files[claiming.FILE.path], type=Claim).run == OURS.run


async def test_who_led_before_does_not_begin_and_people_do_without_making_room_for_them() -> None:
    def manager(epoch: int) -> Claim:
        return Claim(run=f"manager-{epoch}", by="manager", epoch=epoch)

    mac = PaperMac()
    await ensuring.apply(mac, [OneFile("/a")], claim=manager(5))
    await ensuring.apply(mac, [OneFile("/b")], claim=OURS)
    with pytest.raises(errors.Conflict):
        await ensuring.apply(mac, [OneFile("/c")], claim=manager(4))
    await ensuring.apply(mac, [OneFile("/d")], claim=manager(6))
    assert sorted(path for path in mac.files if len(path) == 2) == ["/a", "/b", "/d"]


async def test_a_mac_whose_sudo_still_asks_is_claimed_once_it_does_not(tmp_path: Path) -> None:
    line = (await Scene.make(tmp_path)).copy("bare")
    steps: list[Step] = [Sudo("m1", Secret(PASSWORD)), Hostname("mac-01")]
    await ensuring.apply(line, steps, claim=OURS)
    claimed = line.mac.files.read(claiming.FILE.path) or b""
    assert msgspec.json.decode(claimed, type=Claim) == OURS
    assert (await ensuring.plan(line, steps)).is_empty


@dataclass
class StuckMac(PaperMac):
    """Never comes to an end, though it says nothing wrong."""

    async def do(self, command: Command) -> None:  # noqa: ARG002 - part of the seam
        await asyncio.Event().wait()


async def test_a_step_ends_by_its_deadline_whatever_its_commands_do() -> None:
    with pytest.raises(errors.TimedOut, match=r"^mac-1: step a: not done within 60 minutes"):
        await ensuring.apply(StuckMac(), a_few())
