"""A second look at tests of real processes that failed in the crowd of a run in lanes: each must then pass alone.

Such a test shares the machine with two other lanes, and a moment's standstill can change who is faster. A verdict that depends on
that helps nobody, nor does a failure that is swept away: at most three are run again, alone and after everything else, and what
they said in the crowd is printed in full. Those that only compute, or more than three, get no second look.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import cast

import pytest

from tools import lanes

MOST = 3
DEADLINE_SECONDS = 900.0
PASSED_ALONE = "passed alone"
_FAILURES = ("failed", "error")


def may_look_again(tests: set[str]) -> bool:
    """Tell whether these failed tests are few, and all of real processes."""
    return 0 < len(tests) <= MOST and not any(lanes.is_free(test) for test in tests)


class SecondLook:
    """Runs failed tests again when all lanes have ended, and turns the verdict if they pass."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    # The last one: the other processes of the run have gone by then.
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Look again, where the failures of this run allow it."""
        terminal = _terminal(self._config)
        reports = [report for name in _FAILURES for report in terminal.getreports(name)]
        tests = {report.nodeid for report in reports}
        if exitstatus != pytest.ExitCode.TESTS_FAILED or not may_look_again(tests):
            return
        terminal.section("a second look, alone")
        alone = self._run(sorted(tests))
        terminal.write_line(alone)
        if all_passed(alone, len(tests)):
            for name in _FAILURES:
                terminal.stats.pop(name, None)
            terminal.stats[PASSED_ALONE] = reports
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what was forgiven as fully as a failure."""
        for report in terminalreporter.getreports(PASSED_ALONE):
            terminalreporter.section(f"failed in the crowd, passed alone: {report.nodeid}")
            terminalreporter.write_line(report.longreprtext)

    def _run(self, tests: list[str]) -> str:
        words = [sys.executable, "-m", "pytest", "-q", "--no-header", *tests]
        try:
            done = subprocess.run(
                words, cwd=self._config.rootpath, capture_output=True, text=True,
                timeout=DEADLINE_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"no end within {DEADLINE_SECONDS:.0f} s"
        return (done.stdout + done.stderr).strip()


def all_passed(told: str, number: int) -> bool:
    """Tell whether pytest's last line counts so many passed tests and nothing else."""
    return re.fullmatch(rf"=*\s*{number} passed in .*", told.rpartition("\n")[2]) is not None


def _terminal(config: pytest.Config) -> pytest.TerminalReporter:
    return cast("pytest.TerminalReporter", config.pluginmanager.get_plugin("terminalreporter"))
