"""What differs between macOS and Linux: `current()` gives the side of the machine that we run on."""

from __future__ import annotations

import sys
from pathlib import Path

from bramley.agent.platform.system import System

__all__ = ["System", "current"]


def current(*, tart_home: Path | None = None) -> System:
    """Return this machine; on Linux only VMs of this TART_HOME are counted, because simulated Macs share the machine."""
    return _darwin() if sys.platform == "darwin" else _linux(tart_home)


def _darwin() -> System:
    from bramley.agent.platform.darwin import DarwinHost

    return DarwinHost()


def _linux(tart_home: Path | None) -> System:
    from bramley.agent.platform.linux import LinuxHost

    return LinuxHost(tart_home=tart_home)
