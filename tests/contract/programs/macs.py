"""The tart driver and its dependencies on a simulated Mac, with real processes and in process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from bramley.agent import platform
from bramley.agent.host import Host
from bramley.agent.processes import SystemPrograms
from bramley.agent.runs import Runs
from bramley.agent.supervised_runs import SupervisedRuns
from bramley.agent.tart.driver import Deadlines, Tart
from bramley.base.clock import SystemClock
from bramley.sim.mac.folder import MacFolder
from bramley.sim.mac.mac import SimulatedMac
from bramley.sim.mac.settings_file import SettingsFile
from tests.contract.programs.targets import REAL, TIMEOUT_SECONDS
from tests.unit.agent.tart.fakes import Metrics

IMAGE = "ghcr.io/tuist/runner:1"
CONTENT: dict[str, Any] = {
    "scale": 0.02,
    "timings": {"bytes_per_second": 1e12, "stream_bytes_per_second": 1e12},
    "images": {
        IMAGE: {
            "disk_bytes": 5_000_000_000,
            "size_bytes": 1_000_000_000,
            "guest": {"then": "stay", "work": 1},
        }
    },
}


_LONG = timedelta(seconds=TIMEOUT_SECONDS)
# Long deadlines, for busy machines.
LONG_DEADLINES = Deadlines(delete=_LONG, get=_LONG, list=_LONG, run=_LONG, version=_LONG)


@dataclass(frozen=True)
class Mac:
    """A Mac and the components of its agent."""

    tart: Tart
    runs: Runs
    host: Host
    settings: SettingsFile
    metrics: Metrics


@contextlib.asynccontextmanager
async def on(target: str, root: Path) -> AsyncIterator[Mac]:
    """Yield a Mac, and end its processes afterwards."""
    build = _real if target == REAL else _simulated
    async with build(root / "mac") as mac:
        yield mac


@contextlib.asynccontextmanager
async def _real(root: Path) -> AsyncIterator[Mac]:
    folder = MacFolder(root)
    settings = folder.lay_out(CONTENT)
    places = folder.folders
    environment = folder.environment()
    runs = SupervisedRuns(places.state, places.vm_logs, SystemClock(), environment=environment)
    host = platform.current(tart_home=places.tart_home)
    metrics = Metrics()
    programs = SystemPrograms(environment)
    try:
        tart = Tart(
            programs,
            binary="tart",
            home=places.tart_home,
            metrics=metrics,
            deadlines=LONG_DEADLINES,
        )
        yield Mac(tart, runs, host, settings, metrics)
    finally:
        for pid in folder.vms():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.asynccontextmanager
async def _simulated(root: Path) -> AsyncIterator[Mac]:
    async with asyncio.TaskGroup() as group:
        mac = SimulatedMac(root, clock=SystemClock(), rng=random.Random(0), group=group)
        settings = SettingsFile(mac.folders.tart_home / "sim.json", dict(CONTENT))
        agent = mac.start_agent()
        metrics = Metrics()
        tart = Tart(
            agent.programs,
            binary="tart",
            home=mac.folders.tart_home,
            metrics=metrics,
            deadlines=LONG_DEADLINES,
        )
        yield Mac(tart, agent.runs, agent.host, settings, metrics)
        mac.reboot()


def with_short_deadlines(mac: Mac, seconds: float) -> Tart:
    """Return the driver with a short deadline on every command."""
    limit = timedelta(seconds=seconds)
    deadlines = Deadlines(pull=limit, clone=limit, set=limit, delete=limit, get=limit, list=limit)
    return Tart(
        mac.tart._programs,
        binary="tart",
        home=mac.tart.home,
        metrics=mac.metrics,
        deadlines=deadlines,
    )
