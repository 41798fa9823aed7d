"""Cut tests for steps: the line breaks after each command in turn, and a second run makes the Mac what an uncut one makes it.

A scene is a Mac in a folder, already brought to where the steps begin; every cut gets a copy of its own.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bramley.base import virtual_time
from bramley.base.errors import HostUnreachable
from bramley.host import ensuring
from bramley.host.step import Step
from bramley.sim.macos.faults import Cut, Faults, Moment
from bramley.sim.macos.in_process import ModelConnection
from bramley.sim.macos.mac import Mac
from bramley.sim.macos.settings import Settings

PASSWORD = Settings().password
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
        await ensuring.apply(_line(mac), before)
        change(mac)
        return scene

    def copy(self, name: str) -> ModelConnection:
        """Return a line to a Mac of its own that is as the scene has it."""
        begin = Mac(self.root / "begin", clock=virtual_time.clock())
        return _line(begin.copy(self.root / name))


async def cut_everywhere(scene: Scene, steps: Sequence[Step]) -> dict[str, Any]:
    """Cut a run after each command, run again, and expect what an uncut run leaves; returns that."""
    whole = scene.copy("whole")
    await ensuring.apply(whole, steps)
    expected = whole.mac.snapshot()
    assert whole.done, "a run without commands cannot be cut"
    for number in range(len(whole.done)):
        line = scene.copy(f"cut-{number}")
        line.faults.at(number, Cut(Moment.UNANSWERED))
        with pytest.raises(HostUnreachable):
            await ensuring.apply(line, steps)
        await come_back(line.mac)

        await ensuring.apply(line, steps)

        where = f"cut after command {number}: {whole.done[number].purpose}"
        assert (await ensuring.plan(line, steps)).is_empty, where
        assert line.mac.snapshot() == expected, where
        shutil.rmtree(line.mac.root)
    return expected


async def come_back(mac: Mac) -> None:
    """Let a Mac that was restarting when the line broke come back."""
    while not mac.is_up:
        await asyncio.sleep(1)


def _line(mac: Mac) -> ModelConnection:
    user = mac.state["settings"]["user"]
    return ModelConnection(mac, clock=virtual_time.clock(), user=user, faults=Faults())
