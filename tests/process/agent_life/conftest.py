"""The two control planes for the agents of this folder, and how often an agent was killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.agent_life import servers
from tests.process.agent_life.servers import Server

REAL = pytest.param("real", marks=pytest.mark.tier("cluster"))
COUNTS = pytest.StashKey[dict[str, int]]()


# Not for the whole session: the process that keeps agents' Roles must be gone before another test runs its own.
@pytest.fixture(scope="module", params=["embedded", REAL])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Give a control plane."""
    folder = tmp_path_factory.mktemp("agent-life")
    running = (
        servers.embedded(folder)
        if request.param == "embedded"
        else servers.real(request.getfixturevalue("real_cluster"), folder)
    )
    with running as found:
        yield found


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COUNTS] = {}


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    counts = config.stash.get(COUNTS, {})
    if counts:
        terminalreporter.section("real agents that were killed")
        for name, count in sorted(counts.items()):
            terminalreporter.write_line(f"on {name}: at {count} points; nothing was lost or left")
