"""Keeps partial downloads between two attempts to pull an image, and over a restart of the agent.

Every tart command but pull and clone first removes all folders in `$TART_HOME/tmp` whose `flock` it can acquire, so the agent holds
that lock of each partial download: during a pause, while space is reclaimed, and from its start on. The next pull needs the lock
itself. It acquires the lock of its registry just before, so the agent releases the download when it sees that one held. A download
that no attempt uses is released after a while, when disk space is short, and when another program pulls it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from bramley.agent.host import Host
from bramley.agent.tart import references
from bramley.agent.tart.references import Reference
from bramley.base import log
from bramley.base.clock import Clock

logger = log.get(__name__)

# A Pod that still needs the image tries again within minutes.
MAX_IDLE = timedelta(hours=1)
_PERIOD = timedelta(seconds=5)
# While a download is locked by a pull that another agent started.
_SHORT_PERIOD = timedelta(seconds=1)
_START_POLL = timedelta(milliseconds=50)
# How long a download stays released to a pull that may wait for it; one that does acquires it at once.
_HAND_OVER = timedelta(milliseconds=50)
# Rarely while another program may hold the lock of the registry: what is released may be removed.
_QUEUED_PERIOD = timedelta(seconds=10)
_START_TRIES = 40
# The names of downloads; the staging folders of other commands are named by UUIDs.
_DOWNLOAD = re.compile(r"[0-9a-f]{32}")


@dataclass(slots=True)
class _Download:
    """One partial download; `release` is None while the agent does not hold its lock."""

    idle_since: float
    release: Callable[[], None] | None = None
    # Attempts of this agent that use it.
    users: int = 0
    handed_over_at: float = float("-inf")


@dataclass(slots=True, eq=False)
class PartialDownloads:
    """The partial downloads of one TART_HOME."""

    home: Path
    host: Host
    clock: Clock
    _downloads: dict[Path, _Download] = field(default_factory=dict)

    async def hold_existing(self) -> None:
        """Hold what earlier agents have left, before any command of tart; the process of a pull that was killed may still be ending."""
        folders = [each for each in self._staging() if _DOWNLOAD.fullmatch(each.name)]
        for _ in range(_START_TRIES):
            pulled = self._pulled_folders()
            for folder in folders:
                self._hold(folder)
            ending = [each for each in folders if not self._is_held(each) and each not in pulled]
            if not any(each.exists() for each in ending):
                return
            await asyncio.sleep(_START_POLL.total_seconds())

    def _staging(self) -> list[Path]:
        try:
            return list((self.home / "tmp").iterdir())
        except OSError:
            return []

    def _is_held(self, folder: Path) -> bool:
        download = self._downloads.get(folder)
        return download is not None and download.release is not None

    @contextlib.contextmanager
    def in_use(self, reference: Reference) -> Iterator[None]:
        """Keep the partial download of an image during all attempts to pull it."""
        download = self._download(self._folder(reference))
        download.users += 1
        try:
            yield
        finally:
            download.users -= 1
            download.idle_since = self.clock.monotonic()

    def hold(self, reference: Reference) -> None:
        """Hold what an attempt has left; called as soon as its process has ended."""
        self._hold(self._folder(reference))

    def hand_over(self, reference: Reference, *, is_queued: bool = False) -> None:
        """Release a download to the pull that waits for it; called from time to time while the pull runs.

        `is_queued` is whether another program held the lock of the registry when the pull started.
        """
        folder = self._folder(reference)
        download, now = self._download(folder), self.clock.monotonic()
        if is_queued and now - download.handed_over_at < _QUEUED_PERIOD.total_seconds():
            return
        if download.release is None:
            # It was released before. If the pull does not hold it now, it was not released to the pull.
            self._hold(folder)
        elif self._is_locked(references.registry_folder(self.home, reference)):
            download.handed_over_at = now
            self._release(folder)
            # The pull may not wait for it yet.
            loop = asyncio.get_running_loop()
            loop.call_later(_HAND_OVER.total_seconds(), self._hold_again, folder)

    def drop(self, reference: Reference) -> None:
        """Release the download of an image that is not needed any more; the next command of tart removes it."""
        folder = self._folder(reference)
        self._release(folder)
        if not self._download(folder).users:
            self._downloads.pop(folder, None)

    def drop_idle(self) -> None:
        """Release what no attempt of this agent uses."""
        for folder in [each for each, download in self._downloads.items() if not download.users]:
            self._release(folder)
            del self._downloads[folder]

    async def run(self) -> None:
        """Release downloads that are too old or that another program pulls, until cancelled; then release all."""
        try:
            while True:
                await asyncio.sleep(self._period().total_seconds())
                self._check_idle()
        finally:
            for folder in list(self._downloads):
                self._release(folder)

    def _period(self) -> timedelta:
        is_waiting = any(
            not each.users and each.release is None for each in self._downloads.values()
        )
        return _SHORT_PERIOD if is_waiting else _PERIOD

    def _check_idle(self) -> None:
        idle = [each for each, download in self._downloads.items() if not download.users]
        pulled = self._pulled_folders() if idle else frozenset()
        for folder in idle:
            download = self._downloads[folder]
            age = self.clock.monotonic() - download.idle_since
            if not folder.exists() or age >= MAX_IDLE.total_seconds():
                self._release(folder)
                del self._downloads[folder]
            elif folder in pulled:
                self._release(folder)
            elif download.release is None:
                # A pull of an earlier agent has ended meanwhile.
                self._hold(folder)

    def _pulled_folders(self) -> frozenset[Path]:
        """Return the downloads of all images that are named by a running program."""
        try:
            arguments = {word for each in self.host.processes() for word in each.argv}
        except OSError:
            return frozenset()
        parsed = (references.parse(word) for word in arguments if "/" in word)
        return frozenset(self._folder(each) for each in parsed if each is not None)

    def _hold(self, folder: Path) -> None:
        download = self._download(folder)
        if download.release is None:
            download.release = self.host.lock_folder(folder)
            if download.release is not None:
                logger.info("Keeping partial download", folder=folder.name)

    def _hold_again(self, folder: Path) -> None:
        if folder in self._downloads and self._downloads[folder].users:
            self._hold(folder)

    def _release(self, folder: Path) -> None:
        download = self._downloads.get(folder)
        if download is not None and download.release is not None:
            download.release()
            download.release = None

    def _is_locked(self, folder: Path) -> bool:
        release = self.host.lock_folder(folder)
        if release is not None:
            release()
        return release is None and folder.exists()

    def _download(self, folder: Path) -> _Download:
        return self._downloads.setdefault(folder, _Download(self.clock.monotonic()))

    def _folder(self, reference: Reference) -> Path:
        return references.pull_folder(self.home, reference)
