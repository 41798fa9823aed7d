"""A copy of the tree in which mutants are applied: tests run there against the copy's own sources.

The checkout is never changed. Each copy first checks that its own `bramley` is the one that gets imported.
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

KILLED = "killed"
SURVIVED = "SURVIVED"
SKIPPED = "SKIPPED"
INVALID = "INVALID"
HUNG = "HUNG"
UNFINISHED = "unfinished"

# Folders of a checkout that are not copied.
_EXCLUDED = (".git", ".venv", ".bramley", ".hypothesis", "__pycache__", "*_cache", "dist", "build")
_PYTEST_FAILED = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a test run, and one line of detail."""

    outcome: str
    detail: str


@dataclass(frozen=True, slots=True)
class Done:
    """The exit code and the output of a program."""

    code: int
    stdout: str


@dataclass(frozen=True, slots=True)
class Scratch:
    """One copy of the tree."""

    root: Path
    _ticks: Iterator[int] = field(default_factory=lambda: itertools.count(1_000_000_000, 10))

    @classmethod
    def copy(cls, tree: Path, root: Path) -> Scratch:
        """Copy a tree without its caches and its history to a new folder."""
        shutil.copytree(tree, root, ignore=shutil.ignore_patterns(*_EXCLUDED))
        scratch = cls(root)
        scratch._require_own_sources()
        return scratch

    @contextlib.contextmanager
    def changed(self, file: str, change: Callable[[str], str]) -> Iterator[None]:
        """Keep one file of the copy changed while the block runs."""
        path = self.root / file
        before = path.read_text()
        self._write(path, change(before))
        try:
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        # Python reuses a compiled module of the same size and mtime in seconds, so each version gets its own second.
        tick = next(self._ticks)
        os.utime(path, (tick, tick))

    def test(self, tests: Sequence[str], *, timeout: float) -> Verdict:
        """Run these tests against the copy and return the verdict."""
        junit_file = self.root / "outcome.xml"
        junit_file.unlink(missing_ok=True)
        pytest = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")
        command = [sys.executable, *pytest, f"--junitxml={junit_file}", *tests]
        try:
            done = self._call(command, timeout=timeout)
        except subprocess.TimeoutExpired:
            return Verdict(HUNG, f"no result within {timeout:.0f} s")
        if done.code not in {0, _PYTEST_FAILED} or not junit_file.exists():
            return Verdict(INVALID, _summary(done))
        return _verdict(junit_file, _summary(done))

    def _require_own_sources(self) -> None:
        # If the checkout's sources were imported instead, every mutant would survive.
        code = "import bramley, tools; print(bramley.__file__); print(tools.__file__)"
        imported = self._call([sys.executable, "-c", code]).stdout.splitlines()
        if not imported or not all(Path(path).is_relative_to(self.root) for path in imported):
            raise RuntimeError(f"the copy in {self.root} is not what gets imported: {imported}")

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
                # The test may have started servers; they are in its process group and must end with it.
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return Done(process.returncode, output)

    def _environment(self) -> dict[str, str]:
        own = {
            # Comes before the checkout, which the editable installation puts on the path as well.
            "PYTHONPATH": f"{self.root / 'src'}{os.pathsep}{self.root}",
            "HYPOTHESIS_PROFILE": "mutants",
            # Plugins only change order and reports, but take most of the time of a small test.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TIERS": "",
            # The copy keeps compiled modules between runs even if the caller disabled that.
            "PYTHONDONTWRITEBYTECODE": "",
            # With CI=true a test that cannot run fails, which would count as a killed mutant.
            "CI": "",
        }
        return {**os.environ, **own}


def _verdict(junit_file: Path, detail: str) -> Verdict:
    suite = next(ET.parse(junit_file).iter("testsuite"))  # noqa: S314 - written by our own pytest run
    failures, errors, skipped = (
        int(suite.get(kind, 0)) for kind in ("failures", "errors", "skipped")
    )
    if failures:
        return Verdict(KILLED, detail)
    if errors:
        return Verdict(INVALID, f"the test failed before it ran: {detail}")
    return Verdict(SKIPPED, detail) if skipped else Verdict(SURVIVED, detail)


def _summary(done: Done) -> str:
    lines = done.stdout.strip().splitlines()
    reported = [line for line in lines if line.startswith(("FAILED ", "ERROR ", "SKIPPED "))]
    return "; ".join(reported) or "".join(lines[-1:]) or f"exit code {done.code}"
