"""loginwindow of a simulated Mac: who is logged in at the console, and how automatic login gets there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac


def is_due(state: Mapping[str, Any], now: float) -> bool:
    """Tell whether a login has come by now."""
    del state, now
    return False


def settle(mac: Mac, state: dict[str, Any]) -> None:
    """Log in, or do not."""
    del mac, state
