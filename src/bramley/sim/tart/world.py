"""What every command has at hand: the surroundings of its process, the settings of its Mac, and the faults that await it."""

import fnmatch
import os
from typing import NamedTuple

from bramley.sim.tart import settings as settings_file
from bramley.sim.tart.effects import Surroundings
from bramley.sim.tart.settings import Fault, Settings


class World(NamedTuple):
    """One call's view of the simulated Mac."""

    around: Surroundings
    settings: Settings

    @property
    def home(self) -> str:
        """Return TART_HOME."""
        return self.around.home

    @property
    def hidden(self) -> str:
        """Return the folder of what a real Mac keeps elsewhere: leases, slots, spent faults, registry."""
        return os.path.join(self.home, ".sim")

    @property
    def is_plain(self) -> bool:
        """Tell whether progress is appended instead of redrawn."""
        return "CI" in self.around.environment

    def fault(self, on: str, target: str, *kinds: str, at: str = "start") -> Fault | None:
        """Return the first fault that strikes here, and count it as spent."""
        for fault in self.settings.faults:
            if fault.do in kinds and fault.at == at and self.strikes(fault, on, target):
                return fault
        return None

    def strikes(self, fault: Fault, on: str, target: str) -> bool:
        """Tell whether a fault concerns this command and target, and count it as spent."""
        if fault.on != on or not fnmatch.fnmatchcase(target, fault.target):
            return False
        return fault.times is None or self._spend(fault) <= fault.times

    def _spend(self, fault: Fault) -> int:
        folder = os.path.join(self.hidden, "spent")
        os.makedirs(folder, exist_ok=True)
        # Appending tells each of several processes which one it is.
        with open(os.path.join(folder, fault.id.replace("/", "_")), "ab") as file:
            file.write(b".")
            file.flush()
            return file.tell()


def here(around: Surroundings) -> World:
    """Read the settings and make the view of one call."""
    return World(around, settings_file.load(around))
