"""How much may be under way at once, for one user and for all, and for how long.

Three lanes that do not hinder each other: common requests, watches, and what must get through a flood, which are
heartbeats and deletions. Counters and one deadline watcher for all requests: a request that stays within the limits costs a
few microseconds. Probes are not counted at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.apimachinery.users import User
from bramley.base import log
from bramley.base.deadlines import DeadlineWatcher, TrackedTask

logger = log.get(__name__)

RETRY_AFTER_SECONDS = 1
_TOLD_EVERY_SECONDS = 10.0
_NEVER = float("inf")
_LEASES = "leases.coordination.k8s.io"
_READS = frozenset({"GET", "HEAD"})


class Lane:
    """Requests that are counted together."""

    __slots__ = ("_per_user", "_refused", "_told", "_total", "by_user", "is_timed", "name", "open")

    def __init__(self, name: str, *, total: int, per_user: int, is_timed: bool = True) -> None:
        self.name = name
        self.is_timed = is_timed
        self.open = 0
        self.by_user: dict[str, int] = {}
        self._total = total
        self._per_user = per_user
        self._refused = 0
        self._told = -_NEVER

    def enter(self, user: User, now: Callable[[], float]) -> None:
        """Count one more; raise a 429 if that is too many. Only their own number can keep administrators out."""
        mine = self.by_user.get(user.name, 0)
        if mine >= self._per_user or (self.open >= self._total and not user.is_master):
            self._tell(user, now())
            raise too_many()
        self.by_user[user.name] = mine + 1
        self.open += 1

    def leave(self, user: User) -> None:
        """Count one less."""
        self.open -= 1
        left = self.by_user[user.name] - 1
        if left:
            self.by_user[user.name] = left
        else:
            del self.by_user[user.name]

    def _tell(self, user: User, now: float) -> None:
        self._refused += 1
        if now - self._told >= _TOLD_EVERY_SECONDS:
            logger.warning(
                "Refusing requests", lane=self.name, user=user.name, refused=self._refused
            )
            self._told, self._refused = now, 0


class Seat:
    """One request's place; leaving it swallows a cancellation that was ours."""

    __slots__ = ("_lane", "_limits", "_user", "_work", "has_begun", "is_late")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lane: Lane | None = None
        self._user: User | None = None
        self._work: TrackedTask | None = None
        self.has_begun = False
        self.is_late = False

    def __enter__(self) -> Self:
        return self

    def take(self, user: User, lane: Lane) -> None:
        """Begin to count, or raise a 429."""
        lane.enter(user, self._limits.time)
        self._lane, self._user = lane, user
        task = asyncio.current_task()
        if lane.is_timed and task is not None:
            self._work = work = TrackedTask(task)
            self._limits.deadlines.start(work)
            self._limits.deadlines.add(work)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> bool:
        if self._lane is not None and self._user is not None:
            self._lane.leave(self._user)
        work = self._work
        if work is None:
            return False
        self._limits.deadlines.remove(work)
        self.is_late = work.is_late
        return work.finish() and kind is asyncio.CancelledError


class Limits:
    """The lanes of one API, and the timer over its requests."""

    def __init__(self, settings: Settings) -> None:
        self.common = Lane(
            "requests", total=settings.requests_in_flight, per_user=settings.requests_per_user
        )
        self.urgent = Lane(
            "heartbeats and deletions",
            total=settings.requests_in_flight,
            per_user=settings.requests_per_user,
        )
        self.watches = Lane(
            "watches", total=settings.watches, per_user=settings.watches_per_user, is_timed=False
        )
        self.deadlines = DeadlineWatcher(settings.request_deadline.total_seconds())

    def seat(self) -> Seat:
        """Return a place for one request, which counts once it is taken."""
        return Seat(self)

    def time(self) -> float:
        """Return the loop's time."""
        return asyncio.get_running_loop().time()

    def lane_of(self, method: str, resource: str) -> Lane:
        """Return where a request about single objects is counted."""
        if method == "DELETE" or (resource == _LEASES and method not in _READS):
            return self.urgent
        return self.common


def too_many() -> ApiError:
    """Refuse because too much is under way; nothing was done, so the same may be sent again."""
    message = "Too many requests, please try again later."
    return ApiError(429, "TooManyRequests", message, retry_after=RETRY_AFTER_SECONDS)


def timed_out(method: str) -> ApiError:
    """Tell that a request took too long."""
    message = (
        "Timeout: request did not complete within requested timeout - context deadline exceeded"
    )
    if method not in _READS:
        message += "; whether it was carried out is unknown"
    return ApiError(504, "Timeout", message)
