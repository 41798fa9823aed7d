"""What is remembered of wishes between two answers: who had to wait, whose look at a tag is done, and what failed when.

All of it is bounded and may be lost: the worst that follows is one more look at a registry.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from bramley.agent.images.image_requests import Failed, ImageRequest
from bramley.base import errors
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock

_MOST = 512
_SHORTEST_WAIT = 0.001
_BACKOFF = Backoff(timedelta(seconds=10), timedelta(minutes=5))

Wish = tuple[str, str, tuple[str, ...]]


class Owners:
    """Remembers, for each image, who waited for it and who has seen it fresh."""

    def __init__(self) -> None:
        self._waited: dict[tuple[str, str], None] = {}
        self._fresh: dict[tuple[str, str], None] = {}

    def waits(self, image: str, owner: str) -> None:
        """Note that the owner was not served at once."""
        _note(self._waited, (image, owner))

    def has_waited(self, image: str, owner: str) -> bool:
        """Tell whether the owner was not served at once."""
        return (image, owner) in self._waited

    def are_fresh(self, image: str, owners: Iterable[str]) -> None:
        """Note that the registry was asked on behalf of these."""
        for owner in owners:
            _note(self._fresh, (image, owner))

    def is_fresh(self, image: str, owner: str) -> bool:
        """Tell whether the registry was asked on behalf of this owner."""
        return (image, owner) in self._fresh


def _note(known: dict[tuple[str, str], None], entry: tuple[str, str]) -> None:
    known[entry] = None
    if len(known) > _MOST:
        del known[next(iter(known))]


@dataclass(frozen=True, slots=True)
class _Failure:
    error: errors.BramleyError
    count: int
    until: float


class Failures:
    """Remembers what failed, so that it is not tried again too soon; other credentials are another wish."""

    def __init__(self, clock: Clock, rng: random.Random, backoff: Backoff = _BACKOFF) -> None:
        self._clock = clock
        self._rng = rng
        self._backoff = backoff
        self._failures: dict[Wish, _Failure] = {}

    def of(self, request: ImageRequest) -> Failed | None:
        """Return the failure of a wish while it is too early to try again."""
        failure = self._failures.get(_wish(request))
        left = failure.until - self._clock.monotonic() if failure is not None else 0.0
        # A wait that a clock cannot tell from none would be waited for for ever.
        if failure is None or left < _SHORTEST_WAIT:
            return None
        return Failed(failure.error, timedelta(seconds=left))

    def note(self, request: ImageRequest, error: errors.BramleyError) -> None:
        """Remember a failure; each one in a row is waited out longer."""
        wish = _wish(request)
        before = self._failures.pop(wish, None)
        count = before.count + 1 if before is not None else 1
        until = self._clock.monotonic() + self._backoff.delay(count, self._rng).total_seconds()
        self._failures[wish] = _Failure(error, count, until)
        if len(self._failures) > _MOST:
            del self._failures[next(iter(self._failures))]

    def forget(self, request: ImageRequest) -> None:
        """Forget the failures of a wish that came true."""
        self._failures.pop(_wish(request), None)


def _wish(request: ImageRequest) -> Wish:
    return request.image, request.namespace, request.pull_secrets
