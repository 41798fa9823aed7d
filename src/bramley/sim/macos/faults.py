"""Faults of in-process connections to a simulated Mac, and of the Mac itself.

Faults of the connection apply to one command or one probe, by its number or by a predicate, and happen once. Faults of the Mac are in
its state, so they apply behind SSH, too, and last until they are removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from bramley.host.commands import Command

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac

# Which command: its number from 0, or a predicate.
Which = int | Callable[[Command], bool]


class CutPoint(Enum):
    """When the connection is cut: before a command runs, after it ran and was answered, or after it ran and before its answer."""

    BEFORE = "before"
    AFTER = "after"
    UNANSWERED = "unanswered"


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is cut; of a stream, `at_byte` bytes arrive."""

    point: CutPoint = CutPoint.BEFORE
    at_byte: int | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """The command does not run and is never answered."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The command fails without any effect."""

    code: int = 1
    stderr: str = "something went wrong"


@dataclass(frozen=True, slots=True)
class Garble:
    """One byte of a stream is corrupted."""


Fault = Cut | Hang | Fail | Garble


@dataclass(slots=True)
class Faults:
    """The faults of the in-process connections to one Mac; commands and probes are counted over all of them."""

    commands: int = 0
    probes: int = 0
    _planned: list[tuple[Which, Fault]] = field(default_factory=list)
    _at_probes: dict[int, Fault] = field(default_factory=dict)

    def at(self, which: Which, fault: Fault) -> None:
        """Add a fault for a command."""
        self._planned.append((which, fault))

    def at_probe(self, number: int, fault: Fault) -> None:
        """Add a fault for a probe, by its number from 0."""
        self._at_probes[number] = fault

    def next(self, command: Command) -> Fault | None:
        """Count a command and remove and return its fault."""
        number = self.commands
        self.commands += 1
        for index, (which, fault) in enumerate(self._planned):
            if which == number if isinstance(which, int) else which(command):
                del self._planned[index]
                return fault
        return None

    def next_probe(self) -> Fault | None:
        """Count a probe and remove and return its fault."""
        number = self.probes
        self.probes += 1
        return self._at_probes.pop(number, None)


def refuse_sudo(mac: Mac, *, refused: bool = True) -> None:
    """Make sudo refuse every user but root, or no longer."""
    with mac.change() as state:
        state["sudo"]["refused"] = refused


def set_free_space(mac: Mac, free_bytes: int) -> None:
    """Set the free bytes of the disk; 0 is a full one."""
    with mac.change() as state:
        state["disk"]["free_bytes"] = free_bytes


def change_host_key(mac: Mac) -> None:
    """Make the Mac present another host key, as after a reinstallation."""
    with mac.change() as state:
        state["host_key_id"] = str(uuid.uuid4())


def crash(mac: Mac, label: str, code: int | None = 1) -> None:
    """Make the program of a job exit at once with this code at every start; None removes the fault."""
    with mac.change() as state:
        state["launchd"]["crashing"].pop(label, None)
        if code is not None:
            state["launchd"]["crashing"][label] = code


def protect(mac: Mac, label: str, *, protected: bool = True) -> None:
    """Make launchd refuse `kickstart -k` of this job even for root, or no longer."""
    with mac.change() as state:
        state["launchd"]["protected"] = [label] if protected else []
