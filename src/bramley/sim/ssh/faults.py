"""What goes wrong between us and a simulated Mac behind SSH: faults as data, from tests or from a file that may change at any time.

The file is `.mac/faults.json` in the Mac's folder: a list of faults, each `{"do": …, "match": …, "skip": …, "times": …}`. A fault
that is misspelt is an error, and every command is refused until it is mended: a fault that nobody reads would let a test pass
for nothing.
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


class Do(StrEnum):
    """What goes wrong."""

    REFUSE = "refuse"  # a new connection is closed before a word is said
    CUT_BEFORE = "cut-before"  # the line breaks, and the command was not run
    CUT_AFTER = "cut-after"  # the command was run to its end, and the line breaks before the answer
    CUT_AT = "cut-at"  # the line breaks when `bytes` of its input have come
    CUT_ANSWER = "cut-answer"  # the line breaks when `bytes` of what it prints have gone
    HANG = "hang"  # the command does nothing and never ends
    SLOW = "slow"  # the line carries `bytes` a second, either way
    DISK_FULL = "disk-full"  # no file can become larger than `bytes`
    REFUSE_SUDO = "refuse-sudo"  # sudo knows the user no more
    OTHER_HOST_KEY = "other-host-key"  # the Mac shows another key than before


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: at commands whose text matches, when `skip` of these have gone well, as often as `times` says."""

    do: Do
    match: str = "*"
    skip: int = 0
    # None: until it is taken away.
    times: int | None = None
    bytes: int = 0

    @classmethod
    def read(cls, content: Any) -> Fault:
        """Read one fault of the file; ValueError if it cannot be meant."""
        if not isinstance(content, dict):
            raise ValueError(f"a fault is an object, not {content!r}")  # noqa: TRY004 - of a file
        known = {each.name for each in fields(cls)}
        if unknown := sorted(set(content) - known):
            raise ValueError(
                f"unknown {', '.join(unknown)}; a fault has {', '.join(sorted(known))}"
            )
        if content.get("do") not in {each.value for each in Do}:
            raise ValueError(f"do is {content.get('do')!r}; there are {', '.join(Do)}")
        for name, kind in (("match", str), ("skip", int), ("bytes", int)):
            if not isinstance(content.get(name, kind()), kind):
                raise ValueError(f"{name} is {content[name]!r}")  # noqa: TRY004 - of a file
        return cls(**{**content, "do": Do(content["do"])})


@dataclass(slots=True)
class _Live:
    """A fault, and how often it was met."""

    fault: Fault
    met: int = 0

    def meets(self, text: str) -> bool:
        """Count one command, and tell whether the fault strikes."""
        if not fnmatch.fnmatchcase(text, self.fault.match):
            return False
        self.met += 1
        done = self.met - self.fault.skip
        return done > 0 and (self.fault.times is None or done <= self.fault.times)


@dataclass(slots=True)
class Faults:
    """The faults of one Mac; those of the file and those put here count alike."""

    path: Path
    changed: Callable[[], None] = lambda: None
    _put: list[_Live] = field(default_factory=list)
    _read: list[_Live] = field(default_factory=list)
    _version: tuple[int, int, int] | None = None
    _wrong: str = ""

    def put(self, *faults: Fault) -> None:
        """Let exactly these happen from now on, besides those of the file."""
        self._put = [_Live(fault) for fault in faults]
        self.changed()

    def clear(self) -> None:
        """Let nothing go wrong any more but what the file says."""
        self.put()

    @property
    def wrong(self) -> str:
        """Return what is wrong with the file; empty if nothing is."""
        self._look()
        return self._wrong

    def strike(self, do: Do, text: str = "") -> Fault | None:
        """Return the fault of this kind that the command meets, and count it."""
        self._look()
        struck = [live.fault for live in self._all(do) if live.meets(text)]
        return struck[0] if struck else None

    def has(self, do: Do) -> bool:
        """Return whether there is such a fault, without counting."""
        self._look()
        return bool(self._all(do))

    def _all(self, do: Do) -> list[_Live]:
        return [live for live in (*self._put, *self._read) if live.fault.do is do]

    def _look(self) -> None:
        try:
            seen = self.path.stat()
        except FileNotFoundError:
            self._version, self._read, self._wrong = None, [], ""
            return
        # By the size as well: what is written twice within a tick of the clock has the same time.
        version = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
        if self._version != version:
            self._version = version
            self._load()

    def _load(self) -> None:
        try:
            content = json.loads(self.path.read_text())
            if not isinstance(content, list):
                raise ValueError("it is a list of faults")  # noqa: TRY004, TRY301 - told with the other mistakes below
            self._read, self._wrong = [_Live(Fault.read(one)) for one in content], ""
        except ValueError as error:
            self._read, self._wrong = [], f"{self.path}: {error}"
