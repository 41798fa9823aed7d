"""The two sides of the seams to programs and runs, played by the same scripts: real processes, and a simulated Mac."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shlex
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bramley.agent import platform
from bramley.agent.processes import SystemPrograms
from bramley.agent.programs import Programs
from bramley.agent.runs import Runs
from bramley.agent.supervised_runs import SupervisedRuns
from bramley.base.clock import SystemClock

REAL = "processes"
SIMULATED = "simulated"
TICK = 0.02
PATIENCE = 180


@dataclass(frozen=True, slots=True)
class Play:
    """What a program does, in this order."""

    out: Sequence[str] = ()
    err: Sequence[str] = ()
    echoes_input: bool = False
    tells_variable: str = ""
    until: Path | None = None  # lines `tick`, one every TICK seconds, until this file is there
    hangs: bool = False
    code: int = 0


class Stage(Protocol):
    """One machine; `programs` and `runs` are those of the agent that lives now."""

    programs: Programs
    runs: Runs

    def argv(self, play: Play) -> list[str]:
        """Return a command line that plays."""
        ...

    def next_agent(self) -> None:
        """Let the agent die and another one begin."""
        ...

    def living(self) -> int:
        """Return how many of our plays live."""
        ...

    def lose_supervisor(self, vm: str) -> None:
        """Kill the supervisor of a run with tart, so that nobody can tell how it ended."""
        ...

    def reboot(self) -> None:
        """Let the machine have booted anew, as far as the next agent can tell."""
        ...


class Rebooted:
    """This machine with another boot id."""

    def __init__(self) -> None:
        self._really = platform.current()

    def boot_id(self) -> str:
        return "another boot"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._really, name)


class RealStage:
    """Shell scripts on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._system: Any = platform.current()
        self._marker = f"play-{random.getrandbits(64):x}"
        self.next_agent()

    def next_agent(self) -> None:
        environment = {**os.environ, "ours": "yes"}
        self.programs: Programs = SystemPrograms(environment)
        self.runs: Runs = SupervisedRuns(
            self._folder / "state",
            self._folder / "logs",
            SystemClock(),
            environment=environment,
            system=self._system,
        )

    def argv(self, play: Play) -> list[str]:
        lines = [
            *(f"echo {shlex.quote(line)}" for line in play.out),
            *(f"echo {shlex.quote(line)} >&2" for line in play.err),
            *(["cat"] if play.echoes_input else []),
            *([f"echo ${play.tells_variable}"] if play.tells_variable else []),
            *([_ticking(play.until)] if play.until else []),
            *(["sleep 600"] if play.hangs else []),
            f"exit {play.code}",
        ]
        return ["/bin/sh", "-c", "\n".join(lines), self._marker]

    def living(self) -> int:
        return len([each for each in self._system.processes() if each.argv[3:] == (self._marker,)])

    def lose_supervisor(self, vm: str) -> None:
        for name in ("supervisor", "tart"):
            noted = (self._folder / "state/runs" / vm / name).read_text()
            os.kill(int(noted.split()[0]), signal.SIGKILL)

    def reboot(self) -> None:
        self._system = Rebooted()

    def clear(self) -> None:
        for each in self._system.processes():
            if self._marker in each.argv:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)


def _ticking(until: Path) -> str:
    return f"while [ ! -e {shlex.quote(str(until))} ]; do echo tick; sleep {TICK}; done"


class SimulatedStage:
    """Programs of a simulated Mac."""

    def __init__(self, folder: Path, group: asyncio.TaskGroup) -> None:
        from bramley.sim.mac.mac import SimulatedMac

        self.mac = SimulatedMac(folder, clock=SystemClock(), rng=random.Random(0), group=group)
        self._plays: list[Play] = []
        self.mac._programs["play"] = self._play
        self._side = self.mac.start_agent()
        self.next_agent()

    def next_agent(self) -> None:
        self._side.kill()
        self._side = self.mac.start_agent()
        self.programs: Programs = self._side.programs
        self.runs: Runs = self._side.runs

    def argv(self, play: Play) -> list[str]:
        self._plays.append(play)
        return ["/usr/local/bin/play", str(len(self._plays) - 1)]

    async def _play(self, process: Any, call: Any) -> int:
        play = self._plays[int(call.argv[1])]
        for line in play.out:
            call.out(line)
        for line in play.err:
            call.err(line)
        if play.echoes_input and call.stdin:
            call.out(call.stdin.decode().removesuffix("\n"))
        if play.tells_variable:
            call.out(call.environment.get(play.tells_variable, ""))
        while play.until and not play.until.exists():
            # As the driver of the simulated tart does before each effect.
            if process.gate is not None:
                await process.gate.wait()
            call.out("tick")
            await asyncio.sleep(TICK)
        if play.hangs:
            await asyncio.get_running_loop().create_future()
        return play.code

    def living(self) -> int:
        return len([each for each in self.mac.table.living() if each.argv[0].endswith("/play")])

    def lose_supervisor(self, vm: str) -> None:
        supervised = self.mac.supervised[vm]
        for process in (supervised.supervisor, supervised.tart):
            assert process is not None
            self.mac.table.kill(process.pid)

    def reboot(self) -> None:
        self.mac.reboot()


@contextlib.asynccontextmanager
async def on(target: str, folder: Path) -> AsyncIterator[Stage]:
    """Build a stage, and clear it whatever happened on it."""
    if target == REAL:
        real = RealStage(folder)
        try:
            yield real
        finally:
            real.clear()
        return
    async with asyncio.TaskGroup() as group:
        stage = SimulatedStage(folder, group)
        yield stage
        stage.reboot()


async def until(fact: Callable[[], bool], *, seconds: float = PATIENCE) -> None:
    """Wait until something has come true."""
    async with asyncio.timeout(seconds):
        while not fact():
            await asyncio.sleep(0.005)
