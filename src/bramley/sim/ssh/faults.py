"""Faults of a simulated Mac behind SSH, from tests or from a file that may change at any time.

The file is `.mac/faults.json` in the Mac's folder: a list of faults, each `{"do": …, "match": …, "skip": …, "times": …}`. While the
file is invalid, every command is refused: a misspelt fault that is ignored would let a test pass for no reason.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

FILE = "faults.json"


class FaultKind(StrEnum):
    """The kinds of faults."""

    REFUSE = "refuse"  # a new connection is closed at once
    CUT_BEFORE = "cut-before"  # the connection is cut, and the command does not run; in a batch, as it begins
    CUT_AFTER = (
        "cut-after"  # the command runs to its end, and the connection is cut before the answer
    )
    CUT_AT = "cut-at"  # the connection is cut after `bytes` of input
    CUT_ANSWER = "cut-answer"  # the connection is cut after `bytes` of output
    HANG = "hang"  # the command does nothing and never ends
    SLOW = "slow"  # the connection carries `bytes` per second, in each direction
    DISK_FULL = "disk-full"  # no file can become larger than `bytes`
    REFUSE_SUDO = "refuse-sudo"  # sudo refuses the user
    OTHER_HOST_KEY = "other-host-key"  # the Mac presents another host key


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: applies to commands whose text matches, except the first `skip`, at most `times` times."""

    do: FaultKind
    match: str = "*"
    skip: int = 0
    # None: until it is removed.
    times: int | None = None
    bytes: int = 0

    @classmethod
    def read(cls, content: Any) -> Fault:
        """Return one fault of the file; ValueError if it is invalid."""
        if not isinstance(content, dict):
            raise ValueError(f"a fault is an object, not {content!r}")  # noqa: TRY004 - of a file
        known = {each.name for each in fields(cls)}
        if unknown := sorted(set(content) - known):
            raise ValueError(
                f"unknown {', '.join(unknown)}; a fault has {', '.join(sorted(known))}"
            )
        if content.get("do") not in {each.value for each in FaultKind}:
            raise ValueError(
                f"do is {content.get('do')!r}; it must be one of {', '.join(FaultKind)}"
            )
        for name, kind in (("match", str), ("skip", int), ("bytes", int)):
            if not isinstance(content.get(name, kind()), kind):
                raise ValueError(f"{name} is {content[name]!r}")  # noqa: TRY004 - of a file
        return cls(**{**content, "do": FaultKind(content["do"])})


@dataclass(slots=True)
class _CountedFault:
    """A fault, and the number of commands that it matched."""

    fault: Fault
    matched: int = 0

    def applies(self, text: str) -> bool:
        """Count a command and return whether the fault applies to it."""
        if not fnmatch.fnmatchcase(text, self.fault.match):
            return False
        self.matched += 1
        done = self.matched - self.fault.skip
        return done > 0 and (self.fault.times is None or done <= self.fault.times)


@dataclass(slots=True)
class Faults:
    """The faults of one Mac: those of the file, and those set by tests."""

    path: Path
    changed: Callable[[], None] = lambda: None
    _from_tests: list[_CountedFault] = field(default_factory=list)
    _from_file: list[_CountedFault] = field(default_factory=list)
    _version: tuple[int, int, int] | None = None
    _file_error: str = ""

    def set(self, *faults: Fault) -> None:
        """Replace the faults set by tests; those of the file stay."""
        self._from_tests = [_CountedFault(fault) for fault in faults]
        self.changed()

    @property
    def file_error(self) -> str:
        """Return what is wrong with the file; empty if it is valid."""
        self._reload()
        return self._file_error

    def take(self, kind: FaultKind, text: str = "") -> Fault | None:
        """Return the fault of this kind that applies to the command, and count the command."""
        found = [counted.fault for counted in self._of_kind(kind) if counted.applies(text)]
        return found[0] if found else None

    def has(self, kind: FaultKind) -> bool:
        """Return whether there is a fault of this kind, without counting."""
        return bool(self._of_kind(kind))

    def _of_kind(self, kind: FaultKind) -> list[_CountedFault]:
        self._reload()
        return [each for each in (*self._from_tests, *self._from_file) if each.fault.do is kind]

    def _reload(self) -> None:
        try:
            seen = self.path.stat()
        except FileNotFoundError:
            self._version, self._from_file, self._file_error = None, [], ""
            return
        # The size too: two writes within a tick of the clock have the same time.
        version = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
        if self._version != version:
            self._version = version
            self._load()

    def _load(self) -> None:
        try:
            content = json.loads(self.path.read_text())
            if not isinstance(content, list):
                raise ValueError("must be a list of faults")  # noqa: TRY004, TRY301 - reported with other errors below
            self._from_file = [_CountedFault(Fault.read(each)) for each in content]
            self._file_error = ""
        except ValueError as error:
            self._from_file, self._file_error = [], f"{self.path}: {error}"
