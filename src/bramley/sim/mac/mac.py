"""A simulated Mac under virtual time: files in a folder, processes and locks in memory, one agent at a time.

Nothing of the real machine is touched but the folder. The same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from bramley.agent.host import Space
from bramley.agent.programs import ProgramMissing
from bramley.base.clock import Clock
from bramley.sim.mac import shim
from bramley.sim.mac.agent_process import AgentSide
from bramley.sim.mac.folder import folders
from bramley.sim.mac.processes import Call, Process, Program, Table
from bramley.sim.mac.runs import Supervised
from bramley.sim.mac.settings_file import (
    TART,
    Fault,
    Faults,
    Script,
)
from bramley.sim.tart import in_process

_MISSING = 1


def sudo(find: Callable[[str], Program | None]) -> Program:
    """Return a sudo that asks for no password and runs other programs as root, in its own process."""

    async def run(process: Process, call: Call) -> int:
        rest = [word for word in call.argv[1:] if word != "-n"]
        program = find(rest[0]) if rest else None
        if program is None:
            call.err(f"sudo: {' '.join(rest[:1])}: command not found")
            return _MISSING
        return await program(process, replace(call, argv=rest, as_root=True))

    return run


def df(space: Callable[[], Space]) -> Program:
    """Return a df that knows one volume, and prints it as Darwin does, inodes included."""

    async def run(_: Process, call: Call) -> int:
        room = space()
        total, free = room.total // 1024, room.free // 1024
        percent = round(100 * (1 - room.free_share))
        call.out("Filesystem 1024-blocks Used Available Capacity iused ifree %iused Mounted on")
        call.out(f"/dev/disk3s1s1 {total} {total - free} {free} {percent}% 404167 4294563112 0% /")
        return 0

    return run


def tailscale(address: Callable[[], str | None]) -> Program:
    """Return a tailscale that tells this Mac's address in the tailnet, if it has one."""

    async def run(_: Process, call: Call) -> int:
        found = address()
        if found is None:
            call.err("no current Tailscale IPs; state: Stopped")
            return 1
        call.out(found)
        return 0

    return run


@dataclass(slots=True)
class Session:
    """Whether somebody is logged in at the console; `changed` hears of each login and each end, `kicked` of each kick."""

    changed: Callable[[bool], None]
    kicked: Callable[[], None]
    is_alive: bool = True
    # Whether a new loginwindow logs the user in by itself, and how long that takes.
    logs_in: bool = True
    login_takes: timedelta = timedelta(seconds=4)
    # What was done to loginwindow, in order.
    kicks: list[str] = field(default_factory=list)

    def end(self) -> None:
        """Lose the session without a word; VMs that run go on, new ones do not start."""
        self._become(alive=False)

    def log_in(self) -> None:
        """Log the user in, if that works by itself; a Mac that boots does so."""
        if self.logs_in and not self.is_alive:
            self._become(alive=True)

    async def launchctl(self, _: Process, call: Call) -> int:
        """Answer `launchctl print gui/…` and `launchctl kickstart -k system/com.apple.loginwindow`."""
        said = shim.answer_launchctl(call.argv[1:], is_alive=self.is_alive, as_root=call.as_root)
        if said.kicks:
            self.kicks.append(" ".join(call.argv))
            self._become(alive=False)
            self.kicked()
            asyncio.get_running_loop().call_later(self.login_takes.total_seconds(), self.log_in)
        for line in said.out:
            call.out(line)
        for line in said.err:
            call.err(line)
        return said.code

    async def killall(self, _: Process, call: Call) -> int:
        """Take the signal and do nothing: loginwindow ignores a hang-up, and no session comes of it."""
        self.kicks.append(" ".join(call.argv))
        return 0

    def _become(self, *, alive: bool) -> None:
        self.is_alive = alive
        self.changed(alive)


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
            "sudo": sudo(self._find),
            "df": df(self.space),
            "tailscale": tailscale(lambda: self.tailnet_address),
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
