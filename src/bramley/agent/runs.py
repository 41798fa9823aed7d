"""The interface to running VMs: `tart run` under a supervisor that outlives the agent.

A run is a folder on disk. The supervisor has its own session, writes tart's output to the VM's log (0600), and records exit code
and time when tart ends, whether or not an agent runs at that moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

TAIL_LINES = 20


@dataclass(frozen=True, slots=True)
class RunExit:
    """How a run ended: tart's exit code (minus the signal that killed it), and when; code None if that is unknown."""

    code: int | None
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Run:
    """The command line and environment for one VM."""

    vm: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class Runs(Protocol):
    """Starts and monitors `tart run`, one per VM name.

    Guarantees: a run survives the agent; its exit is on disk before `wait` returns; a name whose run was started is not started
    again until the run was forgotten.
    """

    async def start(self, run: Run) -> None:
        """Start the run and return once its supervisor runs; AlreadyExists if this name was started before."""
        ...

    def exists(self, vm: str) -> bool:
        """Return whether a run of this name was started and not forgotten since."""
        ...

    def is_alive(self, vm: str) -> bool:
        """Return whether the supervisor or its tart is alive."""
        ...

    def find_exit(self, vm: str) -> RunExit | None:
        """Return how the run ended; None while it is alive or if it does not exist. A run whose supervisor was killed has no code."""
        ...

    async def wait(self, vm: str) -> RunExit:
        """Wait until the run has ended, also for runs that an earlier agent started. NotFound if it does not exist."""
        ...

    def kill(self, vm: str) -> None:
        """Kill tart and its descendants, after `tart stop` did not work."""
        ...

    def output_tail(self, vm: str, lines: int = TAIL_LINES) -> str:
        """Return the last lines of tart's output in this run, bounded and without passwords; empty if they cannot be read."""
        ...

    def forget(self, vm: str) -> None:
        """Remove the folder of a run that has ended; Conflict while it is alive. The log is kept by the retention of VM logs."""
        ...
