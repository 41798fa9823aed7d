"""The stories that take a minute by the clock, played in processes of their own while other tests run.

They begin with the first test of the contract tier, come last of it, and so are hardly ever waited for.
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
from tests.contract.node_loss.playing import ENDS, WITHOUT_KUBECTL, Ends
from tools import tiers
from tools.kube.pytest_plugin import prepare

PATIENCE_SECONDS = 1800  # for as many plays as there may be
ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
IN_PROCESS, OVER_HTTP, REAL = "in-process", "over-http", "real"


@dataclass(frozen=True, slots=True)
class Playing:
    """A process that plays."""

    process: subprocess.Popen[bytes]
    folder: Path

    def ends(self) -> Ends:
        """Wait for its end, and return those of the stories."""
        code = self.process.wait(PATIENCE_SECONDS)
        assert code == 0, (self.folder / "said").read_text()
        ends: Ends = json.loads((self.folder / ENDS).read_text())
        return ends


def is_story(item: pytest.Item) -> bool:
    """Tell whether a test asks for the end of a story."""
    return item.path.parent == HERE


def wanted(items: Sequence[pytest.Item]) -> set[str]:
    """Return the clusters that these tests ask about and that can be played on here."""
    asked = {
        item.callspec.params.get("target")
        for item in items
        if is_story(item) and hasattr(item, "callspec")
    }
    return asked & {OVER_HTTP, *([REAL] if has_kubectl() else [])}


def has_kubectl() -> bool:
    """Tell whether tests of a real cluster are wanted at all and can run, so that kubectl is there."""
    return "cluster" in tiers.chosen(os.environ.get("TIERS", "")) and not tiers.missing_for(
        "cluster"
    )


@contextmanager
def playing(
    config: pytest.Config, targets: set[str], folders: pytest.TempPathFactory
) -> Iterator[dict[str, Playing]]:
    """Play on these clusters until the context ends."""
    if targets and has_kubectl():
        prepare(config, *(timings.REAL.servers if REAL in targets else ()), "kubectl")
    with ExitStack() as stack:
        yield {
            each: stack.enter_context(_begun(each, folders.mktemp(f"node-loss-{each}")))
            for each in sorted(targets)
        }


@contextmanager
def _begun(target: str, folder: Path) -> Iterator[Playing]:
    words = [] if has_kubectl() else [WITHOUT_KUBECTL]
    command = [
        sys.executable,
        "-m",
        "tests.contract.node_loss.playing",
        target,
        str(folder),
        *words,
    ]
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said)
    try:
        yield Playing(process, folder)
    finally:
        if process.poll() is None:
            # As by Ctrl-C: it takes its servers down.
            process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_SECONDS)
