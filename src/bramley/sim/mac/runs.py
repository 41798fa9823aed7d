"""`tart run` under supervisors on a simulated Mac: they outlive the agent, and a reboot ends them without a word."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bramley.agent.runs import Ended, Run
from bramley.agent.vm_logs import redacted
from bramley.base import errors
from bramley.sim.mac.processes import Call, Process

if TYPE_CHECKING:
    from bramley.sim.mac.agent_process import AgentSide
    from bramley.sim.mac.mac import SimulatedMac

SUPERVISOR = "supervisor.sh"
_LINES = 20


@dataclass(slots=True, eq=False)
class Supervised:
    """The folder of one run on disk, kept in memory; the supervisor is lost when it died without writing the end down."""

    run: Run
    supervisor: Process | None = None
    tart: Process | None = None
    ended: Ended | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))

    @property
    def lives(self) -> bool:
        """Tell whether the supervisor or its tart lives."""
        return any(each is not None and each.lives for each in (self.supervisor, self.tart))


class SimulatedRuns:
    """Starts and follows `tart run` for one agent."""

    def __init__(self, side: AgentSide) -> None:
        self._side = side
        self._runs = side.mac.supervised

    async def start(self, run: Run) -> None:
        """Begin a run."""
        side = self._side
        await side.reach("before run")
        if run.vm in self._runs:
            raise errors.AlreadyExists(f"a run of {run.vm} was begun before")
        supervised = self._runs[run.vm] = Supervised(run)
        await side.reach("within run")
        supervise(side.mac, supervised)
        await side.reach("after run")

    def is_begun(self, vm: str) -> bool:
        """Tell whether a run of this name was begun and not forgotten."""
        return vm in self._runs

    def is_alive(self, vm: str) -> bool:
        """Tell whether the run lives."""
        return vm in self._runs and self._runs[vm].lives

    def ended(self, vm: str) -> Ended | None:
        """Return how the run ended; without a code if its supervisor is lost."""
        supervised = self._runs.get(vm)
        if supervised is None or supervised.lives:
            return None
        return supervised.ended or Ended(None, None)

    async def wait(self, vm: str) -> Ended:
        """Wait until the run has ended."""
        supervised = self._runs.get(vm)
        if supervised is None:
            raise errors.NotFound(f"no run of {vm} was begun")
        for process in (supervised.supervisor, supervised.tart):
            if process is not None:
                await asyncio.shield(process.ended)
        await self._side.outlive()
        return supervised.ended or Ended(None, None)

    def kill(self, vm: str) -> None:
        """Kill tart; its supervisor writes that down."""
        supervised = self._runs.get(vm)
        if self._side.lives and supervised is not None and supervised.tart is not None:
            self._side.mac.table.kill(supervised.tart.pid)
            self._side.pass_by("after kill")

    def said(self, vm: str) -> str:
        """Return the last lines of tart."""
        supervised = self._runs.get(vm)
        return redacted("\n".join(supervised.lines)) if supervised else ""

    def forget(self, vm: str) -> None:
        """Drop the folder of a run; Conflict while it lives."""
        if not self._side.lives:
            return
        if self.is_alive(vm):
            raise errors.Conflict(f"the run of {vm} has not ended")
        self._runs.pop(vm, None)
        self._side.pass_by("after forgetting a run")


def supervise(mac: SimulatedMac, supervised: Supervised) -> None:
    """Start the supervisor of a run."""
    argv = ("/bin/sh", SUPERVISOR, *supervised.run.argv)
    supervised.supervisor = mac.table.spawn(argv, lambda _: _supervise(mac, supervised))
    supervised.tart = _tart(mac, supervised, supervised.supervisor.pid)


async def _supervise(mac: SimulatedMac, supervised: Supervised) -> int:
    if supervised.tart is None:
        raise RuntimeError("a supervisor was started without its tart")
    code = await asyncio.shield(supervised.tart.ended)
    supervised.ended = Ended(code, mac.clock.now())
    return 0


def _tart(mac: SimulatedMac, supervised: Supervised, parent: int) -> Process:
    log = mac.folders.vm_logs / f"{supervised.run.vm}.log"

    def hear(line: str) -> None:
        supervised.lines.append(line)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as out:
            out.write(f"{line}\n")

    run = supervised.run
    return mac.start(Call(run.argv, hear, hear, dict(run.environment)), parent=parent)
