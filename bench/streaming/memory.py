"""The resident memory of a process from Linux's /proc: the current value, and the peak since the last reset."""

from __future__ import annotations

from pathlib import Path

_KIB = 1024
_RESET_PEAK = "5"
_CLEAR_REFS = Path("/proc/self/clear_refs")


def is_supported() -> bool:
    """Return whether this system has these files."""
    return _CLEAR_REFS.exists()


def resident(pid: int | str = "self") -> int:
    """Return the current resident memory of a process in bytes."""
    return _status(pid, "VmRSS")


def peak(pid: int | str = "self") -> int:
    """Return the peak resident memory of a process in bytes."""
    return _status(pid, "VmHWM")


def reset_peak() -> None:
    """Reset the peak of this process."""
    _CLEAR_REFS.write_text(_RESET_PEAK)


def _status(pid: int | str, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * _KIB
    raise LookupError(f"process {pid} has no {name}")
