"""The images of a modelled fleet: how each behaves, and which of them are on the disk of a host.

A pull serves all owners that need its image, at the largest of their rates. Room is made by removing images that no VM of the
host uses and that are not to be staged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bramley.agent.images.staging import BelowFloor
from bramley.base import errors
from bramley.sim.fleet.uplink import Transfer, Uplink


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageModel:
    """How an image behaves: its size, how long its guest takes, and what goes wrong with it."""

    size_bytes: float = 40e9
    # From the start of the VM until the guest has an address, in the median, and the sigma of the lognormal distribution.
    boot_seconds: float = 9.0
    boot_noise: float = 0.0
    # From the address until the first poll.
    poll_delay_seconds: float = 23.0
    exists: bool = True
    # The Secret that has the credentials for it; empty if it is public.
    pull_secret: str = ""
    is_ready: bool = True
    polls: bool = True
    # The guest exits with code 1 this long after the VM was started.
    exits_after: float | None = None
    job_failure_rate: float = 0.0


class ImageNotFound(errors.Refused):
    """The registry has no such image."""


class Interrupted(errors.Unavailable):
    """The pull ended early."""


@dataclass(slots=True, eq=False)
class Pull:
    """One pull, and who waits for it with which limit of the rate."""

    image: str
    transfer: Transfer
    limits: dict[str, float]
    is_finished: bool = False
    error: errors.BramleyError | None = None


@dataclass(slots=True, eq=False)
class HostImages:
    """The images of one host, and its pulls."""

    models: Mapping[str, ImageModel]
    uplink: Uplink
    disk_bytes: float = math.inf
    bytes_per_second: float = math.inf
    on_change: Callable[[], None] = lambda: None
    # Ordered by arrival: the oldest are removed first.
    on_disk: dict[str, None] = field(default_factory=dict)
    # Images to be staged, which are kept.
    requested: tuple[str, ...] = ()
    _used: Counter[str] = field(default_factory=Counter)
    _pulls: dict[str, Pull] = field(default_factory=dict)
    _is_stalled: bool = False

    def use(self, image: str) -> None:
        """Keep an image on disk for a VM."""
        self._used[image] += 1

    def release(self, image: str) -> None:
        """End the use of an image by a VM."""
        self._used[image] -= 1

    def pull(self, image: str, owner: str, *, limit: float = math.inf) -> Pull:
        """Join or start the pull of an image; raise if the registry has no such image, or the disk has no room for it."""
        pull = self._pulls.get(image)
        if pull is None:
            pull = self._start(image, owner, limit)
        pull.limits[owner] = limit
        self._set_limit(pull)
        return pull

    def leave(self, image: str, owner: str) -> None:
        """Leave a pull; without owners it ends."""
        pull = self._pulls.get(image)
        if pull is None or pull.limits.pop(owner, None) is None:
            return
        if pull.limits:
            self._set_limit(pull)
        else:
            self._abort(pull, Interrupted(f"the pull of {image} was cancelled"))

    def percent(self, image: str) -> int | None:
        """Return the progress of a pull."""
        pull = self._pulls.get(image)
        return None if pull is None else self.uplink.percent(pull.transfer)

    def stall(self, *, is_stalled: bool = True) -> None:
        """Suspend all pulls of the host, or resume them."""
        self._is_stalled = is_stalled
        for pull in self._pulls.values():
            self.uplink.stall(pull.transfer, is_stalled=is_stalled)

    def fill_disk(self) -> None:
        """Leave no room for another image; pulls in progress fail."""
        self.disk_bytes = sum(self._size(image) for image in self.on_disk)
        for pull in list(self._pulls.values()):
            self._abort(pull, _no_room(pull.image))

    def abort_pulls(self) -> None:
        """End all pulls, as a crash does."""
        for pull in list(self._pulls.values()):
            self._abort(pull, Interrupted(f"the pull of {pull.image} was interrupted"))

    def _start(self, image: str, owner: str, limit: float) -> Pull:
        model = self.models.get(image)
        if model is None or not model.exists:
            raise ImageNotFound(f"the registry has no image {image}")
        self._make_room(image)
        rate = min(limit, self.bytes_per_second)
        transfer = self.uplink.start(model.size_bytes, lambda: self._finish(image), limit=rate)
        pull = self._pulls[image] = Pull(image, transfer, {owner: limit})
        if self._is_stalled:
            self.uplink.stall(transfer)
        return pull

    def _make_room(self, image: str) -> None:
        needed = self._size(image)
        taken = sum(self._size(each) for each in (*self.on_disk, *self._pulls))
        removable = [
            each for each in self.on_disk if not self._used[each] and each not in self.requested
        ]
        if taken - sum(map(self._size, removable)) + needed > self.disk_bytes:
            raise _no_room(image)
        while taken + needed > self.disk_bytes:
            oldest = removable.pop(0)
            taken -= self._size(oldest)
            del self.on_disk[oldest]
            self.on_change()

    def _finish(self, image: str) -> None:
        pull = self._pulls.pop(image)
        self.on_disk[image] = None
        pull.is_finished = True
        self.on_change()

    def _abort(self, pull: Pull, error: errors.BramleyError) -> None:
        del self._pulls[pull.image]
        self.uplink.cancel(pull.transfer)
        pull.error = error
        pull.is_finished = True
        self.on_change()

    def _set_limit(self, pull: Pull) -> None:
        limit = max(pull.limits.values())
        self.uplink.limit(pull.transfer, min(limit, self.bytes_per_second))

    def _size(self, image: str) -> float:
        model = self.models.get(image)
        return 0.0 if model is None else model.size_bytes


def _no_room(image: str) -> BelowFloor:
    return BelowFloor(f"the disk has no room for {image}")
