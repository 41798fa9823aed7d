"""Linux, where the agent is developed and simulated Macs run: reads facts from /proc."""

from __future__ import annotations

import contextlib
import os
import platform
import uuid
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bramley.agent.host import HostProcess, SystemInfo, Usage
from bramley.agent.platform import interfaces, locks, system

PROC = Path("/proc")
MACHINE_ID = Path("/etc/machine-id")
_ENDED = ("Z", "X")
# In TART_HOME of a simulated Mac: the operating system that it simulates.
SIMULATED_OS = ".sim/os-image"
_BLOCK = 64 * 1024


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The fields of /proc/<pid>/stat that the agent uses."""

    state: str
    parent: int
    cpu_ticks: int
    start_ticks: str
    resident_pages: int


class LinuxHost(system.PosixHost):
    """Implements `System`. Several simulated Macs share one Linux, so only VMs of this TART_HOME are counted."""

    flock = locks.LINUX
    ioctl = interfaces.LINUX

    def __init__(
        self,
        *,
        tart_home: Path | None = None,
        proc: Path = PROC,
        machine_id_file: Path = MACHINE_ID,
    ) -> None:
        self._proc = proc
        self._machine_id_file = machine_id_file
        self._tart_home = tart_home

    def boot_id(self) -> str:
        """Return the kernel's id of this boot."""
        return (self._proc / "sys/kernel/random/boot_id").read_text().strip()

    def system_info(self) -> SystemInfo:
        """Return the distribution or the simulated system, the kernel's version, and the machine id, which is a UUID, too."""
        unique = self._machine_id()
        return SystemInfo(
            os_image=self._os_image(),
            kernel_version=os.uname().release,
            machine_id=unique.hex if unique else "",
            system_uuid=str(unique).upper() if unique else "",
        )

    def _os_image(self) -> str:
        if self._tart_home is not None:
            with contextlib.suppress(OSError, ValueError):
                return (self._tart_home / SIMULATED_OS).read_text().strip()
        with contextlib.suppress(OSError):
            return platform.freedesktop_os_release().get("PRETTY_NAME", "")
        return ""

    def processes(self) -> list[HostProcess]:
        """Return all processes that have arguments; kernel threads have none."""
        processes = ((pid, split_arguments(self._cmdline(pid))) for pid in self._pids())
        return [HostProcess(pid, argv) for pid, argv in processes if argv]

    def guest_processes(self) -> list[HostProcess]:
        """Return the processes that run a VM of this TART_HOME."""
        lines = ((pid, self._cmdline(pid)) for pid in self._pids())
        # Filtered before the arguments are split, which is most of the work.
        candidates = (
            HostProcess(pid, split_arguments(command_line))
            for pid, command_line in lines
            if system.may_run_vm(command_line)
        )
        return [
            each for each in system.guest_processes_of(candidates) if self._has_our_home(each.pid)
        ]

    def parent(self, pid: int) -> int | None:
        """Return the parent of a process."""
        stat = self._stat(pid)
        return None if stat is None else stat.parent

    def usage(self, pid: int) -> Usage | None:
        """Return the usage of a process and its descendants."""
        if self._stat(pid) is None:
            return None
        pids = system.descendants(pid, self._parents())
        stats = [stat for each in pids if (stat := self._stat(each)) is not None]
        seconds = sum(stat.cpu_ticks for stat in stats) / os.sysconf("SC_CLK_TCK")
        pages = sum(stat.resident_pages for stat in stats)
        return Usage(timedelta(seconds=seconds), pages * os.sysconf("SC_PAGE_SIZE"))

    def start_time(self, pid: int) -> str | None:
        """Return the clock ticks between boot and the start of a process; None if it has ended."""
        stat = self._stat(pid)
        return None if stat is None else stat.start_ticks

    def is_same_process(self, pid: int, started: str) -> bool:
        """Return whether this is still the process that started then; True if no start time was recorded."""
        now = self.start_time(pid)
        return now is not None and (not started or now == started)

    def _machine_id(self) -> uuid.UUID | None:
        try:
            return uuid.UUID(hex=self._machine_id_file.read_text().strip())
        except (OSError, ValueError):
            return None

    def _pids(self) -> list[int]:
        return [int(each) for each in os.listdir(self._proc) if each.isdigit()]  # noqa: PTH208 - pathlib would create an object per process

    def _parents(self) -> dict[int, int]:
        """Return the parent of each process; only that field is parsed, because there are hundreds of processes."""
        parents = {}
        for pid in self._pids():
            with contextlib.suppress(OSError):
                parents[pid] = int(self._read(pid, "stat").rpartition(b")")[2].split(None, 2)[1])
        return parents

    def _stat(self, pid: int) -> ProcessStat | None:
        with contextlib.suppress(OSError):
            stat = parse_stat(self._read(pid, "stat").decode(errors="replace"))
            return None if stat.state in _ENDED else stat
        return None

    def _cmdline(self, pid: int) -> bytes:
        try:
            return self._read(pid, "cmdline")
        except OSError:
            return b""

    def _read(self, pid: int, name: str) -> bytes:
        """Return a small file of a process; with bare system calls, because every scan reads hundreds of them."""
        handle = os.open(f"{self._proc}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = [os.read(handle, _BLOCK)]
            # The kernel returns as much as fits, so a read that does not fill the block is the last one.
            while len(parts[-1]) == _BLOCK:
                parts.append(os.read(handle, _BLOCK))
        finally:
            os.close(handle)
        return b"".join(parts)

    def _has_our_home(self, pid: int) -> bool:
        """Return whether a VM's process has our TART_HOME; True if its environment is not readable."""
        if self._tart_home is None:
            return True
        with contextlib.suppress(OSError):
            variables = self._read(pid, "environ").split(b"\0")
            return b"TART_HOME=" + os.fsencode(self._tart_home) in variables
        return True


def parse_stat(line: str) -> ProcessStat:
    """Parse /proc/<pid>/stat; the program's name is in brackets and may contain anything."""
    fields = line.rpartition(")")[2].split()
    # Indices from the third field on, the state.
    return ProcessStat(
        state=fields[0],
        parent=int(fields[1]),
        cpu_ticks=sum(int(each) for each in fields[11:15]),
        start_ticks=fields[19],
        resident_pages=int(fields[21]),
    )


def split_arguments(text: bytes) -> tuple[str, ...]:
    """Parse /proc/<pid>/cmdline: each argument ends with a NUL byte."""
    return tuple(os.fsdecode(each) for each in text.split(b"\0")[:-1])
