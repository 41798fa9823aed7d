"""Resource usage of VMs, measured over virtual time on a fake host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from bramley.agent.host import HostProcess, Space, SystemInfo, Usage
from bramley.agent.ledger import VmRecord, VmState
from bramley.agent.serving.stats import StatsProvider, own_usage
from tests import virtual_time


@dataclass
class Host:
    """Processes that use half a core each, as long as they live."""

    pids: dict[str, int] = field(default_factory=lambda: {"vm": 7})
    state: VmState = VmState.STARTED
    rate: float = 0.5

    def usage(self, pid: int) -> Usage | None:
        if pid not in self.pids.values():
            return None
        return Usage(timedelta(seconds=self.rate * asyncio.get_running_loop().time()), 1000)

    def own(self) -> Usage:
        return Usage(timedelta(seconds=0.01 * asyncio.get_running_loop().time()), 100)

    def lock_folder(self, folder: Path) -> None:  # noqa: ARG002
        return None

    def allocated(self, folder: Path) -> int:  # noqa: ARG002
        return 0

    def space(self, _path: Path) -> Space:
        return Space(10, 5)

    def boot_id(self) -> str:
        return "boot"

    def system_info(self) -> SystemInfo:
        return SystemInfo()

    def is_locked(self, _path: Path) -> bool:
        return False

    def ancestors(self, pid: int) -> list[int]:
        return [pid]

    def lock_holder(self, _path: Path) -> int | None:
        return None

    def guest_processes(self) -> list[HostProcess]:
        return []

    def processes(self) -> list[HostProcess]:
        return []

    def address(self) -> str | None:
        return None

    def records(self) -> dict[str, VmRecord]:
        return {
            vm: VmRecord(vm=vm, namespace="ns", pod=vm, uid=vm, image="i", state=self.state)
            for vm in self.pids
        }


@asynccontextmanager
async def sampling(host: Host) -> AsyncIterator[StatsProvider]:
    clock = virtual_time.clock()
    sampler = StatsProvider(
        "mac-1",
        host,
        host.records,
        host.pids.get,
        lambda *_: None,
        clock,
        disk=Path("/"),
        own=host.own,
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(sampler.run())
        await asyncio.sleep(0.1)
        yield sampler
        running.cancel()


async def test_rates_are_known_after_a_second_and_updated() -> None:
    host = Host()
    async with sampling(host) as sampler:
        (pod,) = sampler.usage().pods
        assert (pod.used.cores, pod.used.memory_bytes, pod.container) == (None, 1000, "vm")

        await asyncio.sleep(1)
        (pod,) = sampler.usage().pods
        assert pod.used.cores == 0.5
        node = sampler.usage()
        assert (round(node.used.cores or 0, 3), node.used.memory_bytes) == (0.51, 1100)
        assert node.disk == Space(10, 5)


async def test_counter_of_the_node_never_decreases() -> None:
    host = Host()
    async with sampling(host) as sampler:
        await asyncio.sleep(35)
        before = sampler.usage().used.cpu_seconds

        host.pids.clear()
        await asyncio.sleep(15)

        usage = sampler.usage()
        assert usage.pods == []
        assert usage.used.cpu_seconds >= before


async def test_stopped_vms_have_no_usage() -> None:
    host = Host(state=VmState.CLONED)
    async with sampling(host) as sampler:
        assert sampler.usage().pods == []


async def test_decreasing_counter_gives_no_negative_rate() -> None:
    host = Host()
    async with sampling(host) as sampler:
        await asyncio.sleep(35)
        host.rate = 0.0
        await asyncio.sleep(10)

        (pod,) = sampler.usage().pods
        assert pod.used.cores == 0.0


def test_usage_of_the_agent_itself() -> None:
    used = own_usage()

    assert used.cpu > timedelta()
    assert 10 * 2**20 < used.resident_bytes < 4 * 2**30
