"""The two implementations of programs and runs, with the same scripts: real processes, and a simulated Mac."""

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
TIMEOUT_SECONDS = 180


@dataclass(frozen=True, slots=True)
class Script:
    """The actions of a program, in this order."""

    out: Sequence[str] = ()
    err: Sequence[str] = ()
    echoes_input: bool = False
    prints_variable: str = ""
    until: Path | None = None  # lines `tick`, one every TICK seconds, until this file exists
    hangs: bool = False
    code: int = 0


class Target(Protocol):
    """One machine; `programs` and `runs` are those of the current agent."""

    programs: Programs
    runs: Runs

    def argv(self, script: Script) -> list[str]:
        """Return a command line that runs a script."""
        ...

    def next_agent(self) -> None:
        """Kill the agent and start another one."""
        ...

    def living(self) -> int:
        """Return the number of running scripts."""
        ...

    def lose_supervisor(self, vm: str) -> None:
        """Kill the supervisor of a run and tart, so that no exit code is recorded."""
        ...

    def reboot(self) -> None:
        """Make the next agent see another boot id."""
        ...


class Rebooted:
    """This machine with another boot id."""

    def __init__(self) -> None:
        self._system = platform.current()

    def boot_id(self) -> str:
        return "another boot"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)


class RealTarget:
    """Shell scripts on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._system: Any = platform.current()
        self._marker = f"script-{random.getrandbits(64):x}"
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

    def argv(self, script: Script) -> list[str]:
        lines = [
            *(f"echo {shlex.quote(line)}" for line in script.out),
            *(f"echo {shlex.quote(line)} >&2" for line in script.err),
            *(["cat"] if script.echoes_input else []),
            *([f"echo ${script.prints_variable}"] if script.prints_variable else []),
            *([_tick_until(script.until)] if script.until else []),
            *(["sleep 600"] if script.hangs else []),
            f"exit {script.code}",
        ]
        return ["/bin/sh", "-c", "\n".join(lines), self._marker]

    def living(self) -> int:
        return len([each for each in self._system.processes() if each.argv[3:] == (self._marker,)])

    def lose_supervisor(self, vm: str) -> None:
        for name in ("supervisor", "tart"):
            recorded = (self._folder / "state/runs" / vm / name).read_text()
            os.kill(int(recorded.split()[0]), signal.SIGKILL)

    def reboot(self) -> None:
        self._system = Rebooted()

    def clear(self) -> None:
        for each in self._system.processes():
            if self._marker in each.argv:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)


def _tick_until(until: Path) -> str:
    return f"while [ ! -e {shlex.quote(str(until))} ]; do echo tick; sleep {TICK}; done"


class SimulatedTarget:
    """Programs of a simulated Mac."""

    def __init__(self, folder: Path, group: asyncio.TaskGroup) -> None:
        from bramley.sim.mac.mac import SimulatedMac

        self.mac = SimulatedMac(folder, clock=SystemClock(), rng=random.Random(0), group=group)
        self._scripts: list[Script] = []
        self.mac._programs["script"] = self._run_script
        self._agent = self.mac.start_agent()
        self.next_agent()

    def next_agent(self) -> None:
        self._agent.kill()
        self._agent = self.mac.start_agent()
        self.programs: Programs = self._agent.programs
        self.runs: Runs = self._agent.runs

    def argv(self, script: Script) -> list[str]:
        self._scripts.append(script)
        return ["/usr/local/bin/script", str(len(self._scripts) - 1)]

    async def _run_script(self, process: Any, call: Any) -> int:
        script = self._scripts[int(call.argv[1])]
        for line in script.out:
            call.out(line)
        for line in script.err:
            call.err(line)
        if script.echoes_input and call.stdin:
            call.out(call.stdin.decode().removesuffix("\n"))
        if script.prints_variable:
            call.out(call.environment.get(script.prints_variable, ""))
        while script.until and not script.until.exists():
            # The driver of the simulated tart waits here before each effect, too.
            if process.gate is not None:
                await process.gate.wait()
            call.out("tick")
            await asyncio.sleep(TICK)
        if script.hangs:
            await asyncio.get_running_loop().create_future()
        return script.code

    def living(self) -> int:
        return len([each for each in self.mac.table.living() if each.argv[0].endswith("/script")])

    def lose_supervisor(self, vm: str) -> None:
        supervised = self.mac.supervised[vm]
        for process in (supervised.supervisor, supervised.tart):
            assert process is not None
            self.mac.table.kill(process.pid)

    def reboot(self) -> None:
        self.mac.reboot()


@contextlib.asynccontextmanager
async def on(target: str, folder: Path) -> AsyncIterator[Target]:
    """Yield a machine, and end its processes afterwards."""
    if target == REAL:
        real = RealTarget(folder)
        try:
            yield real
        finally:
            real.clear()
        return
    async with asyncio.TaskGroup() as group:
        machine = SimulatedTarget(folder, group)
        yield machine
        machine.reboot()


async def until(condition: Callable[[], bool], *, seconds: float = TIMEOUT_SECONDS) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
