"""A simulated Mac under virtual time: files in a folder, processes and locks in memory, one agent at a time.

Nothing of the real machine is touched but the folder. The same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from bramley.agent.host import Space
from bramley.agent.programs import ProgramMissing
from bramley.base.clock import Clock
from bramley.sim.mac import small_programs
from bramley.sim.mac.calls import Call, Program
from bramley.sim.mac.faults import TART, Fault, Faults
from bramley.sim.mac.folder import folders
from bramley.sim.mac.processes import Process, Table
from bramley.sim.mac.runs import Supervised
from bramley.sim.mac.script import Script
from bramley.sim.mac.session import Session
from bramley.sim.mac.side import AgentSide
from bramley.sim.tart import in_process

DISK_BYTES = 460_000_000_000
# As a fleet sets it: with macOS' own day, the addresses of a busy Mac run out.
LEASE_SECONDS = 600
ADDRESS = "10.20.0.11"
TAILNET_ADDRESS = "100.64.0.11"
_LAUNCHD_S_CHILD = 100


class SimulatedMac:
    """One Mac; its agent works through `agent_side`, its owner through `script`, `faults`, `session` and `reboot`."""

    def __init__(
        self, root: Path, *, clock: Clock, rng: random.Random, group: asyncio.TaskGroup
    ) -> None:
        self.clock = clock
        self.address: str | None = ADDRESS
        self.tailnet_address: str | None = TAILNET_ADDRESS
        self.boots = 1
        self.folders = folders(root)
        self.script = Script(
            self.folders.tart_home / "sim.json",
            {"host": {"disk_bytes": DISK_BYTES, "lease_seconds": LEASE_SECONDS}},
        )
        self.faults = Faults(self.script)
        self.table = Table(group, clock)
        self.world = in_process.World(str(self.folders.tart_home), self.table, clock, rng)
        self.session = Session(
            changed=lambda alive: self.script.host(has_session=alive), kicked=self._end_guests
        )
        self.supervised: dict[str, Supervised] = {}
        self._agents = 0
        self._programs: dict[str, Program] = {
            TART: self.world.tart,
            "launchctl": self.session.launchctl,
            "killall": self.session.killall,
            "sudo": small_programs.sudo(self._find),
            "df": small_programs.df(self.space),
            "tailscale": small_programs.tailscale(lambda: self.tailnet_address),
        }

    @property
    def boot_id(self) -> str:
        """Return the name of this boot."""
        return f"boot-{self.boots}"

    def agent_side(self) -> AgentSide:
        """Start one more life of the agent."""
        self._agents += 1
        return AgentSide(self, pid=_LAUNCHD_S_CHILD + self._agents)

    def reboot(self) -> None:
        """Lose all processes and locks, whatever they were doing; the disk stays, and a session comes by itself."""
        self.boots += 1
        self.table.clear()
        self.script.host(leaked_slots=0)
        self.session.log_in()

    def start(self, call: Call, *, parent: int) -> Process:
        """Start a program in a process group of its own; ProgramMissing if it is not installed."""
        program = self._find(call.argv[0])
        if program is None:
            raise ProgramMissing(f"{call.argv[0]}: no such program on this Mac")
        return self.table.spawn(
            tuple(call.argv),
            lambda process: self._run(program, process, call),
            parent=parent,
            catches=in_process.INTERRUPTS if program == self.world.tart else frozenset(),
        )

    def space(self) -> Space:
        """Return the room on the Mac's one volume."""
        total, free = self.world.room()
        return Space(total, free)

    def _find(self, program: str) -> Program | None:
        return self._programs.get(_name(program))

    async def _run(self, program: Program, process: Process, call: Call) -> int:
        fault = self.faults.striking(_name(call.argv[0]))
        if fault is not None:
            await _suffer(fault)
            if fault.do == "fail":
                call.err(fault.stderr)
                return fault.code
        return await program(process, call)

    def _end_guests(self) -> None:
        for guest in list(self.world.guests.values()):
            self.table.kill(guest.process.pid)


def _name(program: str) -> str:
    return program.rpartition("/")[2]


async def _suffer(fault: Fault) -> None:
    if fault.do == "hang":
        await asyncio.get_running_loop().create_future()
    await asyncio.sleep(fault.seconds)
