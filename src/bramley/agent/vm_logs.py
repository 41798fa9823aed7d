"""The output of tart for each VM: one private file per VM, rotated when it grows too large and removed when it is old.

The files contain tart's output unchanged, including passwords of its screen sharing; `tail` redacts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bramley.base import log
from bramley.base.clock import Clock

logger = log.get(__name__)

_SUFFIX = ".log"
_ROTATED = ".log.1"
_PASSWORD = re.compile(r"(vnc://)[^@/\s]*@")
REDACTED = r"\1:REDACTED@"
_READ = 64 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Retention: the size of one log before it is rotated, the size of all logs, and the age since the last write."""

    max_log_bytes: int = 8 * 1024 * 1024
    max_total_bytes: int = 256 * 1024 * 1024
    max_age: timedelta = timedelta(days=7)
    period: timedelta = timedelta(minutes=1)


class VmLogs:
    """The logs of VMs in one folder."""

    def __init__(self, folder: Path, *, clock: Clock, limits: Limits | None = None) -> None:
        self._folder = folder
        self._clock = clock
        self._limits = limits or Limits()

    def path(self, vm: str) -> Path:
        """Return the path of a VM's log, whether or not it exists."""
        return self._folder / f"{vm}{_SUFFIX}"

    def open(self, vm: str) -> int:
        """Return a descriptor to append to a VM's log; the file becomes private even if an older agent created it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self.path(vm), flags, 0o600)
        os.fchmod(handle, 0o600)
        return handle

    def tail(self, vm: str, lines: int = 20) -> str:
        """Return the last lines, without passwords; empty if there is no log."""
        try:
            with self.path(vm).open("rb") as file:
                skipped = file.seek(max(0, os.fstat(file.fileno()).st_size - _READ))
                text = file.read(_READ).decode(errors="replace")
        except FileNotFoundError:
            return ""
        all_lines = text.splitlines()
        # An incomplete first line may contain the end of an address, whose password the pattern would miss.
        return redact("\n".join(all_lines[1 if skipped and len(all_lines) > 1 else 0 :][-lines:]))

    async def run(self) -> None:
        """Enforce the limits until cancelled."""
        while True:
            self.enforce_limits()
            await asyncio.sleep(self._limits.period.total_seconds())

    def enforce_limits(self) -> None:
        """Rotate logs that are too large, and remove those that are too old or exceed the total, the oldest first."""
        with contextlib.suppress(FileNotFoundError):
            for path in self._folder.glob(f"*{_SUFFIX}"):
                self._rotate(path)
            self._remove_surplus()

    def _rotate(self, path: Path) -> None:
        """Copy the later half to the older file and truncate: tart appends, so it continues at the new end."""
        try:
            size = path.stat().st_size
            if size <= self._limits.max_log_bytes:
                return
            with path.open("rb") as file:
                file.seek(size - self._limits.max_log_bytes // 2)
                _write_private(
                    path.with_name(path.name.removesuffix(_SUFFIX) + _ROTATED), file.read()
                )
            # Truncated and not renamed, because tart keeps the file open; what it writes after the copy is lost.
            os.truncate(path, 0)
        except OSError as error:
            logger.warning("VM log not rotated", path=str(path), error=str(error))

    def _remove_surplus(self) -> None:
        logs = [(path.stat(), path) for path in self._folder.iterdir() if _is_log(path)]
        logs.sort(key=lambda each: each[0].st_mtime, reverse=True)
        oldest = self._clock.now().timestamp() - self._limits.max_age.total_seconds()
        total = 0
        for stat, path in logs:
            total += stat.st_size
            if stat.st_mtime < oldest or total > self._limits.max_total_bytes:
                path.unlink(missing_ok=True)


def redact(text: str) -> str:
    """Return the text without the passwords of screen sharing."""
    return _PASSWORD.sub(REDACTED, text)


def _is_log(path: Path) -> bool:
    return path.name.endswith((_SUFFIX, _ROTATED)) and path.is_file() and not path.is_symlink()


def _write_private(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)
