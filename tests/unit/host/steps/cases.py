"""Steps as data: what a Mac answers, and the commands that a step wants then.

A file of cases says under `right` what a Mac answers that is as wanted, which must give an empty plan. Each case says which
answers are others (`but`), and what comes of it: `commands`, or the beginning of the reason to refuse (`refused`).

Probes are written as `scutil --get HostName`, `read /etc/pf.conf` and `find /etc/kcpassword`, with `sudo` before what root asks.
Answers: a text is what a program printed, a number its exit code, a list both; `null` is nothing there; what is found reads
`file 0440 root:wheel`, with `sha256:…`, `size:…` or `-> target` behind it.
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
    Find,
    Folder,
    Link,
    Look,
    LookAt,
    Probe,
    Reboot,
    Remove,
    Rename,
    Run,
    Seal,
    Stream,
    Wait,
    Write,
)
from bramley.host.facts import Answer, Facts, Found, Said
from bramley.host.step import Step

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Case:
    """One situation."""

    name: str
    right: Mapping[str, Any]
    but: Mapping[str, Any] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    refused: str = ""

    def __str__(self) -> str:
        return self.name

    def check(self, step: Step) -> None:
        """Compare what the step makes of this situation with what the case says; a refusal comes before any plan."""
        seen = self.facts(step)
        if self.refused:
            with pytest.raises(Refused) as caught:
                step.refuse(seen)
            assert str(caught.value).startswith(self.refused)
            return
        step.refuse(seen)
        assert tuple(shown(command) for command in step.plan(seen)) == self.commands

    def facts(self, step: Step) -> Facts:
        """Return what the Mac of this case answers to what the step asks; anything else in the case is a mistake of it."""
        told = {**self.right, **self.but}
        asked = {written(probe): probe for probe in step.looks()}
        left_over = told.keys() - asked.keys()
        assert not left_over, f"{step.name} does not ask {sorted(left_over)}, but {sorted(asked)}"
        return Facts({probe: _answer(probe, told[text]) for text, probe in asked.items()})


def load(name: str) -> list[Case]:
    """Return all cases of a file beside this one, the right Mac first."""
    told = yaml.safe_load((HERE / f"{name}.yaml").read_text())
    right = told["right"]
    others = [
        Case(
            name=case["name"],
            right=right,
            but=case.get("but", {}),
            commands=tuple(case.get("commands", ())),
            refused=case.get("refused", ""),
        )
        for case in told["cases"]
    ]
    return [Case(name="as wanted", right=right), *others]


def planned(step: Step, case: Case) -> tuple[str, ...]:
    """Return the step's commands in this situation, as the case writes them."""
    return tuple(shown(command) for command in step.plan(case.facts(step)))


def written(probe: Probe) -> str:
    """Return how a case writes a question."""
    if isinstance(probe, Find):
        return f"find {probe.path}"
    sudo = "sudo " if probe.as_root else ""
    if isinstance(probe, LookAt):
        return f"{sudo}read {probe.path}"
    return sudo + " ".join(probe.argv)


def shown(command: Command) -> str:  # noqa: C901, PLR0911 - one line per kind of command
    """Return how a case writes a command; secrets are revealed, since what is sent is the point."""
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
            going_on = " or go on" if command.else_go_on else ""
            text = f" for {command.text!r}" if command.text else ""
            code = f" until {command.code}" if command.code else ""
            return f"wait {written(command.look)}{text}{code}{going_on}"
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
    return sudo + " ".join(command.argv) + password + prompt + stdin


def _text(value: bytes | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value.decode("utf-8", "replace")


def _answer(probe: Probe, told: Any) -> Answer:
    match probe:
        case Look():
            return _said(told)
        case LookAt():
            return told if told is None or isinstance(told, bytes) else str(told).encode()
        case Find():
            return None if told is None else _found(str(told))


def _said(told: Any) -> Said:
    if isinstance(told, int):
        return Said(told)
    code, output = told if isinstance(told, list) else (0, told)
    return Said(code, output if isinstance(output, bytes) else str(output).encode())


def _found(told: str) -> Found:
    told, _, target = told.partition(" -> ")
    kind, mode, owner, *rest = told.split()
    more = dict(one.split(":", 1) for one in rest)
    return Found(
        kind,
        mode=int(mode, 8),
        owner=owner,
        size=int(more.get("size", "0")),
        target=target,
        digest=more.get("sha256", ""),
    )
