"""What is measured: machines at rest, the roll of a whole fleet, and meanwhile the deletion of other machines."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from bench.machines.fleet import NAMESPACE
from bench.machines.stage import Stage, waiting_machine
from bench.pools.measurements import cpu_seconds
from bench.streaming import memory
from bench.streaming.child_process import Child, started
from bramley.api.names import finalizers
from bramley.api.scaleway_machine import ScalewayAppleSiliconMachine as Machine
from tools.kube import control_plane

_HOSTS = "bench.machines.hosts"
_PAGE = 100
_SPARE = "spare"
# Between two deletions; each machine waits for a host before it is deleted.
_EVERY_SECONDS = 0.5
_WAITS_SECONDS = 3.0
_SERVERS = 2


@dataclass(frozen=True, slots=True)
class Rest:
    """A manager at rest, in one interval."""

    machines: int
    seconds: float
    requests: dict[str, int]
    provider_calls: dict[str, int]
    reconciles: int
    resident: int
    cpu_percent: float

    @property
    def requests_per_machine_hour(self) -> float:
        """Return the requests to the API per machine and hour."""
        return sum(self.requests.values()) * 3600 / self.seconds / self.machines

    @property
    def lists_per_hour(self) -> float:
        """Return the lists of the zone per hour; one of many hosts has several pages."""
        pages = -(-self.machines // _PAGE)
        lists = sum(
            count for call, count in self.provider_calls.items() if call.endswith("/servers")
        )
        return lists / pages * 3600 / self.seconds

    @property
    def reconciles_per_hour(self) -> float:
        """Return the reconciles of machines per hour."""
        return self.reconciles * 3600 / self.seconds


@dataclass(frozen=True, slots=True)
class Roll:
    """The roll of a fleet: memory in bytes, and how long deletions of other machines took, before and meanwhile."""

    hosts: int
    idle: int
    peak: int
    seconds: float
    deletions_before: list[float]
    deletions: list[float]

    @property
    def above_idle(self) -> int:
        """Return the peak memory of the roll."""
        return self.peak - self.idle


async def measure_rest(stage: Stage, seconds: float) -> Rest:
    """Measure a manager that has taken over all machines while nothing happens."""
    async with stage.manager() as manager:
        await stage.until_bound(manager)
        reconciles = await _reconciles(manager)
        calls, requests = stage.scaleway.calls.copy(), await stage.requests()
        cpu, began = cpu_seconds(manager.pid), time.monotonic()
        await asyncio.sleep(seconds)
        elapsed = time.monotonic() - began
        return Rest(
            machines=len(stage.hosts),
            seconds=elapsed,
            requests=dict(await stage.requests() - requests),
            provider_calls=dict(stage.scaleway.calls - calls),
            reconciles=await _reconciles(manager) - reconciles,
            resident=memory.resident(manager.pid),
            cpu_percent=100 * (cpu_seconds(manager.pid) - cpu) / elapsed,
        )


async def _reconciles(manager: Child) -> int:
    manager.proceed()
    return int(await manager.read("reconciles"))


async def measure_roll(
    stage: Stage, *, copy_per_call: bool = False, seconds_before: float = 0.0
) -> Roll:
    """Update all hosts at once, after the first one, and delete other machines meanwhile."""
    (port,), folder = control_plane.free_ports(1), stage.process_folder.folder
    flags = ["--ssh-port", port, *(["--copy-per-call"] if copy_per_call else [])]
    async with AsyncExitStack() as exits:
        shares = [
            await exits.enter_async_context(started(_HOSTS, folder, port, share, _SERVERS))
            for share in range(_SERVERS)
        ]
        for share in shares:
            await share.read("serving")
        manager = await exits.enter_async_context(stage.manager(*flags))
        await stage.until_bound(manager)
        spares = await exits.enter_async_context(deleting(stage))
        await asyncio.sleep(seconds_before)
        before = spares.taken()
        manager.proceed()
        idle = int(await manager.read("resident"))
        await stage.drift_all()
        began = time.monotonic()

        async def has_begun() -> bool:
            return await stage.count_updated() > 0

        async def is_done() -> bool:
            return await stage.count_updated() == len(stage.hosts)

        await stage.until(manager, has_begun, what="the first update")
        spares.forget()
        await stage.until(manager, is_done, what="all updates")
        seconds = time.monotonic() - began
        peak = memory.peak(manager.pid)
        return Roll(len(stage.hosts), idle, peak, seconds, before, spares.taken())


@dataclass(slots=True)
class Spares:
    """Machines without a host, which are created and deleted all the time."""

    stage: Stage
    seen: dict[str, asyncio.Event] = field(default_factory=dict)
    gone: dict[str, asyncio.Event] = field(default_factory=dict)
    _seconds: list[float] = field(default_factory=list)
    _first: int = 0

    def forget(self) -> None:
        """Count only deletions that begin from now on."""
        self._first = len(self.seen)
        self._seconds.clear()

    def taken(self) -> list[float]:
        """Return how long the deletions took."""
        return sorted(self._seconds)

    async def run(self) -> None:
        """Create and delete machines until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            for number in itertools.count():
                group.create_task(self._delete_one(number))
                await asyncio.sleep(_EVERY_SECONDS)

    async def _watch(self) -> None:
        """Follow the machines."""
        kube = self.stage.kube
        found = await kube.list(Machine, namespace=NAMESPACE)
        async with kube.watch(
            Machine,
            namespace=NAMESPACE,
            resource_version=found.resource_version,
            timeout=timedelta(hours=1),
        ) as watch:
            async for event in watch:
                name = event.object.name
                if name in self.gone and event.type == "DELETED":
                    self.gone[name].set()
                elif name in self.seen and finalizers.MACHINE in event.object.metadata.finalizers:
                    self.seen[name].set()

    async def _delete_one(self, number: int) -> None:
        """Create a machine, wait until it waits for a host, and delete it."""
        name, kube = f"{_SPARE}-{number}", self.stage.kube
        self.seen[name], self.gone[name] = asyncio.Event(), asyncio.Event()
        await kube.create(waiting_machine(name))
        await self.seen[name].wait()
        await asyncio.sleep(_WAITS_SECONDS)
        began = time.monotonic()
        await kube.delete(Machine, name, namespace=NAMESPACE)
        await self.gone[name].wait()
        if number >= self._first:
            self._seconds.append(time.monotonic() - began)


@asynccontextmanager
async def deleting(stage: Stage) -> AsyncIterator[Spares]:
    """Create and delete machines without a host while the context lasts."""
    spares = Spares(stage)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(spares.run())
        yield spares
        running.cancel()
