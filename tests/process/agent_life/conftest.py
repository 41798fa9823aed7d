"""The two control planes for the agents of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.agent_life import servers
from tests.process.agent_life.servers import Server

REAL = pytest.param("real", marks=pytest.mark.tier("cluster"))


# Not for the whole session: the controller of the agents' Roles must have exited before another test runs its own.
@pytest.fixture(scope="module", params=["embedded", REAL])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Return a running control plane."""
    folder = tmp_path_factory.mktemp("agent-life")
    running = (
        servers.embedded(folder)
        if request.param == "embedded"
        else servers.real(request.getfixturevalue("real_cluster"), folder)
    )
    with running as found:
        yield found
