"""Rolls of twelve real agents on the real control plane; `make test` runs one variant here, the other on the embedded API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.agent_life import servers
from tests.process.agent_life.servers import Server
from tests.process.runners.jobs import check_jobs
from tests.process.runners.rolls import check_roll, check_roll_with_dispatch
from tools.kube.control_plane import RealCluster


@pytest.fixture(scope="module")
def server(real_cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return the real control plane."""
    with servers.real(real_cluster, tmp_path_factory.mktemp("runners")) as found:
        yield found


async def test_a_roll_keeps_its_cap_at_every_event_although_the_controller_is_killed(
    server: Server, tmp_path: Path
) -> None:
    await check_roll(server, tmp_path)


@pytest.mark.soak
async def test_a_roll_with_dispatch_keeps_its_cap_and_lets_jobs_end_although_the_leader_is_killed(
    server: Server, tmp_path: Path
) -> None:
    await check_roll_with_dispatch(server, tmp_path)


async def test_jobs_run_once_each_during_a_roll_and_a_flood(server: Server, tmp_path: Path) -> None:
    await check_jobs(server, tmp_path)


@pytest.mark.soak
async def test_thousand_jobs_run_once_each_during_a_roll_and_a_flood(
    server: Server, tmp_path: Path
) -> None:
    await check_jobs(server, tmp_path, flood=990)
