"""Shows the fate of the mutants before pytest's own summary."""

from __future__ import annotations

import pytest

REPORT = pytest.StashKey[str]()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if REPORT in config.stash:
        terminalreporter.section("mutants")
        terminalreporter.write_line(config.stash[REPORT])
