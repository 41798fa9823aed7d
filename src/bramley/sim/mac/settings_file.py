"""The settings file that the simulated tart reads at every call: images, guests, timings, faults; and faults of other programs.

The in-process and the real-process simulation read the same file, so a test can change a Mac while its agent runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TART = "tart"


class SettingsFile:
    """The settings of one simulated Mac; every change is on disk when the call returns."""

    def __init__(self, file: Path, content: dict[str, Any] | None = None) -> None:
        self._file = file
        self._content: dict[str, Any] = content or {}
        self._faults = 0
        self.save()

    def image(self, name: str, **facts: Any) -> None:
        """Add an image to the registry, or change one; `guest` is the script of its VMs."""
        self._update("images", name, facts)

    def guest(self, pattern: str, **script: Any) -> None:
        """Override the guest script of the VMs that match a pattern."""
        self._update("guests", pattern, script)

    def host(self, **facts: Any) -> None:
        """Change the machine: its disk, its session, its leaked slots."""
        self._content.setdefault("host", {}).update(facts)
        self.save()

    def timings(self, **seconds: float) -> None:
        """Change durations."""
        self._content.setdefault("timings", {}).update(seconds)
        self.save()

    def set(self, **values: Any) -> None:
        """Change top-level settings: version, scale, registry."""
        self._content.update(values)
        self.save()

    def fault(self, on: str, do: str, **details: Any) -> str:
        """Add a fault to a tart command; return its id, for `remove_faults`."""
        self._faults += 1
        name = f"{self._faults}-{on}-{do}"
        faults = self._content.setdefault("faults", [])
        faults.append({"on": on, "do": do, **details, "id": name})
        self.save()
        return name

    def remove_faults(self, fault: str | None = None) -> None:
        """Remove the fault with this id, or all."""
        faults = self._content.get("faults", [])
        self._content["faults"] = [each for each in faults if fault and each["id"] != fault]
        self.save()

    def save(self) -> None:
        """Write the file by a rename, so that no call reads half of it."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._file.with_suffix(".new")
        temporary.write_text(json.dumps(self._content))
        temporary.replace(self._file)

    def _update(self, section: str, key: str, values: dict[str, Any]) -> None:
        self._content.setdefault(section, {}).setdefault(key, {}).update(values)
        self.save()


@dataclass(slots=True)
class Fault:
    """A program that hangs, is slow or fails; `remaining` is how many times more, None for always."""

    program: str
    do: str
    seconds: float = 0.0
    code: int = 1
    stderr: str = ""
    remaining: int | None = None


class Faults:
    """All faults of one Mac; `add("tart clone", "hang")`, `add("launchctl", "fail", code=1, times=2)`."""

    def __init__(self, settings: SettingsFile) -> None:
        self._settings = settings
        self._others: list[Fault] = []

    def add(self, program: str, do: str, *, times: int | None = None, **details: Any) -> None:
        """Add a fault: `hang`, `slow` (seconds), `fail` (code, stderr), or one of the simulated tart's own."""
        name, _, verb = program.partition(" ")
        if name == TART:
            self._settings.fault(verb, do, times=times, **details)
        elif do in {"hang", "slow", "fail"}:
            self._others.append(Fault(program, do, remaining=times, **details))
        else:
            raise ValueError(f"{program} cannot {do}")

    def clear(self) -> None:
        """Remove all faults; calls that hang already keep hanging."""
        self._others.clear()
        self._settings.remove_faults()

    def take(self, program: str) -> Fault | None:
        """Return the fault that applies to this call, and count it."""
        for fault in self._others:
            if fault.program == program and fault.remaining != 0:
                fault.remaining = None if fault.remaining is None else fault.remaining - 1
                return fault
        return None
