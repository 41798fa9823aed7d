"""Profiles Bramley's server under load with cProfile, and lists the most expensive functions.

Run as a program, it wraps `bramley`: the first argument is the file for the profile, the others are those of `bramley`. cProfile
overestimates small Python functions: trust the order and the counts, not the sums.
"""

from __future__ import annotations

import cProfile
import pstats
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

Row = tuple[str, float, float, float]
SHOWN = 30


def top(file: Path, *, requests: int, shown: int = SHOWN) -> Iterator[Row]:
    """Return the most expensive functions: name, calls, own and total microseconds, each per request."""
    # pstats keeps (file, line, name) -> (primitive calls, calls, own seconds, total seconds, callers).
    stats = pstats.Stats(str(file)).stats  # type: ignore[attr-defined]
    costliest = sorted(stats.items(), key=lambda item: -item[1][2])[:shown]
    for (path, line, name), (_, calls, own, total, _) in costliest:
        place = f"{short(path)}:{line}({name})" if line else name
        yield place, calls / requests, own * 1e6 / requests, total * 1e6 / requests


def short(path: str) -> str:
    """Return the last parts of a path, with package and module."""
    return "/".join(Path(path).parts[-3:])


def lines(rows: Iterator[Row]) -> Iterator[str]:
    """Return the rows as a table."""
    yield f"{'calls':>8} {'own µs':>8} {'total µs':>9}  function   (per request, under the profiler)"
    for place, calls, own, total in rows:
        yield f"{calls:8.2f} {own:8.1f} {total:9.1f}  {place}"


def main() -> None:
    """Run Bramley's command line under the profiler until SIGTERM."""
    from bramley.cli.main import main as bramley

    file, sys.argv = Path(sys.argv[1]), ["bramley", *sys.argv[2:]]
    # uvicorn raises the signal again after it has stopped; its default action would end the process without a profile.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    profile = cProfile.Profile()
    try:
        profile.runcall(bramley)
    finally:
        profile.dump_stats(file)


if __name__ == "__main__":
    main()
