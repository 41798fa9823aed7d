"""`tart-kubelet`: the agent on a Mac, which this release does not bring yet; it says so instead of pretending."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from bramley.api.names import agent

UNUSABLE = 2
TOLD = (
    "the agent is not part of this release of Bramley yet; run the agent that your fleet uses today, and see the changelog "
    "for the release that brings this one"
)


def run(arguments: Sequence[str]) -> int:
    """Answer --help and --version, and refuse everything else."""
    from importlib.metadata import version

    parser = argparse.ArgumentParser(
        prog=agent.NAME,
        description="Run Pods as macOS virtual machines on this Mac.",
        epilog=f"Not yet: {TOLD}.",
        formatter_class=partial(argparse.HelpFormatter, width=100),
    )
    parser.add_argument("--version", action="version", version=f"{agent.NAME} {version('bramley')}")
    parser.parse_known_args(list(arguments))
    print(f"{agent.NAME}: {TOLD}", file=sys.stderr)  # noqa: T201 - this is where people look
    return UNUSABLE


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))
