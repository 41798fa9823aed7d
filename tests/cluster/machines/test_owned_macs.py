"""A Mac that its team owns on a real kube-apiserver, by the commands of its guide."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.agent_life import servers
from tests.process.agent_life.servers import Server
from tests.process.owned_macs.stage import a_stage
from tests.process.owned_macs.story import join_drain_and_leave
from tools.kube.control_plane import RealCluster


@pytest.fixture
def server(lone_cluster: RealCluster, tmp_path: Path) -> Iterator[Server]:
    """Run what a cluster needs beside the manager."""
    with servers.real(lone_cluster, tmp_path) as found:
        yield found


async def test_mac_joins_drains_and_leaves_a_real_cluster(
    server: Server, tmp_path: Path, kubectl: Path
) -> None:
    async with a_stage(server.kubeconfig, tmp_path, kubectl) as stage:
        await join_drain_and_leave(stage)
