"""A simulated Mac with the agent's part for images on it, under virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.agent.images import composing
from bramley.agent.images.image_requests import (
    Answer,
    Failed,
    ImageRequest,
    Ready,
)
from bramley.agent.images.image_store import Stock
from bramley.agent.images.images import Images
from bramley.agent.images.puller import PullSettings, Reclaim
from bramley.agent.ledger import Ledger
from bramley.agent.metrics import AgentMetrics
from bramley.agent.tart.driver import Credentials, Tart
from bramley.agent.tart.references import Reference
from bramley.base import virtual_time
from bramley.sim.mac.mac import SimulatedMac
from bramley.sim.mac.agent_process import AgentSide

REPOSITORY = "ghcr.io/tuist/runner"
TAGGED = f"{REPOSITORY}:15.4"
GB = 10**9


def digest(letter: str) -> str:
    return "sha256:" + 64 * letter


def pinned(letter: str, repository: str = REPOSITORY) -> str:
    return f"{repository}@{digest(letter)}"


@dataclass
class FakeKeys:
    found: Credentials | None = None
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    async def find(
        self,
        _: Reference,
        *,
        namespace: str,
        secrets: Sequence[str],
    ) -> Credentials | None:
        self.asked.append((namespace, tuple(secrets)))
        return self.found


@dataclass
class Shelves:
    """One Mac and its images; `calls` are tart's command lines in their order."""

    mac: SimulatedMac
    side: AgentSide
    tart: Tart
    ledger: Ledger
    stock: Stock
    images: Images
    metrics: AgentMetrics
    keys: FakeKeys
    calls: list[str]
    changes: list[str] = field(default_factory=list)

    def ask(self, image: str, owner: str = "pod-1", **more: Any) -> Answer:
        request = ImageRequest(image, owner, **more)
        return self.images.want(request, on_change=lambda: self.changes.append(owner))

    async def ready(self, image: str, owner: str = "pod-1", **more: Any) -> Ready:
        """Ask until the image is there."""
        async with asyncio.timeout(24 * 3600):
            while True:
                answer = self.ask(image, owner, **more)
                if isinstance(answer, Ready):
                    return answer
                await asyncio.sleep(1)

    async def failed(self, image: str, owner: str = "pod-1", **more: Any) -> Failed:
        async with asyncio.timeout(24 * 3600):
            while True:
                answer = self.ask(image, owner, **more)
                if isinstance(answer, Failed):
                    return answer
                await asyncio.sleep(1)

    def called(self, verb: str) -> list[str]:
        return [call for call in self.calls if call.split()[1] == verb]

    def vms(self) -> set[str]:
        folder = self.mac.folders.tart_home / "vms"
        return {each.name for each in folder.iterdir()} if folder.exists() else set()

    def left_in_tmp(self) -> list[str]:
        folder = self.mac.folders.tart_home / "tmp"
        return sorted(each.name for each in folder.iterdir()) if folder.exists() else []


@dataclass
class _Counting:
    """Hears of every command line on its way to the programs."""

    inner: Any
    calls: list[str]

    async def run(self, argv: Sequence[str], **more: Any) -> Any:
        self.calls.append(" ".join(argv))
        return await self.inner.run(argv, **more)


@asynccontextmanager
async def shelves(
    root: Path,
    *,
    settings: PullSettings | None = None,
    reclaim: Reclaim | None = None,
    seed: int = 1,
) -> AsyncIterator[Shelves]:
    """Run a Mac whose registry has image `a` under a tag and by digest, and others by digest."""
    clock = virtual_time.VirtualClock(asyncio.get_running_loop())
    async with asyncio.TaskGroup() as group:
        mac = SimulatedMac(root, clock=clock, rng=random.Random(seed), group=group)
        mac.script.image(TAGGED, digest=digest("a"), size_bytes=20 * GB)
        for letter in "bcd":
            mac.script.image(pinned(letter), size_bytes=20 * GB)
        world = assemble(mac, settings=settings, reclaim=reclaim)
        running = group.create_task(world.images.run())
        yield world
        running.cancel()
        mac.table.clear()


def assemble(
    mac: SimulatedMac, *, settings: PullSettings | None = None, reclaim: Reclaim | None = None
) -> Shelves:
    """Build one more agent's part on a Mac."""
    clock, calls = mac.clock, list[str]()
    metrics = AgentMetrics(CollectorRegistry())
    side = mac.agent_side()
    home = mac.folders.tart_home
    tart = Tart(_Counting(side.programs, calls), binary="tart", home=home, metrics=metrics)
    ledger = Ledger(mac.folders.ledger, durable=False)
    stock = Stock(ledger, home, clock)
    keys = FakeKeys()
    images = composing.build(
        composing.Means(
            tart=tart,
            ledger=ledger,
            stock=stock,
            keys=keys,
            host=side.host,
            clock=clock,
            rng=random.Random(1),
            metrics=metrics,
            reclaim=reclaim,
        ),
        settings,
    )
    return Shelves(mac, side, tart, ledger, stock, images, metrics, keys, calls)


async def until(condition: Any, *, seconds: float = 3600) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.5)
