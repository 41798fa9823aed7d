"""What the operating system of a simulated Mac tells its agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bramley.agent.host import GuestProcess, HostProcess, Space, Usage
from bramley.agent.platform import guests

if TYPE_CHECKING:
    from bramley.sim.mac.mac import SimulatedMac

# Of each second that a process lives, and what it has in memory: figures to be told, no model of anything.
_CPU_SHARE = 0.25
_RESIDENT = 300_000_000


class SimulatedHost:
    """Tells facts about one simulated Mac."""

    def __init__(self, mac: SimulatedMac) -> None:
        self._mac = mac

    def boot_id(self) -> str:
        """Return a text that changes with each reboot."""
        return self._mac.boot_id

    def lock_holder(self, path: Path) -> int | None:
        """Return who runs the VM of this file."""
        holder = self._mac.world.run_locks.holder(str(path))
        return holder.pid if holder else None

    def space(self, path: Path) -> Space:  # noqa: ARG002 - there is but one volume
        """Return the room on the one volume."""
        return self._mac.space()

    def guest_processes(self) -> list[GuestProcess]:
        """Return guests and the tarts that run them."""
        living = self._mac.table.living()
        return [GuestProcess(each.pid, each.argv) for each in living if guests.holds_vm(each.argv)]

    def processes(self) -> list[HostProcess]:
        """Return all processes."""
        return [HostProcess(each.pid, each.argv) for each in self._mac.table.living()]

    def usage(self, pid: int) -> Usage | None:
        """Return what a process has used."""
        process = self._mac.table.find(pid)
        if process is None:
            return None
        age = self._mac.clock.now() - process.started_at
        return Usage(cpu=age * _CPU_SHARE, resident_bytes=_RESIDENT)

    def address(self) -> str | None:
        """Return the Mac's address."""
        return self._mac.address
