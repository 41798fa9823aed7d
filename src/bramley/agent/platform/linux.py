"""Linux, where the agent is developed and simulated Macs run: facts come from /proc."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bramley.agent.host import GuestProcess, HostProcess, Space, Usage
from bramley.agent.platform import interfaces, locks, system

PROC = Path("/proc")
_ENDED = ("Z", "X")
_BLOCK = 64 * 1024


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """What /proc/<pid>/stat tells, as far as we ask."""

    state: str
    parent: int
    cpu_ticks: int
    start_ticks: str
    resident_pages: int


class LinuxHost:
    """Implements `System`. Several simulated Macs share one Linux, so only VMs of our own TART_HOME are ours to count."""

    def __init__(self, *, tart_home: Path | None = None, proc: Path = PROC) -> None:
        self._proc = proc
        self._tart_home = tart_home

    def boot_id(self) -> str:
        """Return the kernel's own id of this boot."""
        return (self._proc / "sys/kernel/random/boot_id").read_text().strip()

    def lock_holder(self, path: Path) -> int | None:
        """Return who holds the POSIX lock of a file."""
        return locks.holder(path, locks.LINUX)

    def space(self, path: Path) -> Space:
        """Return the room on the volume of this path."""
        return system.space(path)

    def processes(self) -> list[HostProcess]:
        """Return all processes that have arguments; kernel threads have none."""
        told = ((pid, self._argv(pid)) for pid in self._pids())
        return [HostProcess(pid, argv) for pid, argv in told if argv]

    def guest_processes(self) -> list[GuestProcess]:
        """Return the processes that hold a VM of this TART_HOME."""
        told = ((pid, self._cmdline(pid)) for pid in self._pids())
        # Most processes are of no interest, and reading their arguments is most of the work.
        likely = (
            HostProcess(pid, split_arguments(line))
            for pid, line in told
            if system.may_hold_vm(line)
        )
        return [each for each in system.among(likely) if self._is_of_our_home(each.pid)]

    def usage(self, pid: int) -> Usage | None:
        """Return what a process and its descendants have used."""
        if self._stat(pid) is None:
            return None
        family = system.descendants(pid, self._parents())
        stats = [stat for each in family if (stat := self._stat(each)) is not None]
        seconds = sum(stat.cpu_ticks for stat in stats) / os.sysconf("SC_CLK_TCK")
        pages = sum(stat.resident_pages for stat in stats)
        return Usage(timedelta(seconds=seconds), pages * os.sysconf("SC_PAGE_SIZE"))

    def address(self) -> str | None:
        """Return the first address that others can reach."""
        return interfaces.reachable(interfaces.all_interfaces(interfaces.LINUX))

    def began(self, pid: int) -> str | None:
        """Return the clock ticks between boot and the start of a process; None if it has ended."""
        stat = self._stat(pid)
        return None if stat is None else stat.start_ticks

    def is_same(self, pid: int, began: str) -> bool:
        """Tell whether this process is still the one that began then; one that nobody noted the start of counts as it."""
        now = self.began(pid)
        return now is not None and (not began or now == began)

    def _pids(self) -> list[int]:
        return [int(each) for each in os.listdir(self._proc) if each.isdigit()]  # noqa: PTH208 - pathlib would make an object of each process

    def _parents(self) -> dict[int, int]:
        """Return the parent of each process; no more is read than that takes, for there are hundreds."""
        found = {}
        for pid in self._pids():
            with contextlib.suppress(OSError):
                found[pid] = int(self._read(pid, "stat").rpartition(b")")[2].split(None, 2)[1])
        return found

    def _stat(self, pid: int) -> ProcessStat | None:
        with contextlib.suppress(OSError):
            stat = parse_stat(self._read(pid, "stat").decode(errors="replace"))
            return None if stat.state in _ENDED else stat
        return None

    def _argv(self, pid: int) -> tuple[str, ...]:
        return split_arguments(self._cmdline(pid))

    def _cmdline(self, pid: int) -> bytes:
        try:
            return self._read(pid, "cmdline")
        except OSError:
            return b""

    def _read(self, pid: int, name: str) -> bytes:
        """Return one of the small files of a process; bare calls, for every look reads hundreds of them."""
        handle = os.open(f"{self._proc}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = [os.read(handle, _BLOCK)]
            # These files are told whole, so what does not fill a block is the end.
            while len(parts[-1]) == _BLOCK:
                parts.append(os.read(handle, _BLOCK))
        finally:
            os.close(handle)
        return b"".join(parts)

    def _is_of_our_home(self, pid: int) -> bool:
        """Tell whether a VM's process has our TART_HOME; one that hides its environment might."""
        if self._tart_home is None:
            return True
        with contextlib.suppress(OSError):
            variables = self._read(pid, "environ").split(b"\0")
            return b"TART_HOME=" + os.fsencode(self._tart_home) in variables
        return True


def parse_stat(line: str) -> ProcessStat:
    """Read a line of /proc/<pid>/stat; the program's name stands in brackets and may hold anything."""
    fields = line.rpartition(")")[2].split()
    # Counted from the third field, the state.
    return ProcessStat(
        state=fields[0],
        parent=int(fields[1]),
        cpu_ticks=sum(int(each) for each in fields[11:15]),
        start_ticks=fields[19],
        resident_pages=int(fields[21]),
    )


def split_arguments(text: bytes) -> tuple[str, ...]:
    """Read /proc/<pid>/cmdline: each argument ends with a zero byte."""
    return tuple(os.fsdecode(each) for each in text.split(b"\0")[:-1])
