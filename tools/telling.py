"""What a run of tests tells before pytest's own summary: how many ran in which tier, and what single tests have to say.

Everything travels as properties of reports, so it arrives from other processes of the run as well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import pytest

TIER = "tier"
TARGET = "target"
TOLD = "told"
Outcomes = Mapping[str, Sequence[pytest.TestReport]]


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

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write it all below the failures; the reports come from every process of the run."""
        outcomes = {
            name: [report for report in reports if isinstance(report, pytest.TestReport)]
            for name, reports in terminalreporter.stats.items()
        }
        for heading, lines in sorted(_told(outcomes).items()):
            terminalreporter.section(heading)
            for line, number in sorted(lines.items()):
                terminalreporter.write_line(line.replace("{}", str(number)))
        terminalreporter.section("tests by tier")
        seed = terminalreporter.config.getoption("randomly_seed", None)
        if seed is not None:
            terminalreporter.write_line(f"order      repeat it with --randomly-seed={seed}")
        for name, counts in [*_counted(outcomes, TIER), *_counted(outcomes, TARGET)]:
            told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
            terminalreporter.write_line(f"{name:<10} {told}")


def _told(outcomes: Outcomes) -> dict[str, Counter[str]]:
    told: dict[str, Counter[str]] = defaultdict(Counter)
    for report in (each for reports in outcomes.values() for each in reports):
        if report.when == "call":
            for heading, line, number in _values(report, TOLD):
                told[heading][line] += number
    return told


def _counted(outcomes: Outcomes, name: str) -> list[tuple[str, Counter[str]]]:
    """Count outcomes by a property of the reports; pytest gives its set-ups and ends that went well no name."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome, reports in outcomes.items():
        for report in reports if outcome else ():
            for value in _values(report, name):
                counts[str(value)][outcome] += 1
    return sorted(counts.items())


def _values(report: pytest.TestReport, name: str) -> Iterator[Any]:
    return (value for key, value in report.user_properties if key == name)
