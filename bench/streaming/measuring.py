"""The measures: a manager's memory while hosts are in flight, and the time of a whole transfer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from bench.streaming import memory
from bench.streaming.artifacts import Staged
from bench.streaming.children import Child, started
from bench.streaming.openssh import Sshd

_MANAGER, _RECEIVER = "bench.streaming.rolling", "bench.streaming.receiver"
_EVERY = 0.02
# A held host has all that it will get once nothing moved for so long.
_SETTLED = 1.0


@dataclass(frozen=True, slots=True)
class Held:
    """A manager's memory in bytes: at rest, while every host has got something and none all, and at most."""

    hosts: int
    idle: int
    in_flight: int
    peak: int
    # None: the hosts were left in the middle.
    seconds: float | None

    @property
    def above_idle(self) -> int:
        """Return what the transfers cost at most."""
        return self.peak - self.idle


@dataclass(frozen=True, slots=True)
class Race:
    """Seconds of whole transfers: scp, what the host then takes to verify what came, and ours, which is verified."""

    scp: float
    verifying: float
    ours: float


async def hold(
    staged: Staged, hosts: int, *, held_at: int, is_whole: bool, the_old_way: bool = False
) -> Held:
    """Bring artifacts to so many hosts at once; to the end if `is_whole`, else until all are in flight."""
    async with AsyncExitStack() as exits:
        receivers = [
            await exits.enter_async_context(started(_RECEIVER, staged.folder, held_at))
            for _ in range(min(hosts, os.cpu_count() or 1))
        ]
        ports = [await receiver.hear("port") for receiver in receivers]
        flags = ["--old"] if the_old_way else []
        manager = await exits.enter_async_context(
            started(_MANAGER, staged.folder, hosts, *ports, *flags)
        )
        idle = await manager.hear("idle")
        await manager.hear("ready")
        manager.go()
        in_flight = await _all_held(manager, receivers, hosts)
        seconds = await _released(manager, receivers) if is_whole else None
        return Held(hosts, idle, in_flight, max(in_flight, memory.peak(manager.pid)), seconds)


async def _all_held(manager: Child, receivers: Sequence[Child], hosts: int) -> int:
    """Wait until each host has got its first bytes and no more move; return what the manager holds then."""
    shares = [len(range(number, hosts, len(receivers))) for number in range(len(receivers))]
    async with asyncio.TaskGroup() as group:
        for receiver, share in zip(receivers, shares, strict=True):
            group.create_task(_held(receiver, share))
    return await _settled(manager.pid)


async def _held(receiver: Child, share: int) -> None:
    for _ in range(share):
        await receiver.hear("held")


async def _settled(pid: int) -> int:
    """Return the most that a process held until it was the same for a while."""
    most, same = 0, 0.0
    before = memory.resident(pid)
    while same < _SETTLED:
        await asyncio.sleep(_EVERY)
        now = memory.resident(pid)
        same = same + _EVERY if now == before else 0.0
        before, most = now, max(most, now)
    return most


async def _released(manager: Child, receivers: Sequence[Child]) -> float:
    for receiver in receivers:
        receiver.go()
    return float(await manager.hear("seconds"))


async def stream(staged: Staged, sshd: Sshd) -> float:
    """Bring all artifacts to the one server, and return the seconds from dialling to the end."""
    async with started(_MANAGER, staged.folder, 1, sshd.port, "--into", sshd.into) as manager:
        await manager.hear("idle")
        await manager.hear("ready")
        manager.go()
        seconds = float(await manager.hear("seconds"))
    sshd.require_all()
    return seconds


async def race(staged: Staged, sshd: Sshd) -> Race:
    """Let scp and us bring the same, in turns."""
    scp = await sshd.scp()
    sshd.require_all()
    verifying = await sshd.verify()
    return Race(scp, verifying, await stream(staged, sshd))
