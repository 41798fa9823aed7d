"""What the process table says about VMs that others work with; tart's own lock does not protect a VM that is being pushed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from bramley.agent.host import HostProcess

_PUSH = "push"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Every word of every command line, and whether one of them is a push."""

    words: frozenset[str] = frozenset()
    has_push: bool = False


def read(processes: Iterable[HostProcess], *, tart: str) -> Evidence:
    """Look through the command lines; `tart` is what our own tart is called."""
    lines = [process.argv for process in processes]
    programs = {"tart", PurePath(tart).name}
    return Evidence(
        words=frozenset(word for line in lines for word in line),
        has_push=any(_is_push(line, programs) for line in lines),
    )


def _is_push(line: tuple[str, ...], programs: set[str]) -> bool:
    """Tell whether a command line runs `tart push`, also where a script or an interpreter stands before tart."""
    pairs = itertools.pairwise(line)
    return any(second == _PUSH and PurePath(first).name in programs for first, second in pairs)
