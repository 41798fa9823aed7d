"""Starts servers in their own process groups and stops them by pid, never another process that got the same pid.

A process is identified by its pid and the time it started. Logs go to files; nothing here knows what the servers are.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

ZOMBIE = "Z"
LOG_TAIL_LINES = 25


class ProcessRecord(msgspec.Struct, frozen=True):
    """The record of a started server."""

    name: str
    pid: int
    started: str
    log: str


def start(
    name: str, argv: Sequence[str], *, folder: Path, env: Mapping[str, str] | None = None
) -> ProcessRecord:
    """Start a server with its own process group, its output appended to a log in the folder."""
    log = folder / "logs" / f"{name}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(argv),
            cwd=folder,
            env=None if env is None else {**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # Any reader of the record may stop this process, so Popen must neither reap it nor warn that it still runs.
    process.returncode = 0
    return ProcessRecord(name, process.pid, identity(process.pid) or "", str(log))


def identity(pid: int) -> str | None:
    """Return when the process with this pid started, as the system reports it; None when none runs."""
    stat = Path(f"/proc/{pid}/stat")
    if not Path("/proc/self/stat").exists():
        return identity_by_ps(pid)
    try:
        # The name of the command is in parentheses and may contain spaces and parentheses.
        fields = stat.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == ZOMBIE else fields[19]


def identity_by_ps(pid: int) -> str | None:
    """Query `ps` where there is no /proc."""
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    output = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
    state, _, started = output.strip().partition(" ")
    return None if not state or state.startswith(ZOMBIE) else started.strip()


def is_running(record: ProcessRecord) -> bool:
    """Return whether exactly this process still runs."""
    with suppress(ChildProcessError):
        os.waitpid(record.pid, os.WNOHANG)
    return bool(record.started) and identity(record.pid) == record.started


def stop(records: Sequence[ProcessRecord], *, patience: float = 5.0) -> None:
    """Terminate the processes, and kill the process groups of those that outlive the timeout."""
    running = [record for record in records if signal_group(record, signal.SIGTERM)]
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and (running := [r for r in running if is_running(r)]):
        time.sleep(0.02)
    for record in running:
        signal_group(record, signal.SIGKILL)
    while any(is_running(record) for record in running):
        time.sleep(0.02)


def signal_group(record: ProcessRecord, number: signal.Signals) -> bool:
    """Signal the group of a process that still is the recorded one; return whether it was."""
    if not is_running(record):
        return False
    with suppress(ProcessLookupError):
        os.killpg(record.pid, number)
    return True


def tail(log: str | Path, lines: int = LOG_TAIL_LINES) -> str:
    """Return the end of a log."""
    try:
        return "\n".join(Path(log).read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return "(no log)"


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    command = ["ps", "-o", "rss=", "-p", str(pid)]
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024
    return int(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout) * 1024
