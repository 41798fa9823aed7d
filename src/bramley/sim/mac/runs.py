"""`tart run` under supervisors on a simulated Mac: they survive the agent, and a reboot kills them without a trace."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bramley.agent.runs import TAIL_LINES, Run, RunExit
from bramley.agent.vm_logs import redact
from bramley.base import errors
from bramley.sim.mac.processes import Call, Process

if TYPE_CHECKING:
    from bramley.sim.mac.agent_process import AgentProcess
    from bramley.sim.mac.mac import SimulatedMac

SUPERVISOR = "supervisor.sh"
_LINES = 1000


@dataclass(slots=True, eq=False)
class SupervisedRun:
    """One run, in memory instead of a folder on disk; a supervisor killed before it recorded the end is lost."""

    run: Run
    supervisor: Process | None = None
    tart: Process | None = None
    exit: RunExit | None = None
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))

    @property
    def is_alive(self) -> bool:
        """Return whether the supervisor or its tart is running."""
        return any(each is not None and each.is_alive for each in (self.supervisor, self.tart))


class SimulatedRuns:
    """Starts and follows `tart run` for one agent."""

    def __init__(self, agent: AgentProcess) -> None:
        self._agent = agent
        self._runs = agent.mac.supervised

    async def start(self, run: Run) -> None:
        """Start a run."""
        agent = self._agent
        await agent.checkpoint("before run")
        if run.vm in self._runs:
            raise errors.AlreadyExists(f"VM {run.vm} already has a run")
        supervised = self._runs[run.vm] = SupervisedRun(run)
        await agent.checkpoint("within run")
        supervise(agent.mac, supervised)
        await agent.checkpoint("after run")

    def exists(self, vm: str) -> bool:
        """Return whether a run of this name was started and not forgotten."""
        return vm in self._runs

    def is_alive(self, vm: str) -> bool:
        """Return whether the run is alive."""
        return vm in self._runs and self._runs[vm].is_alive

    def find_exit(self, vm: str) -> RunExit | None:
        """Return how the run ended; without an exit code if its supervisor is lost."""
        supervised = self._runs.get(vm)
        if supervised is None or supervised.is_alive:
            return None
        return supervised.exit or RunExit(None, None)

    async def wait(self, vm: str) -> RunExit:
        """Wait until the run has ended."""
        supervised = self._runs.get(vm)
        if supervised is None:
            raise errors.NotFound(f"VM {vm} has no run")
        for process in (supervised.supervisor, supervised.tart):
            if process is not None:
                await asyncio.shield(process.exit_code)
        await self._agent.block_if_dead()
        return supervised.exit or RunExit(None, None)

    def kill(self, vm: str) -> None:
        """Kill tart; its supervisor records the end."""
        supervised = self._runs.get(vm)
        if self._agent.is_alive and supervised is not None and supervised.tart is not None:
            self._agent.mac.table.kill(supervised.tart.pid)
            self._agent.notify_checkpoint("after kill")

    def output_tail(self, vm: str, lines: int = TAIL_LINES) -> str:
        """Return the last lines of tart in this run."""
        supervised = self._runs.get(vm)
        return redact("\n".join(list(supervised.lines)[-lines:])) if supervised else ""

    def forget(self, vm: str) -> None:
        """Remove a run; Conflict while it is alive."""
        if not self._agent.is_alive:
            return
        if self.is_alive(vm):
            raise errors.Conflict(f"the run of {vm} has not ended")
        self._runs.pop(vm, None)
        self._agent.notify_checkpoint("after forgetting a run")


def supervise(mac: SimulatedMac, supervised: SupervisedRun) -> None:
    """Start the supervisor of a run."""
    argv = ("/bin/sh", SUPERVISOR, *supervised.run.argv)
    supervised.supervisor = mac.table.spawn(argv, lambda _: _supervise(mac, supervised))
    supervised.tart = _tart(mac, supervised, supervised.supervisor.pid)


async def _supervise(mac: SimulatedMac, supervised: SupervisedRun) -> int:
    if supervised.tart is None:
        raise RuntimeError("a supervisor was started without its tart")
    code = await asyncio.shield(supervised.tart.exit_code)
    supervised.exit = RunExit(code, mac.clock.now())
    return 0


def _tart(mac: SimulatedMac, supervised: SupervisedRun, parent: int) -> Process:
    log = mac.folders.vm_logs / f"{supervised.run.vm}.log"

    def log_line(line: str) -> None:
        supervised.lines.append(line)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as out:
            out.write(f"{line}\n")

    run = supervised.run
    return mac.start(Call(run.argv, log_line, log_line, dict(run.environment)), parent=parent)
