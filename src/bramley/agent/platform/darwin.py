"""macOS: facts come from the C library by ctypes, loaded only here. See docs/unverified-on-macos.md: no Mac has run this yet."""

from __future__ import annotations

import calendar
import ctypes
import errno
import os
import struct
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bramley.agent.host import GuestProcess, HostProcess, Space, Usage
from bramley.agent.platform import interfaces, locks, system

# struct proc_bsdinfo: twelve numbers, two names, six numbers, and the start in seconds and microseconds.
_BSD = struct.Struct("=12I16s32s6IQQ")
BSD_SIZE = _BSD.size
# struct proc_taskinfo: six long numbers (the second is resident memory, then user and system time) and twelve short ones.
_TASK = struct.Struct("=6Q12i")
TASK_SIZE = _TASK.size
_ZOMBIE = 5
_START = "%a %b %d %H:%M:%S %Y"


@dataclass(frozen=True, slots=True)
class BsdInfo:
    """A process as the BSD side of the kernel knows it."""

    is_zombie: bool
    parent: int
    start_seconds: int


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A process as the Mach side knows it; times are in ticks of its own clock."""

    resident_bytes: int
    cpu_ticks: int


def bsd_info(answer: bytes) -> BsdInfo:
    """Read struct proc_bsdinfo."""
    fields = _BSD.unpack(answer)
    return BsdInfo(
        is_zombie=fields[1] == _ZOMBIE, parent=int(fields[4]), start_seconds=int(fields[20])
    )


def task_info(answer: bytes) -> TaskInfo:
    """Read struct proc_taskinfo."""
    fields = _TASK.unpack(answer)
    return TaskInfo(resident_bytes=int(fields[1]), cpu_ticks=int(fields[2]) + int(fields[3]))


def ticks_lasted(ticks: int, *, numerator: int, denominator: int) -> timedelta:
    """Return how long so many ticks of the Mach clock last; its time base says how many nanoseconds one is."""
    return timedelta(microseconds=ticks * numerator / denominator / 1000)


def arguments(answer: bytes) -> tuple[str, ...]:
    """Read KERN_PROCARGS2: how many arguments, the program's path, zero bytes, then the arguments, each ended by one."""
    (count,) = struct.unpack_from("=i", answer)
    _, _, rest = answer[4:].partition(b"\0")
    words = rest.lstrip(b"\0").split(b"\0")
    return tuple(os.fsdecode(word) for word in words[:count])


def start_of(text: str) -> int | None:
    """Read what `ps -o lstart=` says in UTC and without a locale; None if this is no date."""
    try:
        told = time.strptime(" ".join(text.split()), _START)
    except ValueError:
        return None
    return calendar.timegm(told)


def start_text(seconds: int) -> str:
    """Write a start as `ps -o lstart=` does."""
    return time.asctime(time.gmtime(seconds))


_BOOT_SESSION = b"kern.bootsessionuuid"
_CTL_KERN = 1
_KERN_PROCARGS2 = 49
_PIDTBSDINFO = 3
_PIDTASKINFO = 4
_MOST_PIDS = 100_000
_MOST_ARGUMENTS = 1024 * 1024
# The start is told in whole seconds by both sides, which may round differently.
_ROUNDING_SECONDS = 1


class DarwinHost:
    """Implements `System`. The limit of two guests is the whole Mac's, so everybody's VMs count."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)

    def boot_id(self) -> str:
        """Return the system's own id of this boot."""
        answer = ctypes.create_string_buffer(64)
        size = ctypes.c_size_t(len(answer))
        self._check(
            self._library.sysctlbyname(_BOOT_SESSION, answer, ctypes.byref(size), None, 0), "boot"
        )
        return answer.value.decode()

    def lock_holder(self, path: Path) -> int | None:
        """Return who holds the POSIX lock of a file."""
        return locks.holder(path, locks.DARWIN)

    def space(self, path: Path) -> Space:
        """Return the room on the volume of this path."""
        return system.space(path)

    def processes(self) -> list[HostProcess]:
        """Return the processes whose arguments we may see: those of our own user, or all for root."""
        buffer = ctypes.create_string_buffer(_MOST_ARGUMENTS)
        told = ((pid, self._arguments(pid, buffer)) for pid in self._pids())
        return [HostProcess(pid, argv) for pid, argv in told if argv]

    def guest_processes(self) -> list[GuestProcess]:
        """Return the processes that hold a VM."""
        return system.among(self.processes())

    def usage(self, pid: int) -> Usage | None:
        """Return what a process and its descendants have used."""
        if self._bsd(pid) is None:
            return None
        infos = {each: self._bsd(each) for each in self._pids()}
        parents = {each: info.parent for each, info in infos.items() if info is not None}
        told = [self._task(each) for each in system.descendants(pid, parents)]
        tasks = [task for task in told if task is not None]
        ticks = sum(task.cpu_ticks for task in tasks)
        return Usage(self._lasted(ticks), sum(task.resident_bytes for task in tasks))

    def address(self) -> str | None:
        """Return the first address that others can reach."""
        return interfaces.reachable(interfaces.all_interfaces(interfaces.DARWIN))

    def began(self, pid: int) -> str | None:
        """Return the start of a process as `ps` tells it; None if it has ended."""
        info = self._bsd(pid)
        return None if info is None else start_text(info.start_seconds)

    def is_same(self, pid: int, began: str) -> bool:
        """Tell whether this process is still the one that began then; a start that cannot be read proves nothing."""
        info = self._bsd(pid)
        if info is None:
            return False
        start = start_of(began)
        return start is None or abs(info.start_seconds - start) <= _ROUNDING_SECONDS

    def _pids(self) -> list[int]:
        answer = (ctypes.c_int * _MOST_PIDS)()
        count = self._library.proc_listallpids(answer, ctypes.sizeof(answer))
        self._check(min(count, 0), "the list of processes")
        return [pid for pid in answer[:count] if pid > 0]

    def _bsd(self, pid: int) -> BsdInfo | None:
        answer = self._about(pid, _PIDTBSDINFO, BSD_SIZE)
        info = bsd_info(answer) if answer else None
        return None if info is None or info.is_zombie else info

    def _task(self, pid: int) -> TaskInfo | None:
        answer = self._about(pid, _PIDTASKINFO, TASK_SIZE)
        return task_info(answer) if answer else None

    def _about(self, pid: int, flavour: int, size: int) -> bytes | None:
        answer = ctypes.create_string_buffer(size)
        filled = self._library.proc_pidinfo(pid, flavour, ctypes.c_uint64(0), answer, size)
        return answer.raw if filled == size else None

    def _arguments(self, pid: int, buffer: ctypes.Array[ctypes.c_char]) -> tuple[str, ...]:
        question = (ctypes.c_int * 3)(_CTL_KERN, _KERN_PROCARGS2, pid)
        size = ctypes.c_size_t(len(buffer))
        failed = self._library.sysctl(question, 3, buffer, ctypes.byref(size), None, 0)
        return () if failed or size.value < 4 else arguments(buffer.raw[: size.value])

    def _lasted(self, ticks: int) -> timedelta:
        base = (ctypes.c_uint32 * 2)()
        self._library.mach_timebase_info(base)
        return ticks_lasted(ticks, numerator=base[0], denominator=base[1])

    def _check(self, result: int, asked: str) -> None:
        if result != 0:
            code = ctypes.get_errno() or errno.EIO
            raise OSError(code, f"{asked}: {os.strerror(code)}")
