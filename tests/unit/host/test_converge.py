"""The step runner, on an in-memory Mac: what is probed, executed, stamped and reported."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from bramley.base import errors
from bramley.host import converge, drift, progress
from bramley.host.claim import CLAIM_FILE
from bramley.host.commands import Command, Folder, Probe, ReadFile, Reboot, Write
from bramley.host.connection import Batch, BatchResult, OnStarted
from bramley.host.facts import Facts
from bramley.host.step import Step
from bramley.sim.macos.connection import execute_in_order


@dataclass
class FakeMac:
    """Files in memory; counts commands and probes, and can lose a written file or the connection."""

    host: str = "mac-1"
    files: dict[str, bytes] = field(default_factory=dict)
    done: list[Command] = field(default_factory=list)
    probes: int = 0
    loses: str = ""
    breaks_at: int = -1

    async def execute(self, command: Command) -> None:
        if len(self.done) == self.breaks_at:
            raise errors.HostUnreachable("mac-1: connection lost")
        self.done.append(command)
        if isinstance(command, Write) and command.path != self.loses:
            assert isinstance(command.content, bytes)
            self.files[command.path] = command.content

    async def execute_all(
        self, batch: Batch, *, on_started: OnStarted = lambda _: None
    ) -> BatchResult:
        return await execute_in_order(
            self, batch, on_started, read_claim=lambda: self.files.get(CLAIM_FILE.path)
        )

    async def probe(self, probes: Collection[Probe]) -> Facts:
        self.probes += 1
        return Facts(
            {probe: self.files.get(probe.path) for probe in probes if isinstance(probe, ReadFile)}
        )


@dataclass(frozen=True)
class OneFile:
    """Write one file."""

    path: str
    content: bytes = b"desired\n"
    part: drift.Part | None = None
    refusal: str = ""
    pending_work: str = ""
    skippable: bool = False

    @property
    def name(self) -> str:
        return self.path.strip("/")

    title = "a file"

    def desired(self) -> drift.DesiredPart | None:
        if self.part is None:
            return None
        return drift.DesiredPart(self.part, {self.path: drift.digest(self.content)})

    def probes(self) -> Sequence[Probe]:
        return [ReadFile(self.path)]

    def check_supported(self, facts: Facts) -> None:  # noqa: ARG002 - part of the seam
        if self.refusal:
            raise errors.UnsupportedHost(self.refusal)

    def plan(self, facts: Facts) -> Iterator[Command]:
        if facts.file(ReadFile(self.path)) != self.content:
            yield Write(path=self.path, content=self.content, purpose=f"write {self.name}")

    def pending(self, facts: Facts) -> str:  # noqa: ARG002 - part of the seam
        return self.pending_work

    def is_skippable(self, facts: Facts) -> bool:  # noqa: ARG002 - part of the seam
        return self.skippable


def three_files() -> list[Step]:
    return [
        OneFile("/a", part=drift.Part.FIREWALL),
        OneFile("/b"),
        OneFile("/c", part=drift.Part.AGENT),
    ]


async def test_second_plan_is_empty_and_second_run_probes_once() -> None:
    mac = FakeMac()
    assert (await converge.apply(mac, three_files())).is_changed
    before, mac.probes = len(mac.done), 0

    assert (await converge.plan(mac, three_files())).is_empty
    assert not (await converge.apply(mac, three_files())).is_changed
    assert (len(mac.done), mac.probes) == (before, 2)


@dataclass(frozen=True)
class Copy(OneFile):
    """Copy a file that an earlier step may have just written."""

    source: str = "/a"

    def probes(self) -> Sequence[Probe]:
        return [ReadFile(self.path), ReadFile(self.source)]

    def plan(self, facts: Facts) -> Iterator[Command]:
        source = facts.file(ReadFile(self.source)) or b""
        if facts.file(ReadFile(self.path)) != source:
            yield Write(path=self.path, content=source, purpose=f"write {self.name}")


async def test_step_sees_the_result_of_an_earlier_step() -> None:
    mac = FakeMac()
    await converge.apply(mac, [OneFile("/a"), Copy("/copy")])
    assert mac.files["/copy"] == mac.files["/a"]


async def test_part_is_stamped_together_with_its_step() -> None:
    mac = FakeMac(breaks_at=4)  # /a with its folder and stamp, before /b
    with pytest.raises(errors.HostUnreachable):
        await converge.apply(mac, [*three_files(), OneFile("/d", part=drift.Part.TAILSCALE)])
    assert set(drift.load(mac.files[drift.STAMPS_FILE.path])) == {drift.Part.FIREWALL}


@pytest.mark.parametrize("interrupted_at", range(9))
async def test_interrupted_run_ends_like_an_uninterrupted_one(interrupted_at: int) -> None:
    uninterrupted, mac = FakeMac(), FakeMac(breaks_at=interrupted_at)
    await converge.apply(uninterrupted, three_files())
    if interrupted_at < len(uninterrupted.done):
        with pytest.raises(errors.HostUnreachable):
            await converge.apply(mac, three_files())
    mac.breaks_at = -1
    await converge.apply(mac, three_files())
    assert mac.files == uninterrupted.files


async def test_change_that_does_not_last_is_reported_and_not_stamped() -> None:
    mac = FakeMac(loses="/a")
    with pytest.raises(errors.NotConverged, match=r"mac-1: step a: .*; remaining: write a"):
        await converge.apply(mac, three_files())
    assert drift.STAMPS_FILE.path not in mac.files


class Unplannable(OneFile):
    """A step that fails before its first command."""

    def plan(self, facts: Facts) -> Iterator[Command]:  # noqa: ARG002 - part of the seam
        raise errors.NotConverged("no plan")


async def test_stamp_is_written_although_a_later_step_fails() -> None:
    mac = FakeMac()
    with pytest.raises(errors.NotConverged, match="step z: no plan"):
        await converge.apply(mac, [OneFile("/a", part=drift.Part.FIREWALL), Unplannable("/z")])
    assert set(drift.load(mac.files[drift.STAMPS_FILE.path])) == {drift.Part.FIREWALL}


async def test_error_names_host_and_step_and_keeps_its_type() -> None:
    with pytest.raises(errors.HostUnreachable) as caught:
        await converge.apply(FakeMac(breaks_at=0), three_files())
    assert str(caught.value) == "mac-1: step a: connection lost"


async def test_refusal_of_the_last_step_precedes_the_first_command() -> None:
    mac = FakeMac()
    with pytest.raises(errors.UnsupportedHost, match="mac-1: step z: turn FileVault off"):
        await converge.apply(mac, [*three_files(), OneFile("/z", refusal="turn FileVault off")])
    assert mac.done == []


async def test_refused_skippable_step_is_skipped_and_the_run_fails_at_the_end() -> None:
    mac, events = FakeMac(), list[progress.Progress]()
    skippable = OneFile("/z", refusal="turn FileVault off", skippable=True)
    with pytest.raises(errors.UnsupportedHost) as caught:
        await converge.apply(mac, [skippable, *three_files()], on_progress=events.append)
    assert str(caught.value) == "mac-1: step z: turn FileVault off; all other steps were done"
    assert events[0] == progress.StepSkipped(skippable, "turn FileVault off")
    assert set(mac.files) == {"/a", "/b", "/c", drift.STAMPS_FILE.path}


async def test_error_after_a_skipped_step_reports_both() -> None:
    skippable = OneFile("/z", refusal="turn FileVault off", skippable=True)
    with pytest.raises(errors.HostUnreachable) as caught:
        await converge.apply(FakeMac(breaks_at=0), [skippable, *three_files()])
    assert str(caught.value) == ("mac-1: step a: connection lost; also: step z: turn FileVault off")


async def test_later_steps_are_derived_from_stamps_without_another_probe() -> None:
    mac = FakeMac()
    found: list[drift.Stamps] = []

    def later_steps(stamps: drift.Stamps) -> list[Step]:
        found.append(stamps)
        return [OneFile("/last")] if "/last" not in mac.files else []

    report = await converge.apply(mac, three_files(), later_steps=later_steps)
    assert list(report.changed) == ["a", "b", "c", "last"]
    assert set(found[0]) == {drift.Part.FIREWALL, drift.Part.AGENT}
    mac.probes = 0
    assert (await converge.plan(mac, three_files(), later_steps=later_steps)).is_empty
    assert not (await converge.apply(mac, three_files(), later_steps=later_steps)).is_changed
    assert mac.probes == 2


async def test_plan_contains_refusals_and_pending_work_and_changes_nothing() -> None:
    mac = FakeMac()
    waiting = OneFile("/w", pending_work="RebootPending: VMs run")
    planned = await converge.plan(mac, [waiting, OneFile("/z", refusal="no")])
    assert [(one.pending, one.refusal) for one in planned.steps] == [
        ("RebootPending: VMs run", ""),
        ("", "no"),
    ]
    assert not planned.is_empty
    assert mac.done == []


class Advisor(OneFile):
    """A step that gives advice."""

    def advice(self, facts: Facts) -> str:  # noqa: ARG002 - part of the seam
        return "UpdateAdvised: old"


async def test_advice_is_reported_and_does_not_prevent_convergence() -> None:
    mac = FakeMac()
    events: list[progress.Progress] = []
    report = await converge.apply(mac, [Advisor("/a")], on_progress=events.append)
    planned = await converge.plan(mac, [Advisor("/a")])

    assert report.advice == planned.advice == ("UpdateAdvised: old",)
    assert [one.advice for one in events if isinstance(one, progress.StepFinished)] == [
        *report.advice
    ]
    assert planned.is_converged


async def test_pending_work_is_reported() -> None:
    events: list[progress.Progress] = []
    report = await converge.apply(
        FakeMac(), [OneFile("/w", pending_work="RebootPending: VMs run")], on_progress=events.append
    )
    assert report.pending == ("RebootPending: VMs run",)
    assert [type(one) for one in events] == [
        progress.StepStarted,
        progress.CommandStarted,
        progress.StepFinished,
    ]


async def test_only_changed_parts_are_planned_again() -> None:
    mac = FakeMac()
    await converge.apply(mac, three_files())
    changed: list[Step] = [
        OneFile("/a", part=drift.Part.FIREWALL),
        OneFile("/c", b"new", drift.Part.AGENT),
    ]
    planned = await converge.plan(mac, changed)
    # The file, and with it the stamp.
    assert [len(one.commands) for one in planned.steps] == [0, 1 + len([*drift.write_stamps({})])]


async def test_stamps_are_written_with_their_folder() -> None:
    assert {type(one) for one in drift.write_stamps({})} == {Folder, Write}


class Rebooter(OneFile):
    """A step that reboots the Mac in every plan, whatever the facts are."""

    def plan(self, facts: Facts) -> Iterator[Command]:
        yield from super().plan(facts)
        yield Reboot(purpose=f"reboot the Mac for {self.name}")


@pytest.mark.parametrize(("no_reboot", "expected"), [(False, 1), (True, 0)])
async def test_mac_is_never_rebooted_twice_and_not_at_all_if_that_is_excluded(
    no_reboot: bool, expected: int
) -> None:
    mac = FakeMac()
    with pytest.raises(errors.NotConverged, match="reboot the Mac for"):
        await converge.apply(mac, [Rebooter("/a"), Rebooter("/b")], no_reboot=no_reboot)
    assert sum(isinstance(one, Reboot) for one in mac.done) == expected
