"""Steps as data: the answers of a Mac, and the commands that a step plans for them.

A file of cases contains under `converged` the answers of a converged Mac, for which the plan must be empty. Each case contains the
answers that differ (`overrides`) and the result: `commands`, or the beginning of the refusal (`refused`).

Probes are written as `scutil --get HostName`, `read /etc/pf.conf` and `stat /etc/kcpassword`, with `sudo` before those of root.
Answers: a text is the output of a program, a number its exit code, a list both; `null` means that nothing exists; a stat reads
`file 0440 root:wheel`, followed by `sha256:…`, `size:…` or `-> target`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from bramley.base.errors import Refused
from bramley.base.secret import Secret, SecretBytes
from bramley.host.commands import (
    Command,
    Folder,
    Link,
    Probe,
    ReadFile,
    Reboot,
    Remove,
    Rename,
    Run,
    RunProbe,
    Seal,
    Stat,
    Stream,
    Wait,
    Write,
)
from bramley.host.facts import Facts, FileStat, ProbeResult, RunResult
from bramley.host.step import Step

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Case:
    """One situation."""

    name: str
    converged: Mapping[str, Any]
    overrides: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    refused: str = ""

    def __str__(self) -> str:
        return self.name

    def check(self, step: Step) -> None:
        """Compare the step's refusal or plan with the case; a refusal precedes any plan."""
        facts = self.facts(step)
        if self.refused:
            with pytest.raises(Refused) as caught:
                step.check_supported(facts)
            assert str(caught.value).startswith(self.refused)
            return
        step.check_supported(facts)
        assert tuple(command_text(command) for command in step.plan(facts)) == self.commands

    def facts(self, step: Step) -> Facts:
        """Return the answers of this case to the step's probes; an answer without a probe is a mistake in the case."""
        answers = {**self.converged, **self.overrides}
        probes = {probe_text(probe): probe for probe in step.probes()}
        unused = answers.keys() - probes.keys()
        assert not unused, f"{step.name} does not probe {sorted(unused)}, but {sorted(probes)}"
        return Facts({probe: _answer(probe, answers[text]) for text, probe in probes.items()})


def load(name: str) -> list[Case]:
    """Return all cases of a file in this folder, the converged Mac first."""
    document = yaml.safe_load((HERE / f"{name}.yaml").read_text())
    converged = document["converged"]
    differing = [
        Case(
            name=case["name"],
            converged=converged,
            overrides=case.get("overrides", {}),
            commands=tuple(case.get("commands", ())),
            refused=case.get("refused", ""),
        )
        for case in document["cases"]
    ]
    return [Case(name="converged", converged=converged), *differing]


def probe_text(probe: Probe) -> str:
    """Return a probe in the notation of cases."""
    if isinstance(probe, Stat):
        return f"stat {probe.path}"
    sudo = "sudo " if probe.as_root else ""
    if isinstance(probe, ReadFile):
        return f"{sudo}read {probe.path}"
    return sudo + " ".join(probe.argv)


def command_text(command: Command) -> str:  # noqa: C901, PLR0911 - one line per kind of command
    """Return a command in the notation of cases; secrets are revealed, since cases specify what is sent."""
    match command:
        case Run():
            return _run(command)
        case Write():
            return _write(command)
        case Stream():
            return (
                f"stream {command.artifact.name} {command.path} {command.mode:04o} {command.owner}"
            )
        case Folder():
            return f"folder {command.path} {command.mode:04o} {command.owner}"
        case Link():
            return f"link {command.path} -> {command.target}"
        case Rename():
            return f"rename {command.path} {command.to}"
        case Remove():
            return f"remove {command.path}"
        case Seal():
            return f"seal {command.path}"
        case Wait():
            otherwise = " or continue" if command.ignore_failure else ""
            text = f" for {command.text!r}" if command.text else ""
            code = f" until {command.code}" if command.code else ""
            return f"wait {probe_text(command.probe)}{text}{code}{otherwise}"
        case Reboot():
            return "reboot"


def _write(command: Write) -> str:
    check = f" check[{' '.join(command.check)}]" if command.check else ""
    password = f" password[{_text(command.sudo_password)}]" if command.sudo_password else ""
    if isinstance(command.content, SecretBytes):
        content = f" (hex) {command.content.reveal_bytes().hex()}"
    else:
        content = f": {_text(command.content)}"
    return f"write {command.path} {command.mode:04o} {command.owner}{check}{password}{content}"


def _run(command: Run) -> str:
    sudo = "sudo " if command.as_root else ""
    password = f" password[{_text(command.sudo_password)}]" if command.sudo_password else ""
    prompt = f" at[{command.prompt}]" if command.prompt else ""
    stdin = f" stdin[{_text(command.stdin)}]" if command.stdin else ""
    variable = f" in[{command.stdin_variable}]" if command.stdin_variable else ""
    return sudo + " ".join(command.argv) + password + prompt + stdin + variable


def _text(value: bytes | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value.decode("utf-8", "replace")


def _answer(probe: Probe, value: Any) -> ProbeResult:
    match probe:
        case RunProbe():
            return _run_result(value)
        case ReadFile():
            return value if value is None or isinstance(value, bytes) else str(value).encode()
        case Stat():
            return None if value is None else _file_stat(str(value))


def _run_result(value: Any) -> RunResult:
    if isinstance(value, int):
        return RunResult(value)
    code, output = value if isinstance(value, list) else (0, value)
    return RunResult(code, output if isinstance(output, bytes) else str(output).encode())


def _file_stat(text: str) -> FileStat:
    text, _, target = text.partition(" -> ")
    kind, mode, owner, *rest = text.split()
    more = dict(item.split(":", 1) for item in rest)
    return FileStat(
        kind,
        mode=int(mode, 8),
        owner=owner,
        size=int(more.get("size", "0")),
        target=target,
        digest=more.get("sha256", ""),
    )
