"""A connection to a simulated Mac without a line: the vocabulary of host steps, answered by the model under any clock."""

from __future__ import annotations

from collections.abc import Collection

from bramley.base.clock import Clock
from bramley.host.commands import Command, Probe
from bramley.host.facts import Facts
from bramley.sim.macos.faults import Faults
from bramley.sim.macos.mac import Mac


class ModelConnection:
    """One Mac, as host.connection.Connection has it; `done` are the commands that were done, `looks` counts the round trips of questions."""

    def __init__(
        self, mac: Mac, *, clock: Clock, user: str = "m1", faults: Faults | None = None
    ) -> None:
        self.mac = mac
        self.done: list[Command] = []
        self.looks = 0
        self.faults = faults or Faults()
        self._clock = clock
        self._user = user

    @property
    def host(self) -> str:
        """Return how people call this Mac."""
        return str(self.mac.state["host_name"])

    async def do(self, command: Command) -> None:
        """Do one command to its end."""
        raise NotImplementedError

    async def look(self, probes: Collection[Probe]) -> Facts:
        """Ask all questions in one round trip."""
        raise NotImplementedError
