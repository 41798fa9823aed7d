"""Removes folders of VMs that tart does not recognize, off the event loop.

Unlinking the disk of a VM may take minutes. So a folder is renamed into a private folder of TART_HOME, which is atomic: from then on
its VM is gone for tart and for the agent. Its files are removed later by a program, which is killed when the agent stops. What is
left then, or after a crash, is removed by the next agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from bramley.agent import programs
from bramley.agent.programs import ProgramResult, Programs
from bramley.agent.tart import references
from bramley.api.names import agent
from bramley.base import errors, log

logger = log.get(__name__)

_RM = "/bin/rm"
_RETRY = timedelta(minutes=10)


class Removals:
    """Removes folders below one TART_HOME."""

    def __init__(self, programs: Programs, home: Path, *, limit: timedelta) -> None:
        self._programs = programs
        self._folder = home / agent.REMOVED_FOLDER
        self._limit = limit
        self._in_place: set[Path] = set()
        self._is_needed = asyncio.Event()
        # One removal at a time, so that no folder is removed twice.
        self._lock = asyncio.Lock()

    def remove(self, folder: Path) -> None:
        """Rename a folder so that `run` or `finish` removes its files; succeeds if it does not exist."""
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if self._folder.is_symlink():
                # What it refers to may be anything, and is not removed.
                raise NotADirectoryError(f"{self._folder} is a link")
            folder.rename(self._folder / f"{folder.name}.{secrets.token_hex(4)}")
        except FileNotFoundError:
            return
        except OSError as error:
            # A full disk may refuse a new folder. Then the files are removed where they are.
            logger.warning("Folder not renamed", path=str(folder), error=str(error))
            self._in_place.add(folder)
        self._is_needed.set()

    async def run(self) -> None:
        """Remove the files of renamed folders, also of an earlier agent, until cancelled."""
        while True:
            self._is_needed.clear()
            await self.finish()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY.total_seconds()):
                    await self._is_needed.wait()

    async def finish(self) -> None:
        """Remove the files of all renamed folders now; what cannot be removed is tried again later."""
        async with self._lock:
            for path in sorted(self._in_place):
                # A VM of the same name may have been made meanwhile.
                if references.is_bundle(path) or await self._unlink(path):
                    self._in_place.discard(path)
            for path in self._renamed():
                await self._unlink(path)

    async def _unlink(self, path: Path) -> bool:
        argv = (_RM, "-rf", str(path))
        try:
            result = await programs.run_with_timeout(self._limit, self._programs, argv)
        except errors.BramleyError as error:
            result = ProgramResult(1, stderr=str(error))
        if result.code != 0:
            error_text = result.stderr.strip()
            logger.warning("Folder not removed yet", path=str(path), error=error_text)
        return result.code == 0

    def _renamed(self) -> Sequence[Path]:
        try:
            return sorted(self._folder.iterdir()) if not self._folder.is_symlink() else ()
        except OSError:
            return ()
