"""Shows at how many points agents were killed, before pytest's own summary."""

from __future__ import annotations

import pytest

COUNTS = pytest.StashKey[dict[str, int]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[COUNTS] = {}


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    counts = config.stash.get(COUNTS, {})
    if counts:
        terminalreporter.section("deaths of the agent")
        told = f"{sum(counts.values())} points of {len(counts)} lives"
        terminalreporter.write_line(f"killed at {told}; nothing was lost or left")
