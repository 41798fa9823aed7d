"""How far a pull has come, as tart's lines tell it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PERCENT = re.compile(r"^\s*(\d{1,3})%")
_SIZE = re.compile(r"pulling disk \(([0-9.]+)\s*([KMGT]?)B compressed\)", re.IGNORECASE)
# Tart tells what it takes from another image that is cached.
_SPARED = re.compile(r"(?:skip|deduplicate)\D*([0-9.]+)\s*([KMGT]?)B", re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_QUEUED = "waiting for lock"


@dataclass(slots=True)
class Progress:
    """What was heard of one pull; `size` is what has to cross the wire, in bytes, 0 while unknown."""

    percent: int | None = None
    size: int = 0
    lines: int = 0
    is_queued: bool = False
    # What need not cross the wire: it came in an attempt before, or is on this disk in another image.
    spared: int = 0

    def hear(self, line: str) -> None:
        """Take in one line."""
        self.lines += 1
        self.is_queued = line.startswith(_QUEUED)
        if match := _PERCENT.match(line):
            self.percent = min(int(match[1]), 100)
        elif match := _SIZE.search(line):
            self.size = _bytes(match[1], match[2])
        elif match := _SPARED.search(line):
            self.spared += _bytes(match[1], match[2])

    def begin_anew(self) -> None:
        """Forget how an attempt that failed went, but for what it may have left."""
        self.spared = self.loaded
        self.percent, self.size, self.is_queued = None, 0, False

    @property
    def loaded(self) -> int:
        """Return the bytes that came, to the last whole percent."""
        return self.size * (self.percent or 0) // 100

    @property
    def step(self) -> int:
        """Return the bytes of one percent, as many as may have come unheard."""
        return self.size // 100


def _bytes(number: str, unit: str) -> int:
    try:
        return int(float(number) * _UNITS[unit.upper()])
    except ValueError:
        return 0
