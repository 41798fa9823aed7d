"""What goes wrong on a simulated Mac: faults of its tart by way of its script, faults of its other programs here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bramley.sim.mac.script import Script

TART = "tart"


@dataclass(slots=True)
class Fault:
    """One program that hangs, is slow or fails; `left` counts how often still, None is for ever."""

    program: str
    do: str
    seconds: float = 0.0
    code: int = 1
    stderr: str = ""
    left: int | None = None


class Faults:
    """All faults of one Mac; `add("tart clone", "hang")`, `add("launchctl", "fail", code=1, times=2)`."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._others: list[Fault] = []

    def add(self, program: str, do: str, *, times: int | None = None, **details: Any) -> None:
        """Let a program go wrong: `hang`, `slow` (seconds), `fail` (code, stderr), or what the simulated tart knows besides."""
        name, _, verb = program.partition(" ")
        if name == TART:
            self._script.fault(verb, do, times=times, **details)
        elif do in {"hang", "slow", "fail"}:
            self._others.append(Fault(program, do, left=times, **details))
        else:
            raise ValueError(f"{program} cannot {do}")

    def heal(self) -> None:
        """Take all faults back; what hangs already goes on hanging."""
        self._others.clear()
        self._script.mend()

    def striking(self, program: str) -> Fault | None:
        """Return the fault that meets this call, and count it."""
        for fault in self._others:
            if fault.program == program and fault.left != 0:
                fault.left = None if fault.left is None else fault.left - 1
                return fault
        return None
