"""The measurements: a manager's memory while transfers are in flight, and the duration of complete transfers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from bench.streaming import memory
from bench.streaming.artifacts import Staged
from bench.streaming.child_process import Child, started
from bench.streaming.openssh import Sshd

_SENDER, _RECEIVER = "bench.streaming.sender", "bench.streaming.receiver"
_POLL_SECONDS = 0.02
# Memory that has not changed for this long is stable: the held hosts have received all that they will.
_STABLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """A manager's memory in bytes: idle, while all transfers are in flight, and at its peak."""

    hosts: int
    idle: int
    in_flight: int
    peak: int
    # None: the transfers were not completed.
    seconds: float | None

    @property
    def above_idle(self) -> int:
        """Return the peak memory of the transfers."""
        return self.peak - self.idle


@dataclass(frozen=True, slots=True)
class Race:
    """Seconds of complete transfers: scp, the verification on the host afterwards, and ours, which is verified."""

    scp: float
    verifying: float
    ours: float


async def measure_memory(
    staged: Staged, hosts: int, *, held_at: int, is_complete: bool, copy_per_call: bool = False
) -> MemoryUse:
    """Send artifacts to this many hosts at once; to the end if `is_complete`, else until all are in flight."""
    async with AsyncExitStack() as exits:
        receivers = [
            await exits.enter_async_context(started(_RECEIVER, staged.folder, held_at))
            for _ in range(min(hosts, os.cpu_count() or 1))
        ]
        ports = [await receiver.read("port") for receiver in receivers]
        flags = ["--copy-per-call"] if copy_per_call else []
        manager = await exits.enter_async_context(
            started(_SENDER, staged.folder, hosts, *ports, *flags)
        )
        idle = await manager.read("idle")
        await manager.read("ready")
        manager.proceed()
        in_flight = await _wait_all_held(manager, receivers, hosts)
        seconds = await _complete(manager, receivers) if is_complete else None
        return MemoryUse(hosts, idle, in_flight, max(in_flight, memory.peak(manager.pid)), seconds)


async def _wait_all_held(manager: Child, receivers: Sequence[Child], hosts: int) -> int:
    """Wait until all hosts are held and no more bytes are sent; return the manager's memory then."""
    shares = [len(range(number, hosts, len(receivers))) for number in range(len(receivers))]
    async with asyncio.TaskGroup() as group:
        for receiver, share in zip(receivers, shares, strict=True):
            group.create_task(_wait_held(receiver, share))
    return await _stable_memory(manager.pid)


async def _wait_held(receiver: Child, share: int) -> None:
    for _ in range(share):
        await receiver.read("held")


async def _stable_memory(pid: int) -> int:
    """Return the maximum memory of a process until it is stable."""
    maximum, stable = 0, 0.0
    before = memory.resident(pid)
    while stable < _STABLE_SECONDS:
        await asyncio.sleep(_POLL_SECONDS)
        now = memory.resident(pid)
        stable = stable + _POLL_SECONDS if now == before else 0.0
        before, maximum = now, max(maximum, now)
    return maximum


async def _complete(manager: Child, receivers: Sequence[Child]) -> float:
    for receiver in receivers:
        receiver.proceed()
    return float(await manager.read("seconds"))


async def stream(staged: Staged, sshd: Sshd) -> float:
    """Send all artifacts to the one server, and return the seconds from the connection to the end."""
    async with started(_SENDER, staged.folder, 1, sshd.port, "--into", sshd.into) as manager:
        await manager.read("idle")
        await manager.read("ready")
        manager.proceed()
        seconds = float(await manager.read("seconds"))
    sshd.check_received()
    return seconds


async def race(staged: Staged, sshd: Sshd) -> Race:
    """Send the same artifacts with scp and then with ours."""
    scp = await sshd.scp()
    sshd.check_received()
    verifying = await sshd.verify()
    return Race(scp, verifying, await stream(staged, sshd))
