"""A user at the shell of the Mac who creates VMs, runs one and pushes them; the agent must not touch them."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field

from bramley.agent.gc import leases
from bramley.agent.gc.leases import Lease
from bramley.agent.platform.system import GUEST_SERVICE
from bramley.sim.mac.mac import SimulatedMac
from bramley.sim.mac.processes import Call, Process
from tests.scenarios.agent_life.world import TAGGED

PREFIX = "manual-"
MAX_VMS = 3


@dataclass(slots=True)
class ShellUser:
    """One user; `created` maps each VM to the files it had when it was created."""

    mac: SimulatedMac
    created: dict[str, frozenset[str]] = field(default_factory=dict)
    pushing: dict[Process, str] = field(default_factory=dict)
    running: Process | None = None
    _used: set[str] = field(default_factory=set)
    _leases: list[int] = field(default_factory=list)
    _commands: list[Process] = field(default_factory=list)
    _count: int = 0

    async def create(self) -> None:
        """Create a VM."""
        if len(self.created) >= MAX_VMS:
            return
        self._count += 1
        vm = f"{PREFIX}{self._count}"
        process = self._begin("clone", TAGGED, vm)
        # It is given up when it takes too long.
        await asyncio.wait((process.exit_code,), timeout=60)
        if process.exit_code.done() and process.exit_code.result() == 0:
            self.created[vm] = self._files(vm)
        else:
            self.mac.table.kill(process.pid)

    def push(self, *, leased: bool) -> None:
        """Push the newest VM that has never run, for a while."""
        unused = self._unused()
        if not unused:
            return
        vm = unused[-1]
        if leased:
            self._leases.append(leases.acquire(self.mac.folders.leases, Lease(vms=(vm,))))
        self.pushing[self._begin("push", vm, f"ghcr.io/example/{vm}:1")] = vm

    def run(self) -> None:
        """Run the oldest VM that has never run; it takes one of the slots."""
        unused = [vm for vm in self._unused() if vm not in self.pushing.values()]
        if self.running is None and unused:
            self._used.add(unused[0])
            self.running = self._begin("run", unused[0], "--no-graphics")

    def run_docker(self) -> None:
        """Run a Linux guest of another program."""
        self.mac.table.spawn((f"/x/{GUEST_SERVICE}",), _run_forever)

    def stop(self) -> None:
        """Stop the VM that runs."""
        if self.running is not None:
            self.mac.table.kill(self.running.pid)
        self.running = None

    def log_out(self) -> None:
        """Kill all commands except pushes; the VMs stay."""
        self.stop()
        for process in self._commands:
            if process not in self.pushing:
                self.mac.table.kill(process.pid)
        for handle in self._leases:
            os.close(handle)
        self._leases.clear()

    def on_reboot(self) -> None:
        """Forget the processes, which a reboot has ended."""
        self.pushing.clear()
        self.running = None

    async def has_pushed(self) -> bool:
        """Return whether no push is running."""
        return all(process.exit_code.done() for process in self.pushing)

    def damage(self) -> list[str]:
        """Return the VMs that lost files and the pushes that failed."""
        gone = [
            f"VM {vm} of the shell user was changed: {sorted(had - self._files(vm))} are gone"
            for vm, had in self.created.items()
            if had - self._files(vm)
        ]
        failed = [
            f"push of {vm} ended with {process.exit_code.result()}"
            for process, vm in self.pushing.items()
            if process.exit_code.done() and process.exit_code.result() != 0
        ]
        return gone + failed

    def _unused(self) -> list[str]:
        return [vm for vm in self.created if vm not in self._used]

    def _begin(self, *words: str) -> Process:
        environment = {"TART_HOME": str(self.mac.folders.tart_home), "CI": "1"}
        call = Call(("tart", *words), _ignore, _ignore, environment)
        process = self.mac.start(call, parent=1)
        self._commands.append(process)
        return process

    def _files(self, vm: str) -> frozenset[str]:
        folder = self.mac.folders.tart_home / "vms" / vm
        return frozenset(path.name for path in folder.iterdir()) if folder.exists() else frozenset()


def _ignore(_: str) -> None: ...


async def _run_forever(_: Process) -> int:
    await asyncio.get_running_loop().create_future()
    return 0
