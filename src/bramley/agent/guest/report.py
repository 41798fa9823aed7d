"""What a guest wrote to its shared folder: its exit code with its date, and its log.

The content is untrusted: only regular files are read, a bounded part of each, and a value out of range counts as not reported.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from bramley.agent import atomic_file
from bramley.agent.guest.folders import UserData
from bramley.agent.runs import RunExit
from bramley.api.names import guest
from bramley.base import log

MAX_LOG_BYTES = 1024 * 1024


def log_copy_path(logs: Path, vm: str) -> Path:
    """Return the path of the copy of a guest's log; it is rotated and removed like the other VM logs."""
    return logs / f"{vm}.guest.log"


def copy_log(folders: UserData, vm: str, logs: Path) -> None:
    """Copy the end of the guest's log, with its date, before its folders are removed. Errors are only logged."""
    file = folders.open_guest_file(vm, guest.LOG_FILE)
    if file is None:
        return
    with file:
        stat = os.fstat(file.fileno())
        start = max(0, stat.st_size - MAX_LOG_BYTES)
        content = os.pread(file.fileno(), MAX_LOG_BYTES, start)
    copy = log_copy_path(logs, vm)
    try:
        logs.mkdir(parents=True, exist_ok=True)
        atomic_file.replace(copy, content, durable=False)
        # A guest controls the dates of its files; a date in the future would keep the copy for ever.
        changed = min(max(stat.st_mtime_ns, 0), copy.stat().st_mtime_ns)
        os.utime(copy, ns=(changed, changed))
    except OSError as error:
        logger.warning("Guest log not copied", vm=vm, error=str(error))


logger = log.get(__name__)

MAX_TAIL_BYTES = 64 * 1024
MAX_LINES = 200
_MAX_CODE_LENGTH = 64
_MAX_EXIT_CODE = 255


@dataclass(frozen=True, slots=True)
class Report:
    """The exit code that the guest reported, and when; both None without a valid report."""

    code: int | None = None
    at: datetime | None = None


def read(folders: UserData, vm: str) -> Report:
    """Return the exit that the guest reported."""
    file = folders.open_guest_file(vm, guest.EXIT_CODE_FILE)
    if file is None:
        return Report()
    with file:
        code = _code(_read_up_to(file, _MAX_CODE_LENGTH + 1))
        return (
            Report() if code is None else Report(code, _datetime(os.fstat(file.fileno()).st_mtime))
        )


def finished_at(
    ended: RunExit | None, reported: Report, *, started: datetime | None, now: datetime
) -> datetime:
    """Return when a VM ended: by its supervisor, else by the guest if its date is plausible, else now."""
    if ended is not None and ended.at is not None:
        return ended.at
    at = reported.at
    if at is None or at > now or (started is not None and at < started):
        return now
    return at


def log_tail(folders: UserData, vm: str) -> str:
    """Return the last lines of the guest's log, without an incomplete first one; empty if there is no log."""
    file = folders.open_guest_file(vm, guest.LOG_FILE)
    if file is None:
        return ""
    with file:
        return _tail(file)


def log_output(folders: UserData, vm: str) -> None:
    """Copy the tail of the guest's log to the agent's log, as one record."""
    logger.info("runner log", vm=vm, text=log_tail(folders, vm))


def _tail(file: BinaryIO) -> str:
    size = os.fstat(file.fileno()).st_size
    # One byte more shows whether the tail begins with a complete line.
    start = max(size - MAX_TAIL_BYTES - 1, 0)
    file.seek(start)
    # Bounded: the file may have grown since the stat.
    content = _read_up_to(file, min(size, MAX_TAIL_BYTES + 1))
    if start > 0:
        content = _whole_lines(content)
    lines = content.split(b"\n")
    # After the last newline comes an empty piece, which is not a line.
    last_lines = lines[-MAX_LINES - (lines[-1] == b"") :]
    return b"\n".join(last_lines).decode(errors="replace")


def _whole_lines(content: bytes) -> bytes:
    before, line_end, rest = content.partition(b"\n")
    # A log of one endless line has no complete line; its end is better than nothing.
    return rest if line_end else before[1:]


def _read_up_to(file: BinaryIO, limit: int) -> bytes:
    """Return up to `limit` bytes; a read may be short, and the file may have become shorter."""
    content = b""
    while len(content) < limit and (block := file.read(limit - len(content))):
        content += block
    return content


def _code(content: bytes) -> int | None:
    text = content.strip()
    if len(content) > _MAX_CODE_LENGTH or not text.isdigit():
        return None
    code = int(text)
    return code if code <= _MAX_EXIT_CODE else None


def _datetime(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None
