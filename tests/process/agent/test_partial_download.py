"""A partial download with real processes and locks: no command of tart removes it, and the next pull continues it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from prometheus_client import CollectorRegistry

from bramley.agent import platform
from bramley.agent.images.disk_space import DiskSpace
from bramley.agent.images.partial_downloads import PartialDownloads
from bramley.agent.images.puller import Puller, PullSpec
from bramley.agent.metrics import AgentMetrics
from bramley.agent.processes import SystemPrograms
from bramley.agent.tart import references
from bramley.agent.tart.driver import Tart
from bramley.base.clock import SystemClock
from bramley.sim.mac.folder import MacFolder

IMAGE = "ghcr.io/example/runner:1"
SIZE = 400_000_000


def a_puller(mac: MacFolder) -> Puller:
    metrics, clock, host = AgentMetrics(CollectorRegistry()), SystemClock(), platform.current()
    home = mac.folders.tart_home
    tart = Tart(
        SystemPrograms(mac.environment()),
        binary=str(mac.programs / "tart"),
        home=home,
        metrics=metrics,
    )
    return Puller(
        tart,
        clock=clock,
        rng=random.Random(1),
        metrics=metrics,
        space=DiskSpace(host, home),
        partials=PartialDownloads(home, host, clock),
    )


async def test_interrupted_pull_is_continued_after_other_commands(tmp_path: Path) -> None:
    mac = MacFolder(tmp_path)
    mac.lay_out(
        {
            "timings": {"bytes_per_second": 100e6, "stream_bytes_per_second": 100e6},
            "images": {IMAGE: {"size_bytes": 2 * SIZE, "compressed_bytes": SIZE}},
        }
    )
    reference = references.parse(IMAGE)
    assert reference is not None
    received = mac.folders.tart_home / ".sim" / "pulled-bytes"

    def received_bytes() -> int:
        return sum(map(int, received.read_text().split())) if received.exists() else 0

    first = a_puller(mac)
    pull = asyncio.create_task(first.fetch(PullSpec(reference)))
    async with asyncio.timeout(60):
        while received_bytes() < SIZE // 2:
            await asyncio.sleep(0.05)
    pull.cancel()
    await asyncio.wait([pull])
    # The agent ends, and its locks with it; the next one starts.
    first.partials.drop_idle()
    following = a_puller(mac)
    await following.partials.hold_existing()
    for _ in range(3):
        await following.tart.list()

    async with asyncio.timeout(60):
        await following.fetch(PullSpec(reference))

    assert following.tart.resolve(IMAGE) is not None
    assert received_bytes() <= SIZE * 1.1
