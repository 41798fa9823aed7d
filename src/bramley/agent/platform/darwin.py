"""macOS: reads facts from the C library by ctypes. See docs/unverified-on-macos.md: no Mac has run this yet."""

from __future__ import annotations

import calendar
import ctypes
import errno
import os
import struct
import time
import uuid
from dataclasses import dataclass, replace
from datetime import timedelta

from bramley.agent.host import HostProcess, SystemInfo, Usage
from bramley.agent.platform import interfaces, locks, system

# struct proc_bsdinfo: twelve numbers, two names, six numbers, and the start in seconds and microseconds.
_BSD = struct.Struct("=12I16s32s6IQQ")
BSD_SIZE = _BSD.size
# struct proc_taskinfo: six long numbers (the second is resident memory, then user and system time) and twelve short ones.
_TASK = struct.Struct("=6Q12i")
TASK_SIZE = _TASK.size
_ZOMBIE = 5
_START_FORMAT = "%a %b %d %H:%M:%S %Y"


@dataclass(frozen=True, slots=True)
class BsdInfo:
    """The BSD information of a process."""

    is_zombie: bool
    parent: int
    start_seconds: int


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """The Mach information of a process; times are in ticks of the Mach clock."""

    resident_bytes: int
    cpu_ticks: int


def bsd_info(raw: bytes) -> BsdInfo:
    """Parse struct proc_bsdinfo."""
    fields = _BSD.unpack(raw)
    return BsdInfo(
        is_zombie=fields[1] == _ZOMBIE, parent=int(fields[4]), start_seconds=int(fields[20])
    )


def task_info(raw: bytes) -> TaskInfo:
    """Parse struct proc_taskinfo."""
    fields = _TASK.unpack(raw)
    return TaskInfo(resident_bytes=int(fields[1]), cpu_ticks=int(fields[2]) + int(fields[3]))


def ticks_to_timedelta(ticks: int, *, numerator: int, denominator: int) -> timedelta:
    """Convert ticks of the Mach clock; its time base is the number of nanoseconds per tick."""
    return timedelta(microseconds=ticks * numerator / denominator / 1000)


def arguments(raw: bytes) -> tuple[str, ...]:
    """Parse KERN_PROCARGS2: the number of arguments, the program's path, NUL bytes, then the NUL-terminated arguments."""
    (count,) = struct.unpack_from("=i", raw)
    _, _, rest = raw[4:].partition(b"\0")
    argv = rest.lstrip(b"\0").split(b"\0")
    return tuple(os.fsdecode(argument) for argument in argv[:count])


def environment(raw: bytes) -> dict[str, str]:
    """Parse the variables that follow the arguments in KERN_PROCARGS2, up to an empty one; macOS hides those of some programs."""
    (count,) = struct.unpack_from("=i", raw)
    _, _, rest = raw[4:].partition(b"\0")
    words = rest.lstrip(b"\0").split(b"\0")[count:]
    end = words.index(b"") if b"" in words else len(words)
    pairs = (os.fsdecode(word).partition("=") for word in words[:end])
    return {name: value for name, _, value in pairs}


def parse_start(text: str) -> int | None:
    """Parse the output of `ps -o lstart=` in UTC and without a locale; None if it is not a date."""
    try:
        return calendar.timegm(time.strptime(" ".join(text.split()), _START_FORMAT))
    except ValueError:
        return None


def format_start(seconds: int) -> str:
    """Format a start time as `ps -o lstart=` does."""
    return time.asctime(time.gmtime(seconds))


_BOOT_SESSION = b"kern.bootsessionuuid"
_OS_VERSION = b"kern.osproductversion"
_OS_BUILD = b"kern.osversion"
_CTL_KERN = 1
_KERN_PROCARGS2 = 49
_PIDTBSDINFO = 3
_PIDTASKINFO = 4
_MAX_PIDS = 100_000
_MAX_ARGUMENT_BYTES = 1024 * 1024
# `ps` and the kernel both report whole seconds, and may round differently.
_ROUNDING_SECONDS = 1


