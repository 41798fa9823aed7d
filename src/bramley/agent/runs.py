"""The seam to running VMs: `tart run` under a supervisor that outlives the agent.

A run is a folder on disk. The supervisor, a session of its own, keeps tart's output in the VM's log (0600) and writes down
exit code and time when it ends, whether or not an agent is there to see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended: tart's exit code (minus the signal that killed it), and when; code None if nobody could tell."""

    code: int | None
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Run:
    """What is to be run for one VM."""

    vm: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class Runs(Protocol):
    """Starts and follows `tart run`, one per VM name.

    Guarantees: a run survives the agent; its end is written down before `wait` returns; after the run of a name was begun it
    is never begun again until it was forgotten.
    """

    async def start(self, run: Run) -> None:
        """Begin the run and return once its supervisor lives; AlreadyExists if this name was begun before."""
        ...

    def is_begun(self, vm: str) -> bool:
        """Tell whether a run of this name was ever begun and not forgotten since."""
        ...

    def is_alive(self, vm: str) -> bool:
        """Tell whether the supervisor, or the tart that it watches, still lives."""
        ...

    def ended(self, vm: str) -> Ended | None:
        """Return how the run ended; None while it lives or if it was never begun. A run whose supervisor was lost has no code."""
        ...

    async def wait(self, vm: str) -> Ended:
        """Wait until the run has ended; also for runs that an earlier agent began. NotFound if it was never begun."""
        ...

    def kill(self, vm: str) -> None:
        """Kill tart and what it started, when stopping it in peace did not work."""
        ...

    def output_tail(self, vm: str) -> str:
        """Return the last lines of what tart printed, bounded and without passwords."""
        ...

    def forget(self, vm: str) -> None:
        """Drop the folder of a run that has ended; Conflict while it lives. The log stays for as long as logs are kept."""
        ...
