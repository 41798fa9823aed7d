"""A bandwidth limit on a real process: the simulated tart is stopped and continued by signals."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from bramley.agent import platform
from bramley.agent.images.disk_space import DiskSpace
from bramley.agent.images.partial_downloads import PartialDownloads
from bramley.agent.images.pull_monitor import PullControl
from bramley.agent.images.puller import Puller, PullSpec
from bramley.agent.metrics import AgentMetrics
from bramley.agent.processes import SystemPrograms
from bramley.agent.tart import references
from bramley.agent.tart.driver import Tart
from bramley.base.clock import SystemClock
from bramley.sim.mac.folder import MacFolder

SIZE = 200_000_000
# A try is inconclusive when this process is paused and cannot stop tart in time; then the next image is pulled.
IMAGES = tuple(f"ghcr.io/example/runner:{number}" for number in range(5))


async def took(puller: Puller, image: str, limit: float | None) -> float:
    reference = references.parse(image)
    assert reference is not None
    began = time.monotonic()
    await puller.fetch(PullSpec(reference, is_staged=True, control=PullControl(limit=limit)))
    return time.monotonic() - began


@pytest.mark.parametrize(("limit", "least"), [(None, 0.8), (50e6, 3.2)])
async def test_limited_pull_takes_at_least_as_long_as_the_limit_requires(
    tmp_path: Path, limit: float | None, least: float
) -> None:
    mac = MacFolder(tmp_path / "mac-1")
    mac.lay_out(
        {
            "timings": {"bytes_per_second": 200e6, "stream_bytes_per_second": 200e6},
            "images": {
                image: {"size_bytes": 2 * SIZE, "compressed_bytes": SIZE} for image in IMAGES
            },
        }
    )
    metrics = AgentMetrics(CollectorRegistry())
    tart = Tart(
        SystemPrograms(mac.environment()),
        binary=str(mac.programs / "tart"),
        home=mac.folders.tart_home,
        metrics=metrics,
    )
    clock, host, home = SystemClock(), platform.current(), mac.folders.tart_home
    puller = Puller(
        tart,
        clock=clock,
        rng=random.Random(1),
        metrics=metrics,
        space=DiskSpace(host, home),
        partials=PartialDownloads(home, host, clock),
    )

    for image in IMAGES:
        seconds = await took(puller, image, limit)
        assert tart.resolve(image) is not None
        if seconds >= least:
            break
    assert seconds >= least