class DarwinHost(system.PosixHost):
    """Implements `System`. The limit of two guests applies to the whole Mac, so the VMs of all users count."""

    flock = locks.DARWIN
    ioctl = interfaces.DARWIN

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)

    def boot_id(self) -> str:
        """Return the kernel's id of this boot."""
        return self._sysctl(_BOOT_SESSION, "boot id")

    def system_info(self) -> SystemInfo:
        """Return macOS' version and build, the kernel's version, and the hardware's UUID."""
        version, build = self._find_sysctl(_OS_VERSION), self._find_sysctl(_OS_BUILD)
        unique = self._hardware_uuid()
        return SystemInfo(
            os_image=f"macOS {version}{f' ({build})' if build else ''}" if version else "",
            kernel_version=os.uname().release,
            machine_id=unique.hex if unique else "",
            system_uuid=str(unique).upper() if unique else "",
        )

    def processes(self) -> list[HostProcess]:
        """Return the processes whose arguments are readable: those of our own user, or all for root."""
        buffer = ctypes.create_string_buffer(_MAX_ARGUMENT_BYTES)
        processes = ((pid, self._arguments(pid, buffer)) for pid in self._pids())
        return [HostProcess(pid, argv) for pid, argv in processes if argv]

    def guest_processes(self) -> list[HostProcess]:
        """Return the processes that run a VM."""
        guests = system.guest_processes_of(self.processes())
        return [replace(each, tart_home=self._tart_home(each.pid)) for each in guests]

    def parent(self, pid: int) -> int | None:
        """Return the parent of a process."""
        info = self._bsd(pid)
        return None if info is None else info.parent

    def usage(self, pid: int) -> Usage | None:
        """Return the usage of a process and its descendants."""
        if self._bsd(pid) is None:
            return None
        infos = {each: self._bsd(each) for each in self._pids()}
        parents = {each: info.parent for each, info in infos.items() if info is not None}
        pids = system.descendants(pid, parents)
        tasks = [task for each in pids if (task := self._task(each)) is not None]
        ticks = sum(task.cpu_ticks for task in tasks)
        return Usage(self._duration(ticks), sum(task.resident_bytes for task in tasks))

    def start_time(self, pid: int) -> str | None:
        """Return the start time of a process in the format of `ps`; None if it has ended."""
        info = self._bsd(pid)
        return None if info is None else format_start(info.start_seconds)

    def is_same_process(self, pid: int, started: str) -> bool:
        """Return whether this is still the process that started then; True if the recorded time cannot be parsed."""
        info = self._bsd(pid)
        if info is None:
            return False
        start = parse_start(started)
        return start is None or abs(info.start_seconds - start) <= _ROUNDING_SECONDS

    def _pids(self) -> list[int]:
        pids = (ctypes.c_int * _MAX_PIDS)()
        count = self._library.proc_listallpids(pids, ctypes.sizeof(pids))
        self._check(min(count, 0), "the list of processes")
        return [pid for pid in pids[:count] if pid > 0]

    def _bsd(self, pid: int) -> BsdInfo | None:
        raw = self._pid_info(pid, _PIDTBSDINFO, BSD_SIZE)
        info = bsd_info(raw) if raw else None
        return None if info is None or info.is_zombie else info

    def _task(self, pid: int) -> TaskInfo | None:
        raw = self._pid_info(pid, _PIDTASKINFO, TASK_SIZE)
        return task_info(raw) if raw else None

    def _pid_info(self, pid: int, flavour: int, size: int) -> bytes | None:
        buffer = ctypes.create_string_buffer(size)
        written = self._library.proc_pidinfo(pid, flavour, ctypes.c_uint64(0), buffer, size)
        return buffer.raw if written == size else None

    def _arguments(self, pid: int, buffer: ctypes.Array[ctypes.c_char]) -> tuple[str, ...]:
        raw = self._raw_arguments(pid, buffer)
        return arguments(raw) if raw else ()

    def _tart_home(self, pid: int) -> str:
        raw = self._raw_arguments(pid, ctypes.create_string_buffer(_MAX_ARGUMENT_BYTES))
        variables = environment(raw) if raw else {}
        home = variables.get("HOME")
        return variables.get("TART_HOME") or (f"{home}/.tart" if home else "")

    def _raw_arguments(self, pid: int, buffer: ctypes.Array[ctypes.c_char]) -> bytes:
        name = (ctypes.c_int * 3)(_CTL_KERN, _KERN_PROCARGS2, pid)
        size = ctypes.c_size_t(len(buffer))
        failed = self._library.sysctl(name, 3, buffer, ctypes.byref(size), None, 0)
        return b"" if failed or size.value < 4 else buffer.raw[: size.value]

    def _duration(self, ticks: int) -> timedelta:
        base = (ctypes.c_uint32 * 2)()
        self._library.mach_timebase_info(base)
        return ticks_to_timedelta(ticks, numerator=base[0], denominator=base[1])

    def _sysctl(self, name: bytes, subject: str) -> str:
        buffer = ctypes.create_string_buffer(64)
        size = ctypes.c_size_t(len(buffer))
        self._check(self._library.sysctlbyname(name, buffer, ctypes.byref(size), None, 0), subject)
        return buffer.value.decode(errors="replace")

    def _find_sysctl(self, name: bytes) -> str:
        try:
            return self._sysctl(name, name.decode())
        except OSError:
            return ""

    def _hardware_uuid(self) -> uuid.UUID | None:
        """Return what `ioreg` shows as IOPlatformUUID; without waiting for it, as the kernel would after a boot."""
        buffer = ctypes.create_string_buffer(16)
        no_wait = (ctypes.c_long * 2)()
        if self._library.gethostuuid(buffer, no_wait) != 0:
            return None
        return uuid.UUID(bytes=buffer.raw)

    def _check(self, result: int, call: str) -> None:
        if result != 0:
            code = ctypes.get_errno() or errno.EIO
            raise OSError(code, f"{call}: {os.strerror(code)}")
