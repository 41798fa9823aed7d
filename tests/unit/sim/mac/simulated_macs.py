"""A simulated Mac for one test, with an image in its registry and an agent process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bramley.agent.programs import ProgramResult
from bramley.agent.runs import Run
from bramley.sim.mac.agent_process import AgentProcess
from bramley.sim.mac.mac import SimulatedMac
from tests import virtual_time

IMAGE = "ghcr.io/acme/macos:1"


@dataclass(slots=True)
class AgentOnMac:
    """One Mac and the agent process that runs on it now."""

    mac: SimulatedMac
    agent: AgentProcess

    async def tart(self, *words: str) -> ProgramResult:
        return await self.agent.programs.run(("tart", *words), environment=self.environment)

    @property
    def environment(self) -> dict[str, str]:
        return {"TART_HOME": str(self.mac.folders.tart_home), "CI": "1"}

    async def vm(self, name: str = "vm") -> str:
        """Clone a VM of the image, pulling the image if necessary."""
        await self.tart("pull", IMAGE)
        assert (await self.tart("clone", IMAGE, name)).code == 0
        return name

    async def start(self, vm: str) -> None:
        await self.agent.runs.start(Run(vm, ("tart", "run", vm), self.environment))

    async def running_vm(self, name: str = "vm") -> str:
        await self.start(await self.vm(name))
        assert (await self.tart("ip", name, "--wait", "60")).code == 0
        return name

    def next_agent(self) -> None:
        self.agent = self.mac.start_agent()

    def config(self, vm: str) -> Path:
        return self.mac.folders.tart_home / "vms" / vm / "config.json"


@asynccontextmanager
async def simulated_mac(root: Path, *, seed: int = 1, **guest: Any) -> AsyncIterator[AgentOnMac]:
    async with asyncio.TaskGroup() as group:
        mac = SimulatedMac(root, clock=virtual_time.clock(), rng=random.Random(seed), group=group)
        mac.settings.image(IMAGE, compressed_bytes=100_000_000, guest={"work": 60, **guest})
        yield AgentOnMac(mac, mac.start_agent())
        mac.table.clear()


def now() -> float:
    return asyncio.get_running_loop().time()
