"""Cut tests for steps: the line breaks after each command in turn, and a second run makes the Mac what an uncut one makes it.

A scene is a Mac in a folder, already brought to where the steps begin. A run that is cut leaves the Mac as the uncut one had it at
that moment, which tests/scenarios/host_bootstrap proves of every kind of cut. So the Macs of all cuts are copies of one that is
made without any, each taken after a command. Under hypothesis' profile `fast` only some of the cuts are looked at.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bramley.api.names import host
from bramley.base import virtual_time
from bramley.host import converge
from bramley.host.claim import Claim
from bramley.host.commands import Command
from bramley.host.step import Step
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.faults import Faults
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from tests.unit import example_counts

PASSWORD = Settings().password
# One in so many cuts is looked at under the profile `fast`.
SOME = 6
Change = Callable[[Mac], None]


@dataclass(frozen=True)
class Scene:
    """A Mac that steps begin with."""

    root: Path
    settings: Settings = field(default_factory=Settings)

    @classmethod
    async def make(
        cls,
        root: Path,
        *before: Step,
        settings: Settings | None = None,
        change: Change = lambda _: None,
    ) -> Scene:
        """Make a Mac in a folder, let steps be done, then something happen to it."""
        scene = cls(root, settings or Settings())
        mac = Mac.make(root / "begin", settings=scene.settings, clock=virtual_time.clock())
        await converge.apply(_line(mac), before)
        change(mac)
        return scene

    def copy(self, name: str) -> ModelConnection:
        """Return a line to a Mac of its own that is as the scene has it."""
        begin = Mac(self.root / "begin", clock=virtual_time.clock())
        return _line(begin.copy(self.root / name))


class Copying(ModelConnection):
    """A line that copies the Mac after commands, by their number: as it is then, a run that was cut there leaves it."""

    def __init__(self, mac: Mac, folder: Path, wanted: Collection[int]) -> None:
        super().__init__(mac, clock=virtual_time.clock(), user=mac.state["settings"]["user"])
        self.copies: dict[int, Mac] = {}
        self._folder = folder
        self._wanted = wanted

    async def do(self, command: Command) -> None:
        await super().do(command)
        number = len(self.done) - 1
        if number in self._wanted:
            self.copies[number] = self.mac.copy(self._folder / f"after-{number}")


def cuts(first: int = 0, every: int = 1) -> range:
    """Return the numbers of commands to cut after: all that are asked for, or some of them under the profile `fast`."""
    return range(first, 1000, every * (SOME if example_counts.share() < 1 else 1))


async def cut_everywhere(scene: Scene, steps: Sequence[Step]) -> dict[str, Any]:
    """Cut a run after each command, run again, and expect what an uncut run leaves; returns that."""
    whole = Copying(scene.copy("whole").mac, scene.root / "copies", cuts())
    await converge.apply(whole, steps)
    expected = whole.mac.snapshot()
    assert whole.done, "a run without commands cannot be cut"
    await take_up(whole, steps, expected)
    return expected


async def take_up(
    whole: Copying, steps: Sequence[Step], expected: dict[str, Any], *, claims: bool = False
) -> None:
    """Run again on the Macs of all cuts, and expect each to become that, but for who claims it."""
    for number, mac in whole.copies.items():
        where = f"cut after command {number}: {whole.done[number].purpose}"
        await come_back(mac)
        line = _line(mac)

        await converge.apply(line, steps, claim=a_claim(f"second-{number}") if claims else None)

        assert _unclaimed(mac.snapshot()) == _unclaimed(expected), where
        assert (await converge.plan(line, steps)).is_empty, where
        shutil.rmtree(mac.root)


def a_claim(run: str) -> Claim:
    """Return the claim of one run, as everybody who applies steps has one."""
    return Claim(run=run, by="a test")


def _unclaimed(snapshot: dict[str, Any]) -> dict[str, Any]:
    files = snapshot["files"].items()
    return {**snapshot, "files": {path: told for path, told in files if host.CLAIM not in path}}


async def come_back(mac: Mac) -> None:
    """Let a Mac that was restarting when the line broke come back."""
    while not mac.is_up:
        await asyncio.sleep(1)


def _line(mac: Mac) -> ModelConnection:
    user = mac.state["settings"]["user"]
    return ModelConnection(mac, clock=virtual_time.clock(), user=user, faults=Faults())
