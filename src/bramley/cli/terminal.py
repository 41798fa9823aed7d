"""The terminal of the user: its colours and the characters that it can show."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console

# Names of rich's spinners; the second one is plain ASCII.
_SPINNER, _ASCII_SPINNER = "dots", "line"


def console() -> Console:
    """Return the terminal to print on; with NO_COLOR, without colours and without bold or dim text."""
    from rich.console import Console

    # rich itself would omit colours only.
    color_system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(highlight=False, color_system=color_system)


def spinner(console: Console) -> str:
    """Return the name of a spinner that the terminal can show."""
    return _ASCII_SPINNER if console.options.ascii_only else _SPINNER
