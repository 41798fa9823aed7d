"""A simulated Mac with the agent's images, under virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from bramley.agent.images.credentials import SecretForbidden
from bramley.agent.images.disk_space import DiskSpace, Reclaim
from bramley.agent.images.image_manager import ImageManager
from bramley.agent.images.image_requests import Failed, ImageRequest, ImageState, PullBackoff, Ready
from bramley.agent.images.image_store import ImageStore
from bramley.agent.images.partial_downloads import PartialDownloads
from bramley.agent.images.puller import Puller, PullSettings
from bramley.agent.ledger import Ledger
from bramley.agent.metrics import AgentMetrics
from bramley.agent.tart.driver import Credentials, Tart
from bramley.agent.tart.references import Reference
from bramley.sim.mac.agent_process import AgentProcess
from bramley.sim.mac.mac import SimulatedMac
from tests import virtual_time

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
    forbidden: SecretForbidden | None = None
    queries: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    async def find(
        self, _: Reference, *, namespace: str, secrets: Sequence[str]
    ) -> Credentials | None:
        self.queries.append((namespace, tuple(secrets)))
        if self.forbidden is not None:
            raise self.forbidden
        return self.found


@dataclass
class ImageWorld:
    """One Mac and its images; `calls` are tart's command lines in order."""

    mac: SimulatedMac
    side: AgentProcess
    tart: Tart
    ledger: Ledger
    store: ImageStore
    images: ImageManager
    metrics: AgentMetrics
    keys: FakeKeys
    calls: list[str]
    changes: list[str] = field(default_factory=list)

    def request(self, image: str, owner: str = "pod-1", **more: Any) -> ImageState:
        request = ImageRequest(image, owner, **more)
        return self.images.request(request, on_change=lambda: self.changes.append(owner))

    async def ready(self, image: str, owner: str = "pod-1", **more: Any) -> Ready:
        """Request the image until it is there."""
        async with asyncio.timeout(24 * 3600):
            while True:
                answer = self.request(image, owner, **more)
                if isinstance(answer, Ready):
                    return answer
                await asyncio.sleep(1)

    async def failed(self, image: str, owner: str = "pod-1", **more: Any) -> Failed:
        async with asyncio.timeout(24 * 3600):
            while True:
                answer = self.request(image, owner, **more)
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
    """Passes every command line to a callback on its way to the programs."""

    inner: Any
    calls: list[str]

    async def run(self, argv: Sequence[str], **more: Any) -> Any:
        self.calls.append(" ".join(argv))
        return await self.inner.run(argv, **more)


@asynccontextmanager
async def image_world(
    root: Path,
    *,
    settings: PullSettings | None = None,
    reclaim: Reclaim | None = None,
    seed: int = 1,
) -> AsyncIterator[ImageWorld]:
    """Run a Mac whose registry has image `a` under a tag and by digest, and others by digest."""
    clock = virtual_time.VirtualClock(asyncio.get_running_loop())
    async with asyncio.TaskGroup() as group:
        mac = SimulatedMac(root, clock=clock, rng=random.Random(seed), group=group)
        mac.settings.image(TAGGED, digest=digest("a"), size_bytes=20 * GB)
        for letter in "bcd":
            mac.settings.image(pinned(letter), size_bytes=20 * GB)
        world = assemble(mac, settings=settings, reclaim=reclaim)
        running = group.create_task(world.images.run())
        yield world
        running.cancel()
        mac.table.clear()


def assemble(
    mac: SimulatedMac, *, settings: PullSettings | None = None, reclaim: Reclaim | None = None
) -> ImageWorld:
    """Build the images of one more agent on a Mac."""
    clock, calls = mac.clock, list[str]()
    metrics = AgentMetrics(CollectorRegistry())
    side = mac.start_agent()
    home = mac.folders.tart_home
    tart = Tart(_Counting(side.programs, calls), binary="tart", home=home, metrics=metrics)
    ledger = Ledger(mac.folders.ledger, durable=False)
    store = ImageStore(ledger, home, clock)
    keys = FakeKeys()
    rng = random.Random(1)
    space = DiskSpace(side.host, home, reclaim)
    puller = Puller(
        tart,
        clock=clock,
        rng=rng,
        metrics=metrics,
        space=space,
        partials=PartialDownloads(home, side.host, clock),
        settings=settings or PullSettings(),
    )
    images = ImageManager(
        tart=tart,
        ledger=ledger,
        store=store,
        puller=puller,
        keyring=keys,
        host=side.host,
        clock=clock,
        backoff=PullBackoff(clock, rng),
        space=space,
    )
    return ImageWorld(mac, side, tart, ledger, store, images, metrics, keys, calls)


async def until(condition: Any, *, seconds: float = 3600) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.5)
