"""The runner of steps, on a Mac that is a dictionary of texts: what is looked at, done, stamped and told."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from bramley.base import errors
from bramley.host import drift, ensuring, stamping
from bramley.host.commands import Command, Folder, LookAt, Probe, Write
from bramley.host.facts import Facts
from bramley.host.step import Step


@dataclass
class PaperMac:
    """Files in memory; commands and looks are counted, and what a step writes may be lost on purpose."""

    host: str = "mac-1"
    files: dict[str, bytes] = field(default_factory=dict)
    done: list[Command] = field(default_factory=list)
    looks: int = 0
    forgets: str = ""
    breaks_at: int = -1

    async def do(self, command: Command) -> None:
        if len(self.done) == self.breaks_at:
            raise errors.HostUnreachable("mac-1: the line broke")
        self.done.append(command)
        if isinstance(command, Write) and command.path != self.forgets:
            assert isinstance(command.content, bytes)
            self.files[command.path] = command.content

    async def look(self, probes: Collection[Probe]) -> Facts:
        self.looks += 1
        return Facts(
            {probe: self.files.get(probe.path) for probe in probes if isinstance(probe, LookAt)}
        )


@dataclass(frozen=True)
class OneFile:
    """Keep one file as it should be."""

    path: str
    content: bytes = b"wanted\n"
    part: drift.Part | None = None
    refuses: str = ""
    waits_for: str = ""
    stands_apart: bool = False

    @property
    def name(self) -> str:
        return self.path.strip("/")

    title = "a file"

    def wanted(self) -> drift.Wanted | None:
        if self.part is None:
            return None
        return drift.Wanted(self.part, {self.path: drift.digest(self.content)})

    def looks(self) -> Sequence[Probe]:
        return [LookAt(self.path)]

    def refuse(self, seen: Facts) -> None:  # noqa: ARG002 - part of the seam
        if self.refuses:
            raise errors.UnsupportedHost(self.refuses)

    def plan(self, seen: Facts) -> Iterator[Command]:
        if seen.file(LookAt(self.path)) != self.content:
            yield Write(path=self.path, content=self.content, purpose=f"write {self.name}")

    def pending(self, seen: Facts) -> str:  # noqa: ARG002 - part of the seam
        return self.waits_for

    def is_separable(self, seen: Facts) -> bool:  # noqa: ARG002 - part of the seam
        return self.stands_apart


def a_few() -> list[Step]:
    return [
        OneFile("/a", part=drift.Part.FIREWALL),
        OneFile("/b"),
        OneFile("/c", part=drift.Part.AGENT),
    ]


async def test_a_second_plan_is_empty_and_a_second_run_looks_once_and_does_nothing() -> None:
    mac = PaperMac()
    assert (await ensuring.apply(mac, a_few())).is_changed
    before, mac.looks = len(mac.done), 0

    assert (await ensuring.plan(mac, a_few())).is_empty
    assert not (await ensuring.apply(mac, a_few())).is_changed
    assert (len(mac.done), mac.looks) == (before, 2)


@dataclass(frozen=True)
class Copy(OneFile):
    """Keep a file the same as another one, which an earlier step may only just have made."""

    source: str = "/a"

    def looks(self) -> Sequence[Probe]:
        return [LookAt(self.path), LookAt(self.source)]

    def plan(self, seen: Facts) -> Iterator[Command]:
        wanted = seen.file(LookAt(self.source)) or b""
        if seen.file(LookAt(self.path)) != wanted:
            yield Write(path=self.path, content=wanted, purpose=f"write {self.name}")


async def test_a_step_sees_what_the_one_before_it_has_made() -> None:
    mac = PaperMac()
    await ensuring.apply(mac, [OneFile("/a"), Copy("/copy")])
    assert mac.files["/copy"] == mac.files["/a"]


async def test_a_part_is_stamped_with_its_own_step_and_not_with_the_others() -> None:
    mac = PaperMac(breaks_at=4)  # /a with its folder and stamp, then /b is not reached
    with pytest.raises(errors.HostUnreachable):
        await ensuring.apply(mac, [*a_few(), OneFile("/d", part=drift.Part.TAILSCALE)])
    assert set(drift.load(mac.files[stamping.FILE.path])) == {drift.Part.FIREWALL}


@pytest.mark.parametrize("cut", range(9))
async def test_a_run_that_was_cut_anywhere_ends_like_an_uncut_one(cut: int) -> None:
    uncut, mac = PaperMac(), PaperMac(breaks_at=cut)
    await ensuring.apply(uncut, a_few())
    if cut < len(uncut.done):
        with pytest.raises(errors.HostUnreachable):
            await ensuring.apply(mac, a_few())
    mac.breaks_at = -1
    await ensuring.apply(mac, a_few())
    assert mac.files == uncut.files


async def test_what_the_mac_undoes_is_said_and_not_stamped() -> None:
    mac = PaperMac(forgets="/a")
    with pytest.raises(errors.NotConverged, match=r"mac-1: step a: .*still to do: write a"):
        await ensuring.apply(mac, a_few())
    assert stamping.FILE.path not in mac.files


async def test_an_error_names_the_host_once_and_the_step_and_keeps_its_kind() -> None:
    with pytest.raises(errors.HostUnreachable) as caught:
        await ensuring.apply(PaperMac(breaks_at=0), a_few())
    assert str(caught.value) == "mac-1: step a: the line broke"


async def test_a_refusal_of_the_last_step_comes_before_the_first_command() -> None:
    mac = PaperMac()
    with pytest.raises(errors.UnsupportedHost, match="mac-1: step z: turn FileVault off"):
        await ensuring.apply(mac, [*a_few(), OneFile("/z", refuses="turn FileVault off")])
    assert mac.done == []


async def test_others_are_done_without_a_step_that_stands_apart_and_the_run_fails_all_the_same() -> (
    None
):
    mac, told = PaperMac(), list[ensuring.Progress]()
    apart = OneFile("/z", refuses="turn FileVault off", stands_apart=True)
    with pytest.raises(errors.UnsupportedHost) as caught:
        await ensuring.apply(mac, [apart, *a_few()], tell=told.append)
    assert str(caught.value) == "mac-1: step z: turn FileVault off; all other steps were done"
    assert told[0] == ensuring.LeftOut(apart, "turn FileVault off")
    assert set(mac.files) == {"/a", "/b", "/c", stamping.FILE.path}


async def test_an_error_after_a_step_that_was_left_out_tells_of_both() -> None:
    apart = OneFile("/z", refuses="turn FileVault off", stands_apart=True)
    with pytest.raises(errors.HostUnreachable) as caught:
        await ensuring.apply(PaperMac(breaks_at=0), [apart, *a_few()])
    told = "mac-1: step a: the line broke; besides, step z: turn FileVault off"
    assert str(caught.value) == told


async def test_what_is_to_be_done_then_is_found_from_the_stamps_without_another_question() -> None:
    mac = PaperMac()
    found: list[drift.Stamps] = []

    def then(stamps: drift.Stamps) -> list[Step]:
        found.append(stamps)
        return [OneFile("/last")] if "/last" not in mac.files else []

    report = await ensuring.apply(mac, a_few(), then=then)
    assert list(report.changed) == ["a", "b", "c", "last"]
    assert set(found[0]) == {drift.Part.FIREWALL, drift.Part.AGENT}
    mac.looks = 0
    assert (await ensuring.plan(mac, a_few(), then=then)).is_empty
    assert not (await ensuring.apply(mac, a_few(), then=then)).is_changed
    assert mac.looks == 2


async def test_a_plan_shows_refusals_and_what_waits_and_changes_nothing() -> None:
    mac = PaperMac()
    waiting = OneFile("/w", waits_for="RebootPending: VMs run")
    planned = await ensuring.plan(mac, [waiting, OneFile("/z", refuses="no")])
    assert [(one.pending, one.refusal) for one in planned.steps] == [
        ("RebootPending: VMs run", ""),
        ("", "no"),
    ]
    assert not planned.is_empty
    assert mac.done == []


class Advisor(OneFile):
    """A step with something to say to people."""

    def advice(self, seen: Facts) -> str:  # noqa: ARG002 - part of the seam
        return "UpdateAdvised: old"


async def test_what_people_should_know_is_told_and_keeps_no_mac_from_being_as_wanted() -> None:
    mac = PaperMac()
    told: list[ensuring.Progress] = []
    report = await ensuring.apply(mac, [Advisor("/a")], tell=told.append)
    planned = await ensuring.plan(mac, [Advisor("/a")])

    assert report.advice == planned.advice == ("UpdateAdvised: old",)
    assert [one.advice for one in told if isinstance(one, ensuring.Ended)] == [*report.advice]
    assert planned.is_as_wanted


async def test_what_waits_is_reported() -> None:
    told: list[ensuring.Progress] = []
    report = await ensuring.apply(
        PaperMac(), [OneFile("/w", waits_for="RebootPending: VMs run")], tell=told.append
    )
    assert report.pending == ("RebootPending: VMs run",)
    assert [type(one) for one in told] == [ensuring.Began, ensuring.Doing, ensuring.Ended]


async def test_only_the_steps_of_parts_that_differ_are_planned_again() -> None:
    mac = PaperMac()
    await ensuring.apply(mac, a_few())
    changed: list[Step] = [
        OneFile("/a", part=drift.Part.FIREWALL),
        OneFile("/c", b"new", drift.Part.AGENT),
    ]
    planned = await ensuring.plan(mac, changed)
    # The file, and with it the stamp.
    assert [len(one.commands) for one in planned.steps] == [0, 1 + len([*stamping.write({})])]


async def test_the_folder_of_the_stamps_is_not_the_agents() -> None:
    assert {type(one) for one in stamping.write({})} == {Folder, Write}
