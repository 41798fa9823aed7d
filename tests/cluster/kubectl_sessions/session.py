"""kubectl sessions: command lines as data, run against a server; the output is compared without what differs between runs.

A step is one command line of kubectl, or a mapping: `run` the command line, `stdin` the name of one of the session's files,
`until` a text that the output must come to hold (the command is repeated until it does), and `compare` how the outputs of
two servers are compared: `whole` (the default), `first` (the first line only, where a real server continues with
Go structures), `subset` (each line of ours is a line of theirs, but for those that name what is `beyond` them) or `no`.

Each session has its own namespace. `beside` restricts which sessions run at the same time: one with a Node (`a node`, the
default), only sessions without Nodes (`no nodes`), or no other session (`none`).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent / "sessions"
TIMEOUT_SECONDS = 300.0

# What no two runs share: ids, times, versions, ages, addresses, generated suffixes.
_CHANGING = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"), "<time>"),
    (re.compile(r"(resourceVersion\"?: ?)\"?\d+\"?"), r"\1<version>"),
    (re.compile(r"Resource Version: +\d+"), "Resource Version: <version>"),
    (re.compile(r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"), "<token>"),
    (re.compile(r"https?://127\.0\.0\.1:\d+"), "<server>"),
    (re.compile(r"\bkube-api-access-[a-z0-9]{5}\b"), "kube-api-access-<made>"),
    (re.compile(r"\b([a-z]+)-[a-z0-9]{8,10}-[a-z0-9]{5}\b"), r"\1-<hash>-<made>"),
    (re.compile(r"\b(web|made|tree)-[bcdf0-9g-z]{8,10}\b"), r"\1-<hash>"),
    (re.compile(r"(pod-template-hash[=:] ?)[a-z0-9]+"), r"\1<hash>"),
    (re.compile(r"\b([a-z]+(?:-[a-z]+)*)\.[0-9a-f]{16}\b"), r"\1.<made>"),
    (
        re.compile(
            r"<invalid>|(?<![\w.-])(\d+d)?(\d+h)?(\d+m)?\d+s(?![\w.-])|(?<![\w.-])\d+m(?![\w.-])"
        ),
        "<age>",
    ),
    (re.compile(r"<age> \(x\d+ over <age>\)"), "<age>"),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One command line."""

    run: str
    stdin: str = ""
    until: str = ""
    compare: str = "whole"
    beyond: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """Steps in their order, and the files that they name."""

    name: str
    steps: tuple[Step, ...]
    beside: str = "a node"
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What one step printed, and how it ended."""

    step: Step
    code: int
    text: str

    @property
    def lines(self) -> list[str]:
        """Return the output without what changes from run to run; a line that repeats itself counts once."""
        found = plain(self.text).splitlines()
        return [line for line, before in zip(found, ["", *found], strict=False) if line != before]


def load() -> list[Session]:
    """Return every session."""
    return [_session(path) for path in sorted(HERE.glob("*.yaml"))]


def _session(path: Path) -> Session:
    document = yaml.safe_load(path.read_text())
    return Session(
        path.stem,
        tuple(_step(each) for each in document["steps"]),
        beside=document.get("beside", "a node"),
        files=document.get("files", {}),
    )


def _step(entry: Any) -> Step:
    return Step(entry) if isinstance(entry, str) else Step(**entry)


def plain(text: str) -> str:
    """Return a text without what changes from run to run."""
    for pattern, shown in _CHANGING:
        text = pattern.sub(shown, text)
    return "\n".join(line.strip() for line in text.splitlines())


def run(session: Session, *, kubectl: Path, kubeconfig: Path, folder: Path) -> list[StepOutput]:
    """Run a session against one server and return the output of each step."""
    for name, content in session.files.items():
        (folder / name).write_text(content)
    # A separate discovery cache: the servers answer differently and sessions change what is served.
    command = [str(kubectl), f"--kubeconfig={kubeconfig}", f"--cache-dir={folder / 'cache'}"]
    return [_repeat_until(step, command, folder) for step in session.steps]


def _repeat_until(step: Step, command: list[str], folder: Path) -> StepOutput:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        output = _once(step, command, folder)
        if not step.until or re.search(step.until, plain(output.text)):
            return output
        assert time.monotonic() < deadline, f"{step.run} never printed {step.until}: {output.text}"
        time.sleep(0.2)


def _once(step: Step, command: list[str], folder: Path) -> StepOutput:
    done = subprocess.run(
        [*command, *shlex.split(step.run)],
        input=(folder / step.stdin).read_text() if step.stdin else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        cwd=folder,
        # kubectl exits before garbage collection would pay off.
        env={**os.environ, "GOGC": "off"},
    )
    return StepOutput(step, done.returncode, done.stdout)


def difference(ours: StepOutput, theirs: StepOutput) -> list[str]:
    """Return how our server's output of a step differs from the real one's."""
    if ours.step.compare == "no":
        return []
    found = [] if ours.code == theirs.code else [f"exit {ours.code}, real {theirs.code}"]
    if ours.step.compare == "first":
        return found + ([] if ours.lines[:1] == theirs.lines[:1] else [ours.text, theirs.text])
    if ours.step.compare == "subset":
        shared = [line for line in ours.lines if not _is_beyond(ours.step, line)]
        return found + [f"+ {line}" for line in shared if line not in theirs.lines]
    if ours.lines == theirs.lines:
        return found
    return (
        found
        + [f"ours: {line}" for line in ours.lines]
        + [f"real: {line}" for line in theirs.lines]
    )


def _is_beyond(step: Step, line: str) -> bool:
    return bool(step.beyond) and step.beyond in line
