"""The parts of the agent that differ between macOS and Linux; `current()` returns the implementation for this machine."""

from __future__ import annotations

import sys
from pathlib import Path

from bramley.agent.platform.system import System

__all__ = ["System", "current"]


def current(*, tart_home: Path | None = None) -> System:
    """Return this machine; on Linux only VMs of this TART_HOME are counted, because simulated Macs share the machine."""
    # Imported here, because each module works only on its own system.
    if sys.platform == "darwin":
        from bramley.agent.platform.darwin import DarwinHost

        return DarwinHost()
    from bramley.agent.platform.linux import LinuxHost

    return LinuxHost(tart_home=tart_home)
