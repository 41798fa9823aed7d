"""CPU time of the agent's processes, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bramley.agent.platform.linux import split_arguments
from bramley.agent.platform.system import GUEST_SERVICE, runs_vm, without_interpreter

PROC = Path("/proc")
_SUPERVISOR = "supervisor.sh"


@dataclass(frozen=True, slots=True)
class Process:
    """One process: its own CPU time and that of its reaped children, in seconds."""

    pid: int
    parent: int
    argv: tuple[str, ...]
    own_seconds: float
    waited_seconds: float

    @property
    def is_supervisor(self) -> bool:
        """Return whether this is the supervisor of a `tart run`."""
        return any(word.endswith(f"/{_SUPERVISOR}") for word in self.argv[:2])

    @property
    def is_vm(self) -> bool:
        """Return whether this is a VM and not part of the agent."""
        return runs_vm(without_interpreter(self.argv)) or GUEST_SERVICE in self.argv


def family(agent: int) -> list[Process]:
    """Return the agent, its supervisors and their running children, without VMs and their descendants."""
    by_pid = {each.pid: each for each in everything()}
    members = [by_pid[agent]]
    for parent in members:
        members += [
            each for each in by_pid.values() if each.parent == parent.pid and not each.is_vm
        ]
    return members


def cpu_seconds(processes: Iterable[Process]) -> float:
    """Return the CPU time of these processes and of their reaped children."""
    return sum(each.own_seconds + each.waited_seconds for each in processes)


def everything() -> Iterator[Process]:
    """Yield all processes of this machine."""
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                yield _read(folder)
            except (FileNotFoundError, ProcessLookupError):
                continue


def _read(folder: Path) -> Process:
    # Indices from the third field on, the state: the name before it is in brackets and may contain anything.
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    own, waited = (sum(map(int, fields[start : start + 2])) for start in (11, 13))
    per_second = os.sysconf("SC_CLK_TCK")
    argv = split_arguments((folder / "cmdline").read_bytes())
    return Process(int(folder.name), int(fields[1]), argv, own / per_second, waited / per_second)
