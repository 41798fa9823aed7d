"""A scratch copy of the tree in which code may be broken: tests run there against the copy's own sources.

The checkout is never touched. Every run first proves that the copy's `bramley` is the one that gets imported.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DEAD = "died"
SURVIVED = "SURVIVED"
SKIPPED = "SKIPPED"
INVALID = "INVALID"
HUNG = "HUNG"
UNFINISHED = "unfinished"

# What a checkout holds besides its own files.
_FOREIGN = (".git", ".venv", ".bramley", ".hypothesis", "__pycache__", "*_cache", "dist", "build")
_PYTEST_FAILED = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run of tests says about the code: one word, and one line of detail."""

    word: str
    told: str


@dataclass(frozen=True, slots=True)
class Done:
    """How a program ended and what it printed."""

    code: int
    stdout: str


@dataclass(frozen=True, slots=True)
class Scratch:
    """One copy of the tree."""

    root: Path
    _ticks: Iterator[int] = field(default_factory=lambda: itertools.count(1_000_000_000, 10))

    @classmethod
    def of(cls, tree: Path, root: Path) -> Scratch:
        """Copy a tree without its caches and its history to a new folder."""
        shutil.copytree(tree, root, ignore=shutil.ignore_patterns(*_FOREIGN))
        scratch = cls(root)
        scratch._require_own_sources()
        return scratch

    @contextlib.contextmanager
    def changed(self, file: str, change: Callable[[str], str]) -> Iterator[None]:
        """Hold one file of the copy changed while the block runs."""
        path = self.root / file
        before = path.read_text()
        self._write(path, change(before))
        try:
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        # Python trusts a cached module of the same size and second, so each version gets a second of its own.
        tick = next(self._ticks)
        os.utime(path, (tick, tick))

    def test(self, tests: Sequence[str], *, timeout: float) -> Verdict:
        """Run these tests against the copy and judge the outcome."""
        outcome = self.root / "outcome.xml"
        outcome.unlink(missing_ok=True)
        pytest = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")
        command = [sys.executable, *pytest, f"--junitxml={outcome}", *tests]
        try:
            done = self._call(command, timeout=timeout)
        except subprocess.TimeoutExpired:
            return Verdict(HUNG, f"no verdict within {timeout:.0f} s")
        if done.code not in {0, _PYTEST_FAILED} or not outcome.exists():
            return Verdict(INVALID, _told(done))
        return _judged(outcome, _told(done))

    def _require_own_sources(self) -> None:
        # Were the checkout's sources imported instead, every mutant would survive, or die of something else.
        code = "import bramley, tools; print(bramley.__file__); print(tools.__file__)"
        told = self._call([sys.executable, "-c", code]).stdout.splitlines()
        if not told or not all(Path(path).is_relative_to(self.root) for path in told):
            raise RuntimeError(f"the copy in {self.root} is not what gets imported: {told}")

    def _call(self, command: Sequence[str], *, timeout: float = 60) -> Done:
        with subprocess.Popen(
            command,
            cwd=self.root,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                # The test may have started servers: they share its session and end with it.
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return Done(process.returncode, output)

    def _environment(self) -> dict[str, str]:
        own = {
            # Stands before the checkout, which the editable installation puts on the path as well.
            "PYTHONPATH": f"{self.root / 'src'}{os.pathsep}{self.root}",
            "HYPOTHESIS_PROFILE": "mutants",
            # Plugins only change order and reports here, but take most of the time of a small test.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TIERS": "",
            # The copy keeps compiled modules between runs, whatever the caller's habit.
            "PYTHONDONTWRITEBYTECODE": "",
            # With CI=true a test that cannot run fails, which would pass for a mutant's death.
            "CI": "",
        }
        return {**os.environ, **own}


def _judged(outcome: Path, told: str) -> Verdict:
    suite = next(ET.parse(outcome).iter("testsuite"))  # noqa: S314 - pytest wrote it a moment ago
    failures, errors, skipped = (
        int(suite.get(kind, 0)) for kind in ("failures", "errors", "skipped")
    )
    if failures:
        return Verdict(DEAD, told)
    if errors:
        return Verdict(INVALID, f"the test broke before it ran: {told}")
    return Verdict(SKIPPED, told) if skipped else Verdict(SURVIVED, told)


def _told(done: Done) -> str:
    lines = done.stdout.strip().splitlines()
    named = [line for line in lines if line.startswith(("FAILED ", "ERROR ", "SKIPPED "))]
    return "; ".join(named) or "".join(lines[-1:]) or f"exit code {done.code}"
