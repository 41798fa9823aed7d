"""What a process holds in memory, as the kernel counts it: now, and at most since it was asked to count anew."""

from __future__ import annotations

from pathlib import Path

_KIB = 1024
_RESET_PEAK = "5"
_ANEW = Path("/proc/self/clear_refs")


def is_told() -> bool:
    """Tell whether this system tells it."""
    return _ANEW.exists()


def resident(pid: int | str = "self") -> int:
    """Return the bytes that a process holds now."""
    return _status(pid, "VmRSS")


def peak(pid: int | str = "self") -> int:
    """Return the most bytes that a process has held."""
    return _status(pid, "VmHWM")


def forget_peak() -> None:
    """Count this process's peak from now on."""
    _ANEW.write_text(_RESET_PEAK)


def _status(pid: int | str, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * _KIB
    raise LookupError(f"process {pid} has no {name}")
