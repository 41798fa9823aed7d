"""Two runs on one Mac: the later one continues, the earlier one stops, and a dead run blocks no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from bramley.base import errors
from bramley.base.secret import Secret
from bramley.host import claim, converge
from bramley.host.claim import Claim
from bramley.host.commands import Command, Probe, Remove, Write
from bramley.host.facts import Facts
from bramley.host.progress import Progress, StepStarted
from bramley.host.step import Step
from bramley.host.steps.hostname import Hostname
from bramley.host.steps.sudo import Sudo
from tests.unit.host.steps.interruption import PASSWORD, MacTemplate
from tests.unit.host.test_converge import FakeMac, OneFile, three_files

OURS, THEIRS = Claim(run="1", by="us"), Claim(run="2", by="laptop")


def written(mac: FakeMac) -> list[str]:
    return [one.path for one in mac.done if isinstance(one, Write)]


def claim_at_step(mac: FakeMac, name: str, by: Claim = THEIRS) -> Callable[[Progress], None]:
    """Return a progress callback by which another run claims the Mac when this step starts."""

    def on_progress(progress: Progress) -> None:
        if isinstance(progress, StepStarted) and progress.step.name == name:
            mac.files[claim.CLAIM_FILE.path] = msgspec.json.encode(by)

    return on_progress


@pytest.mark.parametrize(("step", "expected"), [("b", ["/a"]), ("c", ["/a", "/b"])])
async def test_earlier_run_stops_before_its_next_command(step: str, expected: list[str]) -> None:
    mac = FakeMac()
    message = rf"^mac-1: step {step}: another run works on this Mac \(laptop\)"
    with pytest.raises(errors.Conflict, match=message):
        await converge.apply(mac, three_files(), on_progress=claim_at_step(mac, step), claim=OURS)
    assert [path for path in written(mac) if len(path) == 2] == expected


@dataclass(frozen=True)
class CleanedUp(OneFile):
    """A file that must be removed after a failure."""

    def clean_up(self) -> Iterator[Command]:
        yield Remove(path=self.path, purpose="clean up")


async def test_stopped_run_does_not_clean_up() -> None:
    mac = FakeMac()
    steps = [OneFile("/a"), CleanedUp("/b")]
    with pytest.raises(errors.Conflict):
        await converge.apply(mac, steps, on_progress=claim_at_step(mac, "b"), claim=OURS)
    assert not [one for one in mac.done if isinstance(one, Remove)]


async def test_converged_mac_is_not_claimed() -> None:
    mac = FakeMac()
    await converge.apply(mac, three_files())
    mac.done.clear()
    await converge.apply(mac, three_files(), claim=OURS)
    assert mac.done == []


@pytest.mark.parametrize("existing", [msgspec.json.encode(THEIRS), b"", b"{", b"\xff"])
async def test_claim_of_a_dead_run_blocks_no_other_run(existing: bytes) -> None:
    mac = FakeMac(files={claim.CLAIM_FILE.path: existing})
    await converge.apply(mac, three_files(), claim=OURS)
    assert written(mac)[0] == claim.CLAIM_FILE.path
    assert msgspec.json.decode(mac.files[claim.CLAIM_FILE.path], type=Claim).run == OURS.run


async def test_facts_are_newer_than_the_claim_that_replaces_another_one() -> None:
    """The other run may still write a file after this one has read its facts and before it has claimed the Mac."""

    class LateMac(FakeMac):
        async def probe(self, probes: Collection[Probe]) -> Facts:
            facts = await super().probe(probes)
            self.files.setdefault("/a", b"desired\n")
            self.files.setdefault("/c", b"of the other run\n")
            return facts

    mac = LateMac(files={claim.CLAIM_FILE.path: msgspec.json.encode(THEIRS)})
    await converge.apply(mac, three_files(), claim=OURS)
    assert [path for path in written(mac) if len(path) == 2] == ["/b", "/c"]
    assert mac.files["/c"] == b"desired\n"


async def test_former_leader_is_refused_also_after_a_run_by_hand() -> None:
    def manager(epoch: int) -> Claim:
        return Claim(run=f"manager-{epoch}", by="manager", epoch=epoch)

    mac = FakeMac()
    await converge.apply(mac, [OneFile("/a")], claim=manager(5))
    await converge.apply(mac, [OneFile("/b")], claim=OURS)
    with pytest.raises(errors.Conflict):
        await converge.apply(mac, [OneFile("/c")], claim=manager(4))
    await converge.apply(mac, [OneFile("/d")], claim=manager(6))
    assert sorted(path for path in mac.files if len(path) == 2) == ["/a", "/b", "/d"]


async def test_mac_is_claimed_as_soon_as_sudo_needs_no_password(tmp_path: Path) -> None:
    connection = (await MacTemplate.make(tmp_path)).copy("bare")
    steps: list[Step] = [Sudo("m1", Secret(PASSWORD)), Hostname("mac-01")]
    await converge.apply(connection, steps, claim=OURS)
    claimed = connection.mac.files.read(claim.CLAIM_FILE.path) or b""
    assert msgspec.json.decode(claimed, type=Claim) == OURS
    assert (await converge.plan(connection, steps)).is_empty


@dataclass
class StuckMac(FakeMac):
    """A Mac whose commands never end."""

    async def execute(self, command: Command) -> None:  # noqa: ARG002 - part of the seam
        await asyncio.Event().wait()


async def test_step_is_stopped_at_its_deadline() -> None:
    with pytest.raises(errors.TimedOut, match=r"^mac-1: step a: not done within 60 minutes"):
        await converge.apply(StuckMac(), three_files())
