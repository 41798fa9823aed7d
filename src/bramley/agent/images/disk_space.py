"""Free disk space, checked before a clone and before and during a pull, so that neither runs into a full disk.

A clone shares the blocks of its source, so it needs little at first and may grow to the virtual size of its disk: that space is
reclaimed while its VM runs already. What a pull needs is known only when tart prints the compressed size, which is a lower bound;
before that, the size of the last image of the same repository is the best estimate. Only what is certain is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bramley.agent.host import Host, Space
from bramley.agent.tart.failures import NotEnoughSpace
from bramley.base import log

logger = log.get(__name__)

GB = 10**9
# Without this much a guest does not even boot.
MIN_FREE = 2 * GB
# tart has the same bound for the space that it makes available for a clone.
MAX_GROWTH = 100 * GB
# Not more than this share of the volume either: on a small disk every clone would otherwise delete all images that no VM uses, and the
# next Pod would pull its image again.
MAX_GROWTH_SHARE = 0.25


class Reclaim(Protocol):
    """Frees disk space and returns whether anything was deleted."""

    async def __call__(self, needed: int | None = None) -> bool:
        """Delete what is not needed: until `needed` bytes are free, or all of it."""
        ...


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The volume of TART_HOME; `reclaim` is None where the agent deletes nothing. `reclaim_later` does not wait."""

    host: Host
    home: Path
    reclaim: Reclaim | None = None
    reclaim_later: Callable[[int], None] = lambda _: None

    async def ensure(self, operation: str, *, expected: int) -> None:
        """Reclaim until `expected` bytes are free beyond the minimum; NotEnoughSpace if not even the minimum is free then."""
        needed = MIN_FREE + expected
        free = self._free()
        if free is not None and free < needed and self.reclaim is not None:
            logger.info("Reclaiming disk space", operation=operation, needed=needed, free=free)
            await self.reclaim(needed)
            free = self._free()
        if free is not None and free < MIN_FREE:
            raise self._error(operation, needed=MIN_FREE, free=free)

    def reclaim_for_growth(self, vm: str) -> None:
        """Begin to reclaim what a clone of this VM may allocate, without waiting: deletions take minutes, and a VM grows slowly."""
        space = self._space()
        if space is None:
            return
        needed = MIN_FREE + min(self.growth(vm), int(space.total * MAX_GROWTH_SHARE))
        if space.free < needed:
            self.reclaim_later(needed)

    def growth(self, vm: str) -> int:
        """Return how many bytes a clone of this VM may allocate at most."""
        folder = self.home / "vms" / vm
        try:
            virtual = (folder / "disk.img").stat().st_size
        except OSError:
            return 0
        return min(max(virtual - self.allocated(folder), 0), MAX_GROWTH)

    def allocated(self, folder: Path) -> int:
        """Return the allocated size of the files of a folder; 0 if they cannot be read."""
        try:
            return self.host.allocated(folder)
        except OSError:
            return 0

    def shortage(self, operation: str, needed: int) -> NotEnoughSpace | None:
        """Return the error if fewer bytes are free than are certainly needed."""
        free = self._free()
        if free is None or free >= needed:
            return None
        return self._error(operation, needed=needed, free=free)

    def _error(self, operation: str, *, needed: int, free: int) -> NotEnoughSpace:
        return NotEnoughSpace(
            operation, needed=needed, free=free, is_reclaimed=self.reclaim is not None
        )

    def _free(self) -> int | None:
        space = self._space()
        return None if space is None else space.free

    def _space(self) -> Space | None:
        try:
            return self.host.space(self.home)
        except OSError as error:
            logger.warning("Free disk space is unknown", error=str(error))
            return None
