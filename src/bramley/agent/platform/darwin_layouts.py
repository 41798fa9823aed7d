"""What macOS fills in when it is asked about a process: layouts of its structs, without any call, so that vectors can test them."""

from __future__ import annotations

import calendar
import os
import struct
import time
from dataclasses import dataclass
from datetime import timedelta

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
