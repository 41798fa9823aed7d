"""The scenarios that take a minute of real time, run in background processes while other tests run.

They start with the first test of the contract tier and their tests come last in it, so these rarely wait.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract.node_loss import timings
from tests.contract.node_loss.clusters import OUTCOMES, WITHOUT_KUBECTL, Outcomes
from tools import tiers
from tools.kube.pytest_plugin import prepare

TIMEOUT_SECONDS = 1800  # for all attempts
ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
IN_PROCESS, OVER_HTTP, REAL = "in-process", "over-http", "real"


@dataclass(frozen=True, slots=True)
class BackgroundRun:
    """A process that runs the scenarios on one cluster."""

    process: subprocess.Popen[bytes]
    folder: Path

    def outcomes(self) -> Outcomes:
        """Wait until the process has exited, and return the outcomes of the scenarios."""
        code = self.process.wait(TIMEOUT_SECONDS)
        assert code == 0, (self.folder / "output").read_text()
        outcomes: Outcomes = json.loads((self.folder / OUTCOMES).read_text())
        return outcomes


def uses_outcomes(item: pytest.Item) -> bool:
    """Return whether a test needs the outcome of a scenario."""
    return item.path.parent == HERE


def required_targets(items: Sequence[pytest.Item]) -> set[str]:
    """Return the clusters that these tests need and that can run here."""
    required = {
        item.callspec.params.get("target")
        for item in items
        if uses_outcomes(item) and hasattr(item, "callspec")
    }
    return required & {OVER_HTTP, *([REAL] if has_kubectl() else [])}


def has_kubectl() -> bool:
    """Return whether the cluster tier is selected and can run, so that kubectl is there."""
    return "cluster" in tiers.selected(os.environ.get("TIERS", "")) and not tiers.missing_for(
        "cluster"
    )


@contextmanager
def started(
    config: pytest.Config, targets: set[str], folders: pytest.TempPathFactory
) -> Iterator[dict[str, BackgroundRun]]:
    """Run the scenarios on these clusters until the context ends."""
    if targets and has_kubectl():
        prepare(config, *(timings.REAL.servers if REAL in targets else ()), "kubectl")
    with ExitStack() as stack:
        yield {
            each: stack.enter_context(_started(each, folders.mktemp(f"node-loss-{each}")))
            for each in sorted(targets)
        }


@contextmanager
def _started(target: str, folder: Path) -> Iterator[BackgroundRun]:
    options = [] if has_kubectl() else [WITHOUT_KUBECTL]
    command = [
        sys.executable,
        "-m",
        "tests.contract.node_loss.clusters",
        target,
        str(folder),
        *options,
    ]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        yield BackgroundRun(process, folder)
    finally:
        if process.poll() is None:
            # As Ctrl-C does: the process then stops its servers.
            process.send_signal(signal.SIGINT)
        process.wait(TIMEOUT_SECONDS)
