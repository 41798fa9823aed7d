"""A fleet of rented Macs on the embedded API, with our small controllers of Cluster API's kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.agent_life import servers
from tests.process.machines import story
from tests.process.machines.fleet import Plane, a_fleet

pytestmark = pytest.mark.tier("cluster")  # kubectl is built with the real control plane


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    """Run the embedded API."""
    with servers.embedded(tmp_path / "plane", "--cluster-api") as server:
        yield Plane(server, has_core_manager=False)


async def test_fleet_is_scaled_up_and_down(plane: Plane, tmp_path: Path, kubectl: Path) -> None:
    async with a_fleet(plane, kubectl, tmp_path) as fleet:
        await story.live_and_die(fleet, loses_node=True)
