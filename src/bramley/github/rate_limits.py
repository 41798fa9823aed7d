"""GitHub's rate limits: recognized by the headers of responses, shared by all calls of a process, and exported as metrics.

A budget belongs to a scope: the App itself, or one installation. The primary limit is a number of requests per hour, and the
secondary limits a request to wait. After either, no request of that scope is sent until the time that GitHub named, because
further requests make GitHub extend the wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from prometheus_client import CollectorRegistry

from bramley.base import errors, metrics
from bramley.base.clock import Clock
from bramley.kube.transport import Response

# GitHub asks for at least a minute where it does not name a time, and for longer waits while that is not enough.
DEFAULT_WAIT = timedelta(minutes=1)
MAX_DEFAULT_WAIT = timedelta(minutes=16)
MAX_WAIT = timedelta(hours=2)
_MIN_WAIT = timedelta(seconds=1)
_LIMITED_STATUSES = {403, 429}
_LIMIT_TEXTS = (b"secondary rate limit", b"abuse detection", b"rate limit exceeded")


@dataclass(frozen=True, slots=True)
class Budget:
    """The requests of a scope: how many per hour, how many are left, and when they are renewed."""

    limit: int
    remaining: int
    reset: datetime


class RateLimits:
    """The budgets of all scopes, and until when a scope has to wait."""

    def __init__(self, clock: Clock, registry: CollectorRegistry) -> None:
        self._clock = clock
        self._budgets: dict[str, Budget] = {}
        self._waits: dict[str, datetime] = {}
        # The wait for the next limit without a time, by scope.
        self._default_waits: dict[str, timedelta] = {}
        self._limit = metrics.gauge(
            registry, "bramley_github_rate_limit", "Requests per hour", "scope"
        )
        self._remaining = metrics.gauge(
            registry,
            "bramley_github_rate_limit_remaining",
            "Requests that are left until the reset",
            "scope",
        )
        self._reset = metrics.gauge(
            registry,
            "bramley_github_rate_limit_reset_timestamp_seconds",
            "Time of the reset",
            "scope",
        )
        self._limited = metrics.counter(
            registry,
            "bramley_github_rate_limited_total",
            "Responses that requested a wait",
            "scope",
        )

    def budget(self, scope: str) -> Budget | None:
        """Return the last known budget of a scope; None before its first response."""
        return self._budgets.get(scope)

    def is_low(self, scope: str, share: float) -> bool:
        """Return whether less than this share of a scope's requests is left until its reset."""
        budget = self._budgets.get(scope)
        if budget is None or budget.reset <= self._clock.now():
            return False
        return budget.remaining < share * budget.limit

    def wait_until(self, scope: str) -> datetime | None:
        """Return until when a scope has to wait; None if it does not."""
        until = self._waits.get(scope)
        return until if until is not None and until > self._clock.now() else None

    def check(self, scope: str, about: str) -> None:
        """Raise RateLimited while the scope has to wait."""
        if until := self.wait_until(scope):
            raise _limited(about, scope, until - self._clock.now())

    def record(self, scope: str, response: Response, about: str) -> None:
        """Store the budget that a response shows; RateLimited if it requests a wait."""
        server_now = server_time(response.headers) or self._clock.now()
        budget = _budget(response.headers)
        if budget is not None:
            self._store(scope, budget)
        wait = _wait(response, budget, server_now)
        if wait is None and _is_limit(response):
            wait = self._default_wait(scope)
        if wait is None:
            if response.status < 400 and self.wait_until(scope) is None:
                self._default_waits.pop(scope, None)
        else:
            self._limited.of(scope).inc()
            self._waits[scope] = self._clock.now() + wait
            raise _limited(about, scope, wait, response.status)

    def _default_wait(self, scope: str) -> timedelta:
        if until := self.wait_until(scope):
            # Requests that were sent together are one failure.
            return until - self._clock.now()
        wait = self._default_waits.get(scope, DEFAULT_WAIT)
        self._default_waits[scope] = min(2 * wait, MAX_DEFAULT_WAIT)
        return wait

    def _store(self, scope: str, budget: Budget) -> None:
        self._budgets[scope] = budget
        self._limit.of(scope).set(budget.limit)
        self._remaining.of(scope).set(budget.remaining)
        self._reset.of(scope).set(budget.reset.timestamp())


def server_time(headers: Mapping[str, str]) -> datetime | None:
    """Return the time of the server's clock; None without a valid Date header."""
    try:
        return parsedate_to_datetime(headers["date"]).astimezone(UTC)
    except (KeyError, ValueError, OverflowError):
        return None


def _budget(headers: Mapping[str, str]) -> Budget | None:
    """Return the budget of these headers; GitHub Enterprise without rate limits has none."""
    try:
        limit, remaining, reset = (
            int(headers[f"x-ratelimit-{name}"]) for name in ("limit", "remaining", "reset")
        )
        return Budget(limit, remaining, datetime.fromtimestamp(reset, UTC))
    except (KeyError, ValueError, OverflowError, OSError):
        return None


def _wait(response: Response, budget: Budget | None, server_now: datetime) -> timedelta | None:
    """Return the wait that this response names; None if it names none."""
    if response.status not in _LIMITED_STATUSES:
        return None
    if (seconds := response.headers.get("retry-after", "")).isdecimal():
        return _bounded(timedelta(seconds=min(int(seconds), MAX_WAIT.total_seconds())))
    # Compared with the server's clock, by which the time of the reset is given.
    if budget is not None and budget.remaining == 0:
        return _bounded(budget.reset - server_now)
    return None


def _is_limit(response: Response) -> bool:
    """Return whether a response requests a wait, although it names none."""
    if response.status == 429:
        return True
    body = response.body.lower()
    return response.status == 403 and any(text in body for text in _LIMIT_TEXTS)


def _bounded(wait: timedelta) -> timedelta:
    return min(max(wait, _MIN_WAIT), MAX_WAIT)


def _limited(
    about: str, scope: str, wait: timedelta, status: int | None = None
) -> errors.RateLimited:
    shown = "" if status is None else f"status {status}: "
    seconds = wait.total_seconds()
    return errors.RateLimited(
        f"{about}: {shown}GitHub's rate limit of {scope} requests a wait of {seconds:.0f} s",
        after=wait,
    )
