"""The output of tart for each VM: one private file per VM, rotated when it grows too large and removed when it is old.

The files contain tart's output unchanged, including passwords of its screen sharing; `tail` redacts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable
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
    """The logs of VMs in one folder; the log of a VM that `is_in_use` is never removed."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        limits: Limits | None = None,
        is_in_use: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._limits = limits or Limits()
        self._is_in_use = is_in_use

    def path(self, vm: str) -> Path:
        """Return the path of a VM's log, whether or not it exists."""
        return self._folder / f"{vm}{_SUFFIX}"

    def open(self, vm: str) -> int:
        """Return a descriptor to append to a VM's log; the file becomes private even if an older agent created it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self.path(vm), flags, 0o600)
        os.fchmod(handle, 0o600)
        if os.fstat(handle).st_size == 0:
            # What an earlier run has left there is older than an empty log; see `tail`.
            self._older_part(vm).unlink(missing_ok=True)
        return handle

    def tail(self, vm: str, lines: int = 20, *, start: int = 0) -> str:
        """Return the last lines of the run that began at this size of the log, without passwords; empty if there are none."""
        size, found = _last_lines(self.path(vm), lines, start)
        # A log that is shorter than at the start, or was empty then, may have been rotated after the last line.
        if len(found) < lines and (size < start or start == 0):
            found = [*_last_lines(self._older_part(vm), lines - len(found))[1], *found]
        return redact("\n".join(found))

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
            is_surplus = stat.st_mtime < oldest or total > self._limits.max_total_bytes
            if is_surplus and not self._is_needed(path):
                path.unlink(missing_ok=True)

    def _is_needed(self, path: Path) -> bool:
        """Return whether tart may still write to this log: it prints nothing for days, and then how its VM ended."""
        vm = path.name.removesuffix(_SUFFIX)
        return bool(vm) and not vm.startswith(".") and self._is_in_use(vm)

    def _older_part(self, vm: str) -> Path:
        return self._folder / f"{vm}{_ROTATED}"


def redact(text: str) -> str:
    """Return the text without the passwords of screen sharing."""
    return _PASSWORD.sub(REDACTED, text)


def _last_lines(path: Path, lines: int, start: int = 0) -> tuple[int, list[str]]:
    """Return the size of a log, and its last lines after `start`; a shorter log is a new one."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin = start if start <= size else 0
            skipped = file.seek(max(begin, size - _READ)) - begin
            text = file.read(_READ).decode(errors="replace")
    except FileNotFoundError:
        return 0, []
    except OSError as error:
        # Not raised: an exit must be reported although the output is lost.
        logger.warning("VM log not readable", path=str(path), error=str(error))
        return 0, []
    all_lines = text.splitlines()
    # An incomplete first line may contain the end of an address, whose password the pattern would miss.
    return size, all_lines[1 if skipped and len(all_lines) > 1 else 0 :][-lines:]


def _is_log(path: Path) -> bool:
    return path.name.endswith((_SUFFIX, _ROTATED)) and path.is_file() and not path.is_symlink()


def _write_private(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)
