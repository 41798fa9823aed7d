"""Reads the output of strace: which bytes went to which file of one folder, when they were synced, and what was printed.

Calls of several threads interleave. A write takes effect when it is called, a sync when it has returned, so that an
acknowledgement before the return of its sync is detected.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CALLS = (
    "openat,close,write,pwrite64,pwritev,writev,ftruncate,fallocate,fsync,fdatasync,sync_file_range,"
    "rename,renameat,renameat2,unlink,unlinkat,link,linkat"
)


@dataclass(frozen=True, slots=True)
class Created:
    """A file of this name was created, or truncated to zero."""

    name: str


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes were written to a file."""

    name: str
    offset: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Truncated:
    """A file was truncated or extended to this length."""

    name: str
    length: int


@dataclass(frozen=True, slots=True)
class Synced:
    """All that was written to a file is on the disk."""

    name: str


@dataclass(frozen=True, slots=True)
class NamesSynced:
    """All names in the folder are on the disk."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """A file has another name now."""

    name: str
    new: str


@dataclass(frozen=True, slots=True)
class Removed:
    """A name is gone."""

    name: str


@dataclass(frozen=True, slots=True)
class Printed:
    """The program wrote a line to its standard output."""

    line: str


Step = Created | Written | Truncated | Synced | NamesSynced | Renamed | Removed | Printed

LINE = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)(?: resumed>|\()(.*)$")
RESULT = re.compile(r"\)\s+= (-?\d+)")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


def record(argv: Sequence[str], output: Path) -> None:
    """Run a program to its end under strace."""
    subprocess.run(
        ["strace", "-f", "-xx", "-s", "16777216", "-e", f"trace={CALLS}", "-o", output, *argv],
        check=True,
        timeout=600,
        stdout=subprocess.DEVNULL,
    )


def steps(trace: Path, folder: Path) -> Iterator[Step]:
    """Return the operations in the folder and the printed lines, in order."""
    yield from _Reader(str(folder)).read(trace)


class _Reader:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._open: dict[int, str] = {}
        self._begun: dict[str, str] = {}

    def read(self, trace: Path) -> Iterator[Step]:
        with trace.open() as lines:
            for line in lines:
                match = LINE.match(line)
                if match:
                    yield from self._line(match, resumed="<... " in line[:40])

    def _line(self, match: re.Match[str], *, resumed: bool) -> Iterator[Step]:
        thread, call, rest = match.groups()
        if resumed:
            arguments = self._begun.pop(thread) + rest
        else:
            arguments = rest
            yield from self._called(call, arguments)
        if rest.endswith("<unfinished ...>"):
            self._begun[thread] = arguments.removesuffix(" <unfinished ...>")
            return
        result = RESULT.search(arguments)
        if result and int(result[1]) >= 0:
            yield from self._returned(call, arguments, int(result[1]))

    def _called(self, call: str, arguments: str) -> Iterator[Step]:
        """Yield what takes effect at the call: writes, printed lines and closes."""
        descriptor = _number(arguments)
        if call == "close":
            # Before it returns: another thread may have been given the number by then.
            self._open.pop(descriptor, None)
        elif call == "write" and descriptor == 1:
            yield from (Printed(line) for line in _bytes(arguments).decode().splitlines())
        elif call == "pwrite64" and descriptor in self._open:
            offset = _number(arguments.rpartition(", ")[2])
            yield Written(self._open[descriptor], offset, _bytes(arguments))
        elif descriptor in self._open and call in {"write", "pwritev", "writev", "fallocate"}:
            raise ValueError(f"{call} on {self._open[descriptor]} is not supported")

    def _returned(self, call: str, arguments: str, result: int) -> Iterator[Step]:
        """Yield what takes effect at the return: names, lengths and syncs."""
        if call == "openat":
            yield from self._opened(arguments, result)
        elif call in {"rename", "unlink"}:
            names = [self._inside(path) for path in _texts(arguments)]
            if all(names):
                yield Renamed(*names) if call == "rename" else Removed(*names)
        elif call.startswith(("rename", "unlink", "link")):
            raise ValueError(f"{call} is not supported")
        elif _number(arguments) in self._open:
            yield from self._changed(call, arguments)

    def _opened(self, arguments: str, descriptor: int) -> Iterator[Step]:
        path = _texts(arguments)[0]
        if path == self._folder:
            self._open[descriptor] = ""
        elif name := self._inside(path):
            self._open[descriptor] = name
            if "O_CREAT" in arguments or "O_TRUNC" in arguments:
                yield Created(name)

    def _changed(self, call: str, arguments: str) -> Iterator[Step]:
        name = self._open[_number(arguments)]
        if call == "ftruncate":
            yield Truncated(name, _number(arguments.partition(", ")[2]))
        elif call in {"fsync", "fdatasync"}:
            yield Synced(name) if name else NamesSynced()

    def _inside(self, path: str) -> str:
        """Return the name of a file of the folder; an empty text for any other file."""
        head, _, name = path.rpartition("/")
        # The log's index is rebuilt when the database is opened, and nothing reads an old one.
        return name if head == self._folder and not name.endswith("-shm") else ""


def _number(arguments: str) -> int:
    digits = re.match(r"(\d+)", arguments)
    return int(digits[1]) if digits else -1


def _texts(arguments: str) -> list[str]:
    return [_decoded(text).decode() for text in TEXT.findall(arguments)]


def _bytes(arguments: str) -> bytes:
    match = TEXT.search(arguments)
    return _decoded(match[1]) if match else b""


def _decoded(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))
