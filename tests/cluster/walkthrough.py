"""Runs the console blocks of a document and compares what they print.

In a block called `console`, a line that begins with `$ ` is a command and the lines below it are its output. In a block called
`console background` the command keeps running, as in a second terminal, until the walk ends; where it is shown again, it is the
same one with what it has printed by then. `…` stands for anything: within a line for any text, alone on a line for any lines.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```console( background)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a document and what it should print."""

    command: str
    expected: str
    background: bool


def steps(text: str) -> Iterator[Step]:
    """Yield the commands of a document in order."""
    for background, body in _BLOCK.findall(text):
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            lines = part.split("\n")
            # A command continues after a backslash at the end of a line, and to the end of a here-document.
            end = 1
            while lines[end - 1].endswith("\\"):
                end += 1
            if "<<" in lines[0]:
                end = lines.index(lines[0].partition("<<")[2].strip().strip("'"), 1) + 1
            yield Step("\n".join(lines[:end]), "\n".join(lines[end:]).strip("\n"), bool(background))


def matches(expected: str, printed: str) -> bool:
    """Return whether the output matches what the document shows."""
    parts = []
    for line in expected.splitlines():
        if line.strip() == "…":
            parts.append(r"(?:.*\n)*?")
        else:
            # Columns are as wide as their longest cell, which may be one that the document leaves open.
            words = [re.escape(word).replace("…", ".*?") for word in line.split()]
            parts.append(r"\s*" + r"[ \t]+".join(words) + r"[ \t]*\n")
    return re.fullmatch("".join(parts) + r"\s*", printed.rstrip() + "\n") is not None


@dataclass(frozen=True, slots=True)
class Walk:
    """A shell in one folder, in which the steps of a document run; exported variables stay exported."""

    folder: Path
    environment: Mapping[str, str]
    scratch: Path
    deadline: float = 300

    def run_step(self, step: Step, background: contextlib.ExitStack) -> None:
        """Run one step and fail if it prints something else than the document says."""
        if step.background and self._output(step).exists():
            printed = self._awaited(step)
        elif step.background:
            printed = background.enter_context(self._started(step))
        else:
            printed = self._ran(step.command)
        shown = f"$ {step.command}\n{printed}\n--- the document says ---\n{step.expected}"
        assert matches(step.expected, printed), shown

    def _output(self, step: Step) -> Path:
        return self.scratch / f"background-{hashlib.sha256(step.command.encode()).hexdigest()}.txt"

    def _ran(self, command: str) -> str:
        state = self.scratch / "exported"
        script = f". {state} 2>/dev/null || true\n{command}\nexport -p > {state}"
        with subprocess.Popen(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                printed, _ = process.communicate(timeout=self.deadline)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        assert process.returncode == 0, f"$ {command}\n{printed}"
        return printed

    @contextlib.contextmanager
    def _started(self, step: Step) -> Iterator[str]:
        with (
            self._output(step).open("w") as file,
            subprocess.Popen(
                ["bash", "-c", step.command],
                cwd=self.folder,
                env=self.environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
        ):
            try:
                yield self._awaited(step, process)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                process.wait(self.deadline)

    def _awaited(self, step: Step, process: subprocess.Popen[bytes] | None = None) -> str:
        """Return the output once it is what the document shows, or as it is at the deadline or the end."""
        ends = time.monotonic() + self.deadline
        while True:
            is_over = time.monotonic() > ends or (
                process is not None and process.poll() is not None
            )
            # Read once: the text that is compared is the text that is reported.
            printed = self._output(step).read_text()
            if is_over or matches(step.expected, printed):
                return printed
            time.sleep(0.1)


def run(document: Path, walk: Walk) -> int:
    """Run every step of a document and return how many there were."""
    taken = 0
    with contextlib.ExitStack() as background:
        for step in steps(document.read_text()):
            walk.run_step(step, background)
            taken += 1
    return taken
