"""Run every check of `make check`, two at a time, and print the output of those that fail.

All of them run even when one fails, so that one run shows everything to fix.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent

# The slowest comes first, so that the others run beside it.
CHECKS: dict[str, tuple[str, ...]] = {
    "types": (str(BIN / "mypy"), "--no-error-summary"),
    "lint": (str(BIN / "ruff"), "check", "--output-format", "concise", "."),
    "format": (str(BIN / "ruff"), "format", "--check", "--output-format", "concise", "."),
    "lengths": (sys.executable, "-m", "tools.lengths"),
    "layers": (str(BIN / "lint-imports"), "--no-logo"),
    "maps": (sys.executable, "-m", "pytest", "-q", "--tb", "short", "tests/meta"),
}
ALWAYS_SHOWN = {"lengths"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The output of one check, whether it passed and how long it took."""

    name: str
    passed: bool
    output: str
    seconds: float


def main() -> int:
    """Run the checks and print their verdicts in the order above."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        verdicts = [pool.submit(run, name, command) for name, command in CHECKS.items()]
        failed = [show(verdict.result()) for verdict in verdicts].count(False)
    print(f"{failed} of {len(CHECKS)} checks failed" if failed else "All checks passed")
    return 1 if failed else 0


def run(name: str, command: Sequence[str]) -> Verdict:
    """Run one check to its end with its output kept."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    output = (done.stdout + done.stderr).strip()
    return Verdict(name, done.returncode == 0, output, time.monotonic() - began)


def show(verdict: Verdict) -> bool:
    """Print one verdict, with its output if it failed or carries figures, and return whether it passed."""
    word = "passed" if verdict.passed else "FAILED"
    print(f"{verdict.name:<8} {word} in {verdict.seconds:.1f} s", flush=True)
    if verdict.output and (not verdict.passed or verdict.name in ALWAYS_SHOWN):
        print("\n".join("    " + line for line in verdict.output.splitlines()), flush=True)
    return verdict.passed


if __name__ == "__main__":
    sys.exit(main())
