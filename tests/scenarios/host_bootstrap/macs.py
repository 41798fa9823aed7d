"""Bare Macs for stories of a whole bootstrap, in process: what is done to them, and copies of them taken on the way."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from bramley.base import virtual_time
from bramley.host import sequence
from bramley.host.commands import Command
from bramley.host.step import Step
from bramley.sim.macos.in_process import ModelConnection
from bramley.sim.macos.mac import Mac
from tests.unit.host.steps import wanted


def steps(folder: Path, **changes: Any) -> list[Step]:
    """Return the steps of a Mac with everything."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = wanted.spec(folder, client_authority=wanted.AUTHORITY.encode(), **changes)
    return sequence.steps(spec, clock=virtual_time.clock())


class Copying(ModelConnection):
    """A line that copies the Mac after commands, by their number: as it is then, a run that was cut there leaves it."""

    def __init__(self, mac: Mac, folder: Path, wanted: Collection[int]) -> None:
        super().__init__(mac, clock=virtual_time.clock())
        self.copies: dict[int, Mac] = {}
        self._folder = folder
        self._wanted = wanted

    async def do(self, command: Command) -> None:
        await super().do(command)
        number = len(self.done) - 1
        if number in self._wanted:
            self.copies[number] = self.mac.copy(self._folder / f"after-{number}")


def line_to(mac: Mac) -> ModelConnection:
    return ModelConnection(mac, clock=virtual_time.clock())
