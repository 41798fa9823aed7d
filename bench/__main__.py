"""The command line: `python -m bench NAME [options]`; `all` runs every benchmark and writes bench/RESULTS.md and the chart."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import results
from bench.report import Report

# Each module has `run(arguments) -> Report | None`; None if it printed something else, such as a profile.
BENCHES: Mapping[str, str] = {
    "agent": "bench.agent.run",
    "apiserver": "bench.apiserver.run",
    "dispatch": "bench.dispatch.run",
    "machines": "bench.machines.run",
    "pools": "bench.pools.run",
    "roll": "bench.roll.run",
    "runtime": "bench.runtime.run",
    "streaming": "bench.streaming.run",
}
# What `all` adds: the chart of the docs is from the same run as the results page.
OPTIONS: Mapping[str, Sequence[str]] = {"roll": ["--plot"]}
RESULTS = Path(__file__).parent / "RESULTS.md"


def main(arguments: Sequence[str]) -> int:
    """Run one benchmark, or all, and print the reports."""
    name, *rest = arguments or [""]
    if name == "all":
        return run_all(rest)
    if name not in BENCHES:
        print(f"usage: python -m bench {'|'.join(BENCHES)}|all [options]", file=sys.stderr)
        return 2
    report = run(name, rest)
    if report is not None:
        print_report(report)
    return 0


def run(name: str, arguments: Sequence[str]) -> Report | None:
    """Run one benchmark."""
    report: Report | None = importlib.import_module(BENCHES[name]).run(arguments)
    return report


def run_all(arguments: Sequence[str]) -> int:
    """Run every benchmark and write the results page and the chart."""
    found = (run(name, [*arguments, *OPTIONS.get(name, ())]) for name in BENCHES)
    reports = [report for report in found if report is not None]
    today = datetime.now(UTC).date()
    RESULTS.write_text(results.document(reports, today, results.versions()))
    for report in reports:
        print_report(report)
    return 0


def print_report(report: Report) -> None:
    """Print a table and, as the last line, JSON."""
    for line in report.table():
        print(line)
    print(report.line())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
