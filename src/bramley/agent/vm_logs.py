"""What tart printed for each VM: one private file each, cut when it grows too long and removed when it is old.

The files hold what tart said, passwords of its screen sharing included; whoever reads them through here gets none.
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
_OLDER = ".log.1"
_PASSWORD = re.compile(r"(vnc://)[^@/\s]*@")
REDACTED = r"\1:REDACTED@"
_READ = 64 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept: of one VM before its log is cut, of all VMs together, and for how long after the last word."""

    one_bytes: int = 8 * 1024 * 1024
    all_bytes: int = 256 * 1024 * 1024
    age: timedelta = timedelta(days=7)
    every: timedelta = timedelta(minutes=1)


class VmLogs:
    """Keeps the logs of VMs in one folder."""

    def __init__(self, folder: Path, *, clock: Clock, limits: Limits | None = None) -> None:
        self._folder = folder
        self._clock = clock
        self._limits = limits or Limits()

    def path(self, vm: str) -> Path:
        """Return where the log of a VM is, whether or not it is there."""
        return self._folder / f"{vm}{_SUFFIX}"

    def open(self, vm: str) -> int:
        """Return a descriptor to append to a VM's log; the file is ours alone, also if an older agent made it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self.path(vm), flags, 0o600)
        os.fchmod(handle, 0o600)
        return handle

    def tail(self, vm: str, lines: int = 20) -> str:
        """Return the last lines, without passwords; empty if there are none."""
        try:
            with self.path(vm).open("rb") as file:
                skipped = file.seek(max(0, os.fstat(file.fileno()).st_size - _READ))
                text = file.read(_READ).decode(errors="replace")
        except FileNotFoundError:
            return ""
        whole = text.splitlines()
        # Half a line may be half an address, whose password nobody would know as one.
        return redacted("\n".join(whole[1 if skipped and len(whole) > 1 else 0 :][-lines:]))

    async def run(self) -> None:
        """Keep the folder within its limits for ever."""
        while True:
            self.tend()
            await asyncio.sleep(self._limits.every.total_seconds())

    def tend(self) -> None:
        """Cut what is too long, and remove what is too old or too much, the oldest first."""
        with contextlib.suppress(FileNotFoundError):
            for path in self._folder.glob(f"*{_SUFFIX}"):
                self._cut(path)
            self._remove_surplus()

    def _cut(self, path: Path) -> None:
        """Move the later half aside and empty the file: tart appends, so it goes on at the new end."""
        try:
            size = path.stat().st_size
            if size <= self._limits.one_bytes:
                return
            with path.open("rb") as file:
                file.seek(size - self._limits.one_bytes // 2)
                _write_private(
                    path.with_name(path.name.removesuffix(_SUFFIX) + _OLDER), file.read()
                )
            os.truncate(path, 0)
        except OSError as error:
            logger.warning("The log of a VM was not cut", path=str(path), error=str(error))

    def _remove_surplus(self) -> None:
        found = [(path.stat(), path) for path in self._folder.iterdir() if _is_log(path)]
        found.sort(key=lambda each: each[0].st_mtime, reverse=True)
        oldest = self._clock.now().timestamp() - self._limits.age.total_seconds()
        total = 0
        for stat, path in found:
            total += stat.st_size
            if stat.st_mtime < oldest or total > self._limits.all_bytes:
                path.unlink(missing_ok=True)


def redacted(text: str) -> str:
    """Return the text without the passwords of screen sharing."""
    return _PASSWORD.sub(REDACTED, text)


def _is_log(path: Path) -> bool:
    return path.name.endswith((_SUFFIX, _OLDER)) and path.is_file() and not path.is_symlink()


def _write_private(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)
