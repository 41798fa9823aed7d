"""Somebody at the shell of the Mac who makes VMs, runs one and pushes them, and expects them to be there."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field

from bramley.agent.gc import leases
from bramley.agent.gc.leases import Lease
from bramley.sim.mac.mac import SimulatedMac
from bramley.sim.mac.processes import Call, Process
from tests.scenarios.agent_life.world import TAGGED

PREFIX = "hand-"
MOST = 3


@dataclass(slots=True)
class Hand:
    """One person; what he has made has the files it had when it was made."""

    mac: SimulatedMac
    made: dict[str, frozenset[str]] = field(default_factory=dict)
    pushing: dict[Process, str] = field(default_factory=dict)
    running: Process | None = None
    _used: set[str] = field(default_factory=set)
    _leases: list[int] = field(default_factory=list)
    _commands: list[Process] = field(default_factory=list)
    _count: int = 0

    async def make(self) -> None:
        """Make a VM."""
        if len(self.made) >= MOST:
            return
        self._count += 1
        vm = f"{PREFIX}{self._count}"
        process = self._begin("clone", TAGGED, vm)
        # He goes on with something else when it takes too long.
        await asyncio.wait((process.ended,), timeout=60)
        if process.ended.done() and process.ended.result() == 0:
            self.made[vm] = self._files(vm)
        else:
            self.mac.table.kill(process.pid)

    def push(self, *, leased: bool) -> None:
        """Push the newest VM that has never run, for a while."""
        fresh = self._fresh()
        if not fresh:
            return
        vm = fresh[-1]
        if leased:
            self._leases.append(leases.take(self.mac.folders.leases, Lease(vms=(vm,))))
        self.pushing[self._begin("push", vm, f"ghcr.io/example/{vm}:1")] = vm

    def run(self) -> None:
        """Run the oldest VM that has never run; it takes one of the slots."""
        fresh = [vm for vm in self._fresh() if vm not in self.pushing.values()]
        if self.running is None and fresh:
            self._used.add(fresh[0])
            self.running = self._begin("run", fresh[0], "--no-graphics")

    def stop(self) -> None:
        """End the VM that runs."""
        if self.running is not None:
            self.mac.table.kill(self.running.pid)
        self.running = None

    def leave(self) -> None:
        """End all that he has begun but pushes; his VMs stay."""
        self.stop()
        for process in self._commands:
            if process not in self.pushing:
                self.mac.table.kill(process.pid)
        for handle in self._leases:
            os.close(handle)
        self._leases.clear()

    def lose(self) -> None:
        """Find everything gone that ran, as after a reboot."""
        self.pushing.clear()
        self.running = None

    async def has_pushed(self) -> bool:
        """Tell whether no push is under way."""
        return all(process.ended.done() for process in self.pushing)

    def missing(self) -> list[str]:
        """Return what somebody has done to his work."""
        gone = [
            f"VM {vm} of somebody else was touched: {sorted(had - self._files(vm))} are gone"
            for vm, had in self.made.items()
            if had - self._files(vm)
        ]
        failed = [
            f"push of {vm} ended with {process.ended.result()}"
            for process, vm in self.pushing.items()
            if process.ended.done() and process.ended.result() != 0
        ]
        return gone + failed

    def _fresh(self) -> list[str]:
        return [vm for vm in self.made if vm not in self._used]

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
