"""A disk whose commits are timed: what they took, how many failed, and how large the files are."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bramley.api.names import metrics as names
from bramley.apiserver.store.errors import StorageUnavailable
from bramley.apiserver.store.journal import Disk
from bramley.apiserver.store.records import Change
from bramley.base.tallies import Count, Spread


class MeasuredDisk:
    """Passes commits on and counts them; one thread commits, any other may read the numbers."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self.commits = Spread(names.STORE_COMMIT_DURATION.buckets)
        self.failures = Count()

    def commit(self, group: Sequence[Change]) -> None:
        """Commit, and count how it went."""
        began = time.perf_counter()
        try:
            self._disk.commit(group)
        except StorageUnavailable:
            self.failures.inc()
            raise
        self.commits.observe(time.perf_counter() - began)

    def close(self) -> None:
        """Let go of the files."""
        self._disk.close()

    def sizes_bytes(self) -> Iterator[tuple[str, int]]:
        """Yield how large the database and its log are; a file that is not there has no size."""
        for name, path in (
            ("database", self._path),
            ("log", self._path.with_name(f"{self._path.name}-wal")),
        ):
            if path.exists():
                yield name, path.stat().st_size
