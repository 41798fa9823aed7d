"""One call of a program of a simulated Mac, and what it says; free of imports beyond the standard library, for the shim's sake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac


@dataclass(frozen=True, slots=True)
class Call:
    """What a program was started with, and as whom; `argv[0]` is its bare name."""

    argv: tuple[str, ...]
    user: str
    stdin: bytes = b""
    on_terminal: bool = False

    @property
    def is_root(self) -> bool:
        """Tell whether it runs as root."""
        return self.user == "root"


@dataclass(frozen=True, slots=True)
class Said:
    """How a program ended, and what it printed."""

    code: int = 0
    out: str = ""
    err: str = ""


Program = Callable[["Mac", Call], Said]
