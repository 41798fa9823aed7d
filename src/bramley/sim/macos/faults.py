"""What may go wrong between us and a simulated Mac in process, and on the Mac itself.

Faults of the line are for one command or one look, by its number or by what it is, and happen once. Faults of the Mac are in its
state, so that both faces meet them, and last until they are mended.
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

# Which command: its number from 0, over the life of these faults, or whatever a function says yes to.
Which = int | Callable[[Command], bool]


class Moment(Enum):
    """When the line is cut: before a command reaches the Mac, after it was done and answered, or done with its answer lost."""

    BEFORE = "before"
    AFTER = "after"
    UNANSWERED = "unanswered"


@dataclass(frozen=True, slots=True)
class Cut:
    """The line is cut; `at_byte` is for a stream, of which so many bytes arrive."""

    moment: Moment = Moment.BEFORE
    at_byte: int | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """Nothing comes back, and the command is not done."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The command fails by itself, without having done anything."""

    code: int = 1
    said: str = "something went wrong"


@dataclass(frozen=True, slots=True)
class Garble:
    """One byte of a stream arrives as another."""


Fault = Cut | Hang | Fail | Garble


@dataclass(slots=True)
class Faults:
    """The faults that connections in process to one Mac meet; commands and looks are counted over all of them."""

    commands: int = 0
    looks: int = 0
    _planned: list[tuple[Which, Fault]] = field(default_factory=list)
    _at_looks: dict[int, Fault] = field(default_factory=dict)

    def at(self, which: Which, fault: Fault) -> None:
        """Let a fault happen to a command."""
        self._planned.append((which, fault))

    def at_look(self, number: int, fault: Fault) -> None:
        """Let a fault happen to a look, by its number from 0."""
        self._at_looks[number] = fault

    def next(self, command: Command) -> Fault | None:
        """Count a command and return its fault, which is then over."""
        number = self.commands
        self.commands += 1
        for place, (which, fault) in enumerate(self._planned):
            if which == number if isinstance(which, int) else which(command):
                del self._planned[place]
                return fault
        return None

    def next_look(self) -> Fault | None:
        """Count a look and return its fault, which is then over."""
        number = self.looks
        self.looks += 1
        return self._at_looks.pop(number, None)


def refuse_sudo(mac: Mac, *, refused: bool = True) -> None:
    """Let sudo refuse everybody but root, or no longer."""
    with mac.change() as state:
        state["sudo"]["refused"] = refused


def set_room(mac: Mac, free_bytes: int) -> None:
    """Let the disk have so much room left; 0 is a full one."""
    with mac.change() as state:
        state["disk"]["free_bytes"] = free_bytes


def change_host_key(mac: Mac) -> None:
    """Let the Mac show another host key, as after a reinstallation."""
    with mac.change() as state:
        state["host_key_id"] = str(uuid.uuid4())


def crash(mac: Mac, label: str, code: int | None = 1) -> None:
    """Let the program of a job end at once with this code whenever it is started; None mends it."""
    with mac.change() as state:
        state["launchd"]["crashing"].pop(label, None)
        if code is not None:
            state["launchd"]["crashing"][label] = code


def protect(mac: Mac, label: str, *, protected: bool = True) -> None:
    """Let launchd refuse even root to kill the process of this job in order to start it anew, or no longer."""
    with mac.change() as state:
        state["launchd"]["protected"] = [label] if protected else []
