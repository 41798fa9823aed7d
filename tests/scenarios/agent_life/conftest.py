"""Shows at how many points agents were killed, before pytest's own summary."""

from __future__ import annotations

import pytest

COUNTS = pytest.StashKey[list[int]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COUNTS] = []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    counts = config.stash.get(COUNTS, [])
    if counts:
        terminalreporter.section("deaths of the agent")
        terminalreporter.write_line(f"killed at {sum(counts)} points; nothing was lost or left")
