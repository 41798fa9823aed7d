"""How a simulated Mac goes down and starts again, and what does not outlive that."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bramley.sim.macos.mac import Mac


def is_up(state: Mapping[str, Any]) -> bool:
    """Tell whether the Mac runs."""
    return "back_at" not in state["boot"]


def is_due(state: Mapping[str, Any], now: float) -> bool:
    """Tell whether a Mac that went down has come back by now."""
    return now >= float(state["boot"].get("back_at", float("inf")))


def settle(mac: Mac, state: dict[str, Any]) -> None:
    """Come back."""
    start(mac, state)


def go_down(mac: Mac, state: dict[str, Any]) -> None:
    """Lose what a running Mac holds, and be gone for a while."""
    state["boot"]["back_at"] = mac.now() + state["settings"]["boot_seconds"]


def start(mac: Mac, state: dict[str, Any]) -> None:
    """Start the Mac: another boot, with what its files say."""
    state["boot"] = {"boot_id": str(uuid.uuid4()).upper(), "started_at": mac.now()}
