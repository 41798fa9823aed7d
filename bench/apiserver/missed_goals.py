"""Profiles for missed goals: where our server spends its time."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping

START = "import bramley.app.apiserver; from bramley.cli import main; main.command_line()"
SHOWN = 20

Profile = Callable[[str], Iterable[str]]


def works_of(missed: Iterable[str], works: Mapping[str, str]) -> list[str]:
    """Return the kinds of load behind the missed goals, each once."""
    return list(dict.fromkeys(works[title] for title in missed if title in works))


def explain(missed: Iterable[str], *, works: Mapping[str, str], profile: Profile) -> Iterator[str]:
    """Return the profiles of the missed goals."""
    missed = list(missed)
    for work in works_of(missed, works):
        yield from profile(work)
    if any(" start" in title for title in missed):
        yield "Modules that take longest to load at the start, with all that they load:"
        yield from slowest_imports(import_times())


def import_times() -> str:
    """Return Python's report of the import times of the server's modules."""
    command = [sys.executable, "-X", "importtime", "-c", START]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr


def slowest_imports(report: str) -> Iterator[str]:
    """Return the modules that take longest, in milliseconds."""
    imports = re.findall(r"^import time:\s+\d+ \|\s+(\d+) \|\s+(\S+)$", report, re.MULTILINE)
    slowest = sorted(((int(micros), name) for micros, name in imports), reverse=True)
    for micros, name in slowest[:SHOWN]:
        yield f"{micros / 1000:8.1f} ms  {name}"
