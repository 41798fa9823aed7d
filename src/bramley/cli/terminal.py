"""The terminal that people look at: coloured unless they want none, and with signs that it can show."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console

# What turns while something is waited for; the first looks better, and the other one everything can show.
_TURNING, _TURNING_PLAINLY = "dots", "line"


def console() -> Console:
    """Return the terminal to print on; whoever sets NO_COLOR gets neither colours nor faint or bold letters."""
    from rich.console import Console

    # rich itself leaves out the colours and keeps the rest.
    painted: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(highlight=False, color_system=painted)


def turning(on: Console) -> str:
    """Return the name of a sign that turns, of letters that this terminal has."""
    return _TURNING_PLAINLY if on.options.ascii_only else _TURNING
