"""What a run of tests tells before pytest's own summary: how many ran in which tier, and what single tests have to say.

Everything travels as properties of reports, so it arrives from other processes of the run as well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

TIER = "tier"
TARGET = "target"
TOLD = "told"


class Tell(Protocol):
    """Tells a line at the end of the run; the numbers of equal lines are added up and stand for its {}."""

    def __call__(self, heading: str, line: str, number: int = 0) -> None:
        """Tell it under this heading."""


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Tell:
    """Give a test its say at the end."""

    def told(heading: str, line: str, number: int = 0) -> None:
        request.node.user_properties.append((TOLD, (heading, line, number)))

    return told


class Summary:
    """Counts outcomes per tier, and per target of contract suites, and gathers what tests tell."""

    def __init__(self) -> None:
        self._outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        self._targets: dict[str, Counter[str]] = defaultdict(Counter)
        self._told: dict[str, Counter[str]] = defaultdict(Counter)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what a report says; they come from every process of the run."""
        if report.when == "call" or (report.when == "setup" and not report.passed):
            for name, counts in ((TIER, self._outcomes), (TARGET, self._targets)):
                for value in _values(report, name):
                    counts[str(value)][report.outcome] += 1
        if report.when == "call":
            for heading, line, number in _values(report, TOLD):
                self._told[heading][line] += number

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write it all below the failures."""
        for heading, lines in sorted(self._told.items()):
            terminalreporter.section(heading)
            for line, number in sorted(lines.items()):
                terminalreporter.write_line(line.replace("{}", str(number)))
        terminalreporter.section("tests by tier")
        seed = terminalreporter.config.getoption("randomly_seed", None)
        if seed is not None:
            terminalreporter.write_line(f"order      repeat it with --randomly-seed={seed}")
        for name, counts in [*sorted(self._outcomes.items()), *sorted(self._targets.items())]:
            told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
            terminalreporter.write_line(f"{name:<10} {told}")


def _values(report: pytest.TestReport, name: str) -> Iterator[Any]:
    return (value for key, value in report.user_properties if key == name)
