"""What processes of the agent take, as the kernel counts it: /proc, so only where there is one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bramley.agent.platform.linux import split_arguments
from bramley.agent.platform.system import GUEST_SERVICE, holds_vm, without_interpreter

PROC = Path("/proc")
_SUPERVISOR = "supervisor.sh"


@dataclass(frozen=True, slots=True)
class Process:
    """One process: its own CPU time and that of the children which it has waited for, in seconds."""

    pid: int
    parent: int
    argv: tuple[str, ...]
    own_seconds: float
    waited_seconds: float

    @property
    def is_supervisor(self) -> bool:
        """Tell whether it watches over a `tart run`."""
        return any(word.endswith(f"/{_SUPERVISOR}") for word in self.argv[:2])

    @property
    def is_vm(self) -> bool:
        """Tell whether it is a VM, not something that a VM costs the host besides."""
        return holds_vm(without_interpreter(self.argv)) or GUEST_SERVICE in self.argv


def family(agent: int) -> list[Process]:
    """Return the agent, its supervisors and whatever of their children runs now; VMs, with all that is theirs, are left out."""
    known = {each.pid: each for each in everything()}
    found = [known[agent]]
    for parent in found:
        found += [each for each in known.values() if each.parent == parent.pid and not each.is_vm]
    return found


def cpu_seconds(processes: Iterable[Process]) -> float:
    """Return what these have used so far, with the children that have ended."""
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
    # Counted from the third field, the state: the name before it stands in brackets and may hold anything.
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    own, waited = (sum(map(int, fields[start : start + 2])) for start in (11, 13))
    per_second = os.sysconf("SC_CLK_TCK")
    argv = split_arguments((folder / "cmdline").read_bytes())
    return Process(int(folder.name), int(fields[1]), argv, own / per_second, waited / per_second)
