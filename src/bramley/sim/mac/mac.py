"""A simulated Mac under virtual time: files in a folder, processes and locks in memory, one agent at a time.

Only that folder of the real machine is changed. The same seed gives the same run. A VM needs a logged-in session of its user:
restarting loginwindow starts one if automatic login is configured, and ends everything in the old one, VMs included.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from bramley.agent.host import Space, SystemInfo
from bramley.agent.programs import ProgramMissing
from bramley.base.clock import Clock
from bramley.sim.mac import shim
from bramley.sim.mac.agent_process import AgentProcess
from bramley.sim.mac.folder import OS_IMAGE, folders
from bramley.sim.mac.processes import Call, Process, Program, Table
from bramley.sim.mac.runs import SupervisedRun
from bramley.sim.mac.settings_file import TART, Fault, Faults, SettingsFile
from bramley.sim.tart import bundles, in_process

DISK_BYTES = 460_000_000_000
# As a fleet sets it: with macOS' own day, the addresses of a busy Mac run out.
LEASE_SECONDS = 600
ADDRESS = "10.20.0.11"
TAILNET_ADDRESS = "100.64.0.11"
_FIRST_AGENT_PID = 100


class SimulatedMac:
    """One Mac; the agent works through `start_agent()`, tests through `settings`, `faults`, `session` and `reboot`."""

    def __init__(
        self, root: Path, *, clock: Clock, rng: random.Random, group: asyncio.TaskGroup
    ) -> None:
        self.clock = clock
        self.address: str | None = ADDRESS
        self.tailnet_address: str | None = TAILNET_ADDRESS
        self.boots = 1
        unique = uuid.uuid5(uuid.NAMESPACE_URL, str(root))
        self.system_info = SystemInfo(
            os_image=OS_IMAGE,
            kernel_version="25.3.0",
            machine_id=unique.hex,
            system_uuid=str(unique).upper(),
        )
        self.folders = folders(root)
        self.settings = SettingsFile(
            self.folders.tart_home / "sim.json",
            {"host": {"disk_bytes": DISK_BYTES, "lease_seconds": LEASE_SECONDS}},
        )
        self.faults = Faults(self.settings)
        self.table = Table(group, clock)
        self.tart = in_process.TartSimulation(str(self.folders.tart_home), self.table, clock, rng)
        self.session = Session(
            on_change=lambda alive: self.settings.host(has_session=alive),
            on_restart=self._end_guests,
        )
        self.supervised: dict[str, SupervisedRun] = {}
        self._agents = 0
        self._programs: dict[str, Program] = {
            TART: self.tart.run_command,
            "launchctl": self.session.launchctl,
            "killall": self.session.killall,
            "sudo": self._sudo,
            "tailscale": self._tailscale,
            "rm": self._rm,
        }

    @property
    def boot_id(self) -> str:
        """Return the id of this boot."""
        return f"boot-{self.boots}"

    def start_agent(self) -> AgentProcess:
        """Start the agent's process once more."""
        self._agents += 1
        return AgentProcess(self, pid=_FIRST_AGENT_PID + self._agents)

    def reboot(self) -> None:
        """Kill all processes and release all locks; the disk stays, and the user is logged in again."""
        self.boots += 1
        self.table.clear()
        self.settings.host(leaked_slots=0)
        self.session.log_in()

    def start(self, call: Call, *, parent: int) -> Process:
        """Start a program in a new process group; ProgramMissing if it is not installed."""
        program = self._programs.get(_name(call.argv[0]))
        if program is None:
            raise ProgramMissing(f"{call.argv[0]}: no such program on this Mac")
        return self.table.spawn(
            tuple(call.argv),
            lambda process: self._run(program, process, call),
            parent=parent,
            catches=in_process.INTERRUPTS if program == self.tart.run_command else frozenset(),
        )

    def space(self) -> Space:
        """Return the space of the Mac's only volume."""
        total, free = self.tart.disk_space()
        return Space(total, free)

    async def _run(self, program: Program, process: Process, call: Call) -> int:
        fault = self.faults.take(_name(call.argv[0]))
        if fault is not None:
            await _delay(fault)
            if fault.do == "fail":
                call.err(fault.stderr)
                return fault.code
        return await program(process, call)

    async def _sudo(self, process: Process, call: Call) -> int:
        """Run another program as root, in this process and without a password."""
        rest = [word for word in call.argv[1:] if word != "-n"]
        program = self._programs.get(_name(rest[0])) if rest else None
        if program is None:
            call.err(f"sudo: {' '.join(rest[:1])}: command not found")
            return 1
        return await program(process, replace(call, argv=rest, as_root=True))

    async def _tailscale(self, _: Process, call: Call) -> int:
        if self.tailnet_address is None:
            call.err("no current Tailscale IPs; state: Stopped")
            return 1
        call.out(self.tailnet_address)
        return 0

    async def _rm(self, _: Process, call: Call) -> int:
        """Remove folders of this Mac; one that is killed before the end leaves all files."""
        for path in call.argv[2:]:
            if not path.startswith(f"{self.folders.tart_home}/"):
                raise ValueError(f"{path} is not a folder of this Mac")
            await asyncio.sleep(self.tart.seconds("delete"))
            bundles.remove(path)
        return 0

    def _end_guests(self) -> None:
        for guest in list(self.tart.guests.values()):
            self.table.kill(guest.process.pid)


@dataclass(slots=True)
class Session:
    """The GUI session; `on_change` is called at each login and logout, `on_restart` at each restart of loginwindow."""

    on_change: Callable[[bool], None]
    on_restart: Callable[[], None]
    is_alive: bool = True
    # Whether a new loginwindow logs the user in automatically, and after how long.
    logs_in: bool = True
    login_delay: timedelta = timedelta(seconds=4)
    # The commands that addressed loginwindow, in order.
    loginwindow_commands: list[str] = field(default_factory=list)

    def end(self) -> None:
        """End the session; running VMs continue, new ones do not start."""
        self._set_alive(alive=False)

    def log_in(self) -> None:
        """Log the user in, if automatic login is set up; a boot does so, too."""
        if self.logs_in and not self.is_alive:
            self._set_alive(alive=True)

    async def launchctl(self, _: Process, call: Call) -> int:
        """Run `launchctl print gui/…` and `launchctl kickstart -k system/com.apple.loginwindow`."""
        result = shim.run_launchctl(call.argv[1:], is_alive=self.is_alive, as_root=call.as_root)
        if result.restarts_loginwindow:
            self.loginwindow_commands.append(" ".join(call.argv))
            self._set_alive(alive=False)
            self.on_restart()
            asyncio.get_running_loop().call_later(self.login_delay.total_seconds(), self.log_in)
        for line in result.out:
            call.out(line)
        for line in result.err:
            call.err(line)
        return result.code

    async def killall(self, _: Process, call: Call) -> int:
        """Ignore the signal: loginwindow survives SIGHUP, and no session starts."""
        self.loginwindow_commands.append(" ".join(call.argv))
        return 0

    def _set_alive(self, *, alive: bool) -> None:
        self.is_alive = alive
        self.on_change(alive)


def _name(program: str) -> str:
    return program.rpartition("/")[2]


async def _delay(fault: Fault) -> None:
    if fault.do == "hang":
        await asyncio.get_running_loop().create_future()
    await asyncio.sleep(fault.seconds)
