"""Limits on concurrent requests, per user and in total, and on the duration of each.

Three limits that do not affect each other: common requests, watches, and the requests that must get through a flood, which
are heartbeats and deletions. Counters and one timer for all requests: a request within the limits costs a few microseconds.
Probes are not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from bramley.apiserver.apimachinery.settings import Settings
from bramley.apiserver.apimachinery.status import ApiError
from bramley.apiserver.apimachinery.users import User
from bramley.base import log
from bramley.base.deadlines import DeadlineWatcher, TrackedTask

logger = log.get(__name__)

RETRY_AFTER_SECONDS = 1
_LOG_EVERY_SECONDS = 10.0
_NEVER = float("inf")
_LEASES = "leases.coordination.k8s.io"
_READS = frozenset({"GET", "HEAD"})


class InFlightLimit:
    """The bound of requests that are counted together."""

    __slots__ = (
        "_logged_at",
        "_per_user",
        "_refused",
        "_total",
        "by_user",
        "in_flight",
        "is_timed",
        "name",
    )

    def __init__(self, name: str, *, total: int, per_user: int, is_timed: bool = True) -> None:
        self.name = name
        self.is_timed = is_timed
        self.in_flight = 0
        self.by_user: dict[str, int] = {}
        self._total = total
        self._per_user = per_user
        self._refused = 0
        self._logged_at = -_NEVER

    def acquire(self, user: User, now: Callable[[], float]) -> None:
        """Count one more request; raise a 429 at the limit. For administrators only the limit per user holds."""
        count = self.by_user.get(user.name, 0)
        if count >= self._per_user or (self.in_flight >= self._total and not user.is_master):
            self._log_refusal(user, now())
            raise too_many()
        self.by_user[user.name] = count + 1
        self.in_flight += 1

    def release(self, user: User) -> None:
        """Count one request less."""
        self.in_flight -= 1
        remaining = self.by_user[user.name] - 1
        if remaining:
            self.by_user[user.name] = remaining
        else:
            del self.by_user[user.name]

    def _log_refusal(self, user: User, now: float) -> None:
        self._refused += 1
        if now - self._logged_at >= _LOG_EVERY_SECONDS:
            logger.warning(
                "Refusing requests over the limit",
                limit=self.name,
                user=user.name,
                refused=self._refused,
            )
            self._logged_at, self._refused = now, 0


class RequestSlot:
    """One request under its limit and its deadline; on exit it swallows only the cancellation that the deadline caused."""

    __slots__ = ("_limit", "_limits", "_tracked", "_user", "has_responded", "is_late")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._limit: InFlightLimit | None = None
        self._user: User | None = None
        self._tracked: TrackedTask | None = None
        self.has_responded = False
        self.is_late = False

    def __enter__(self) -> Self:
        return self

    def acquire(self, user: User, limit: InFlightLimit) -> None:
        """Count the request and start its deadline, or raise a 429."""
        limit.acquire(user, self._limits.time)
        self._limit, self._user = limit, user
        task = asyncio.current_task()
        if limit.is_timed and task is not None:
            self._tracked = tracked = TrackedTask(task)
            self._limits.deadlines.start(tracked)
            self._limits.deadlines.add(tracked)

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if self._limit is not None and self._user is not None:
            self._limit.release(self._user)
        tracked = self._tracked
        if tracked is None:
            return False
        self._limits.deadlines.remove(tracked)
        # Before `finish`, which clears it.
        self.is_late = tracked.is_late
        return tracked.finish() and kind is asyncio.CancelledError


class Limits:
    """The limits of one API, and the deadlines of its requests."""

    def __init__(self, settings: Settings) -> None:
        self.common = InFlightLimit(
            "requests", total=settings.requests_in_flight, per_user=settings.requests_per_user
        )
        self.urgent = InFlightLimit(
            "heartbeats and deletions",
            total=settings.requests_in_flight,
            per_user=settings.requests_per_user,
        )
        self.watches = InFlightLimit(
            "watches", total=settings.watches, per_user=settings.watches_per_user, is_timed=False
        )
        self.deadlines = DeadlineWatcher(settings.request_deadline.total_seconds())

    def slot(self) -> RequestSlot:
        """Return a slot for one request, which counts from `acquire` on."""
        return RequestSlot(self)

    def time(self) -> float:
        """Return the event loop's time."""
        return asyncio.get_running_loop().time()

    def limit_for(self, method: str, resource: str) -> InFlightLimit:
        """Return the limit of a request about single objects."""
        if method == "DELETE" or (resource == _LEASES and method not in _READS):
            return self.urgent
        return self.common


def too_many() -> ApiError:
    """Return the 429; nothing was done, so the client may send the same again."""
    message = "Too many requests, please try again later."
    return ApiError(429, "TooManyRequests", message, retry_after=RETRY_AFTER_SECONDS)


def timed_out(method: str) -> ApiError:
    """Return the 504 for a request past its deadline."""
    message = (
        "Timeout: request did not complete within requested timeout - context deadline exceeded"
    )
    if method not in _READS:
        message += "; whether it was carried out is unknown"
    return ApiError(504, "Timeout", message)
