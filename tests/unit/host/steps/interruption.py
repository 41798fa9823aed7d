"""Interrupted runs: the connection breaks after each command in turn, and a second run must produce the result of an uninterrupted one.

A template is a Mac in a folder, in the state in which the steps begin. An interrupted run leaves the Mac in the state that the
uninterrupted run had at that command; tests/scenarios/host_bootstrap proves this for every kind of interruption. So one uninterrupted
run suffices, and the Mac is copied after each command. Hypothesis' profile `fast` tests only some of the interruptions.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bramley.api.names import host
from bramley.host import converge
from bramley.host.claim import Claim
from bramley.host.commands import Command
from bramley.host.step import Step
from bramley.sim.macos.connection import ModelConnection
from bramley.sim.macos.faults import Faults
from bramley.sim.macos.fresh_install import Settings
from bramley.sim.macos.mac import Mac
from tests import virtual_time
from tests.unit import example_counts

PASSWORD = Settings().password
# The profile `fast` tests one in so many interruptions.
FAST_STRIDE = 6
Change = Callable[[Mac], None]


@dataclass(frozen=True)
class MacTemplate:
    """A Mac in the state in which steps begin."""

    root: Path
    settings: Settings = field(default_factory=Settings)

    @classmethod
    async def make(
        cls,
        root: Path,
        *before: Step,
        settings: Settings | None = None,
        change: Change = lambda _: None,
    ) -> MacTemplate:
        """Create a Mac in a folder, apply steps, then change it."""
        template = cls(root, settings or Settings())
        mac = Mac.create(root / "start", settings=template.settings, clock=virtual_time.clock())
        await converge.apply(_connect(mac), before)
        change(mac)
        return template

    def copy(self, name: str) -> ModelConnection:
        """Return a connection to a new copy of the Mac."""
        start = Mac(self.root / "start", clock=virtual_time.clock())
        return _connect(start.copy(self.root / name))


class CopyingConnection(ModelConnection):
    """Copies the Mac after the commands with these numbers: an interruption there would leave it in that state."""

    def __init__(self, mac: Mac, folder: Path, numbers: Collection[int]) -> None:
        super().__init__(mac, clock=virtual_time.clock(), user=mac.state["settings"]["user"])
        self.copies: dict[int, Mac] = {}
        self._folder = folder
        self._numbers = numbers

    async def execute(self, command: Command) -> None:
        await super().execute(command)
        number = len(self.done) - 1
        if number in self._numbers:
            self.copies[number] = self.mac.copy(self._folder / f"after-{number}")


def interruption_points(first: int = 0, every: int = 1) -> range:
    """Return the numbers of the commands to interrupt after; only some of them under the profile `fast`."""
    return range(first, 1000, every * (FAST_STRIDE if example_counts.share() < 1 else 1))


async def interrupt_everywhere(template: MacTemplate, steps: Sequence[Step]) -> dict[str, Any]:
    """Interrupt a run after each command, run again, and expect the state that an uninterrupted run leaves; return that state."""
    uninterrupted = CopyingConnection(
        template.copy("uninterrupted").mac, template.root / "copies", interruption_points()
    )
    await converge.apply(uninterrupted, steps)
    expected = uninterrupted.mac.snapshot()
    assert uninterrupted.done, "a run without commands cannot be interrupted"
    await resume_all(uninterrupted, steps, expected)
    return expected


async def resume_all(
    uninterrupted: CopyingConnection,
    steps: Sequence[Step],
    expected: dict[str, Any],
    *,
    claims: bool = False,
) -> None:
    """Run again on the copies of all interruptions; each must reach the expected state, except for its claim."""
    for number, mac in uninterrupted.copies.items():
        where = f"interrupted after command {number}: {uninterrupted.done[number].purpose}"
        await wait_until_up(mac)
        connection = _connect(mac)

        await converge.apply(
            connection, steps, claim=new_claim(f"second-{number}") if claims else None
        )

        assert _unclaimed(mac.snapshot()) == _unclaimed(expected), where
        assert (await converge.plan(connection, steps)).is_empty, where
        shutil.rmtree(mac.root)


def new_claim(run: str) -> Claim:
    """Return the claim of one run."""
    return Claim(run=run, by="a test")


def _unclaimed(snapshot: dict[str, Any]) -> dict[str, Any]:
    files = snapshot["files"].items()
    return {**snapshot, "files": {path: entry for path, entry in files if host.CLAIM not in path}}


async def wait_until_up(mac: Mac) -> None:
    """Wait for a Mac that was rebooting when the connection broke."""
    while not mac.is_up:
        await asyncio.sleep(1)


def _connect(mac: Mac) -> ModelConnection:
    user = mac.state["settings"]["user"]
    return ModelConnection(mac, clock=virtual_time.clock(), user=user, faults=Faults())
