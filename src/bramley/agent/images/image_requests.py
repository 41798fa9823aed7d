"""What is asked of the images of this host, and the answers: ready, on its way, or failed for now.

An answer never waits. Who asked is told by its callback when the answer may have changed, and asks again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from bramley.agent.tart import references
from bramley.api.core import Pod
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


OnChange = Callable[[], None]


class PullPolicy(StrEnum):
    """When the registry is asked although the image is here."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """One wish for an image; `owner` is who asks, a Pod's uid, and gets one fresh look at a tag under policy Always."""

    image: str
    owner: str
    policy: PullPolicy = PullPolicy.IF_NOT_PRESENT
    namespace: str = ""
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """The golden base is on disk; `is_warm` unless its owner had to wait for it."""

    golden: str
    digest: str
    is_warm: bool


@dataclass(frozen=True, slots=True)
class Pulling:
    """It is on its way; no percent is known while the manifest is read, in a queue, or while the base is made."""

    percent: int | None
    since: datetime


@dataclass(frozen=True, slots=True)
class Failed:
    """It could not be had; asking again after `retry_after` tries once more, asking earlier gives this answer again."""

    error: errors.BramleyError
    retry_after: timedelta


Answer = Ready | Pulling | Failed


def request_of(pod: Pod) -> ImageRequest:
    """Return the wish of a Pod with one container."""
    container = pod.spec.containers[0]
    return ImageRequest(
        image=container.image,
        owner=pod.metadata.uid,
        policy=policy_of(container.image, container.image_pull_policy),
        namespace=pod.metadata.namespace or "",
        pull_secrets=tuple(secret.name for secret in pod.spec.image_pull_secrets if secret.name),
    )


def policy_of(image: str, given: str) -> PullPolicy:
    """Return the pull policy; where none is given, Kubernetes looks at `latest` always and at other tags once."""
    if given in set(PullPolicy):
        return PullPolicy(given)
    reference = references.parse(image)
    is_latest = reference and not reference.digest and reference.tag == references.DEFAULT_TAG
    return PullPolicy.ALWAYS if is_latest else PullPolicy.IF_NOT_PRESENT
