"""Bramley's side: `python -m bench.runtime.bramley_client SERVER reconciles|events` prints one line of JSON."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from bench.runtime import workload
from bramley.api.runner_pool import RunnerPool
from bramley.base.clock import SystemClock
from bramley.kube.client import Client
from bramley.kube.config import ClientConfig
from bramley.kube.http import HttpTransport
from bramley.runtime.controller import Controller
from bramley.runtime.keys import Key
from bramley.runtime.manager import Manager
from bramley.runtime.outcome import Outcome, Settled


class DoNothing:
    """Counts the reconciled objects."""

    def __init__(self) -> None:
        self.left = workload.OBJECTS
        self.done = asyncio.Event()

    async def reconcile(self, _thing: RunnerPool, /) -> Outcome:
        """Do nothing, as kopf's empty handler does."""
        self.left -= 1
        if not self.left:
            self.done.set()
        return Settled()


async def reconciles(client: Client) -> dict[str, float]:
    """Return how long it took from the start of the list to the last first reconcile, and the memory used."""
    before = resident_bytes()
    reconciler = DoNothing()
    manager = Manager(
        client, clock=SystemClock(), rng=random.Random(1), registry=CollectorRegistry()
    )
    manager.add(Controller(reconciler).for_kind(RunnerPool))
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run())
        await reconciler.done.wait()
        took = time.perf_counter() - began
        after = resident_bytes()
        manager.stop()
    return {"seconds": took, "resident_before": before, "resident": after, "peak": peak_bytes()}


async def events(client: Client) -> dict[str, float]:
    """Return how long an informer took for all events of the watch, cache and handler included."""
    manager = Manager(
        client, clock=SystemClock(), rng=random.Random(1), registry=CollectorRegistry()
    )
    informer = manager.informer(RunnerPool)
    changed = 0
    finished = asyncio.Event()

    def count(_key: Key, _old: RunnerPool | None, _new: RunnerPool | None) -> None:
        nonlocal changed
        changed += 1
        if changed == workload.LAST_VERSION:
            finished.set()

    informer.on_change(count)
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run())
        await informer.synced.wait()
        began = time.perf_counter()
        await finished.wait()
        took = time.perf_counter() - began
        manager.stop()
    return {"seconds": took, "resident": resident_bytes()}


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    status = Path("/proc/self/status")
    if not status.exists():
        return peak_bytes()
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def peak_bytes() -> int:
    """Return the peak resident memory of this process."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


async def main(server: str, what: str) -> None:
    """Measure and print."""
    async with Client(HttpTransport(ClientConfig(server))) as client:
        figures = await (reconciles if what == "reconciles" else events)(client)
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
