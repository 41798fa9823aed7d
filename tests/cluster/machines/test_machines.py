"""The same fleet with Cluster API's core manager, on a real kube-apiserver and on the embedded API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.agent_life import servers
from tests.process.agent_life.servers import Server
from tests.process.machines import story
from tests.process.machines.fleet import Plane, a_fleet
from tools.kube.control_plane import RealCluster


@pytest.fixture
def real(core_on_real: Path, real_cluster: RealCluster, tmp_path: Path) -> Iterator[Server]:
    """Run what a cluster needs beside the provider on the real control plane."""
    with servers.real(real_cluster, tmp_path) as server:
        yield server


async def test_fleet_on_kube_apiserver(real: Server, tmp_path: Path, kubectl: Path) -> None:
    async with a_fleet(Plane(real, has_core_manager=True), kubectl, tmp_path) as fleet:
        await story.live_and_die(fleet)


@pytest.mark.soak
async def test_fleet_on_the_embedded_api(
    core_on_embedded: Path, tmp_path: Path, kubectl: Path
) -> None:
    plane = Plane(Server("embedded", core_on_embedded, tmp_path / "unused"), has_core_manager=True)
    async with a_fleet(plane, kubectl, tmp_path) as fleet:
        await story.live_and_die(fleet)
