"""Image requests, the states that they return (ready, pulling, or failed for now), and what is stored between two requests.

A request never waits. Its callback is called when the state may have changed; then the owner requests again. What is stored
is bounded and may be lost: the worst that follows is one more request to a registry.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from bramley.agent.tart import references
from bramley.api.core import Pod
from bramley.base import errors
from bramley.base.backoff import Backoff
from bramley.base.clock import Clock

_MAX_ENTRIES = 512
_MIN_WAIT = 0.001
_BACKOFF = Backoff(timedelta(seconds=10), timedelta(minutes=5))

BackoffKey = tuple[str, str, tuple[str, ...], bool]


class RequestOwners:
    """Stores for each image which owners waited for it, and for which its tag was resolved."""

    def __init__(self) -> None:
        self._waited: dict[tuple[str, str], None] = {}
        self._resolved: dict[tuple[str, str], None] = {}

    def record_wait(self, image: str, owner: str) -> None:
        """Record that the owner had to wait."""
        _add_bounded(self._waited, (image, owner))

    def has_waited(self, image: str, owner: str) -> bool:
        """Return whether the owner had to wait."""
        return (image, owner) in self._waited

    def record_resolved(self, image: str, owners: Iterable[str]) -> None:
        """Record that the registry resolved the tag for these owners."""
        for owner in owners:
            _add_bounded(self._resolved, (image, owner))

    def is_resolved(self, image: str, owner: str) -> bool:
        """Return whether the registry resolved the tag for this owner."""
        return (image, owner) in self._resolved


def _add_bounded(entries: dict[tuple[str, str], None], entry: tuple[str, str]) -> None:
    entries[entry] = None
    if len(entries) > _MAX_ENTRIES:
        del entries[next(iter(entries))]


@dataclass(frozen=True, slots=True)
class _Failure:
    error: errors.BramleyError
    count: int
    until: float


@dataclass(frozen=True, slots=True)
class PullBackoff:
    """The backoff of failed pulls; the same image with other credentials has its own backoff, and so has a staged one."""

    clock: Clock
    rng: random.Random
    backoff: Backoff = _BACKOFF
    _failures: dict[BackoffKey, _Failure] = field(default_factory=dict)

    def of(self, request: ImageRequest) -> Failed | None:
        """Return the failure of a request while it is backing off."""
        failure = self._failures.get(_backoff_key(request))
        remaining = failure.until - self.clock.monotonic() if failure is not None else 0.0
        # A wait below the resolution of the clock would be repeated for ever.
        if failure is None or remaining < _MIN_WAIT:
            return None
        return Failed(failure.error, timedelta(seconds=remaining))

    def record_failure(self, request: ImageRequest, error: errors.BramleyError) -> None:
        """Count a failure; consecutive failures increase the backoff."""
        key = _backoff_key(request)
        previous = self._failures.pop(key, None)
        count = previous.count + 1 if previous is not None else 1
        until = self.clock.monotonic() + self.backoff.delay(count, self.rng).total_seconds()
        self._failures[key] = _Failure(error, count, until)
        if len(self._failures) > _MAX_ENTRIES:
            del self._failures[next(iter(self._failures))]

    def reset(self, request: ImageRequest) -> None:
        """Reset the backoff after a success."""
        self._failures.pop(_backoff_key(request), None)


def _backoff_key(request: ImageRequest) -> BackoffKey:
    return request.image, request.namespace, request.pull_secrets, request.is_staged


OnChange = Callable[[], None]


class PullPolicy(StrEnum):
    """When an image is pulled although it is present."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """A request for an image; `owner` is a Pod's uid, for which policy Always resolves a tag once."""

    image: str
    owner: str
    policy: PullPolicy = PullPolicy.IF_NOT_PRESENT
    namespace: str = ""
    pull_secrets: tuple[str, ...] = ()
    # A Pod may have access to Secrets that staging had not, so it does not wait for that backoff.
    is_staged: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """The golden base is on disk; `is_warm` if its owner did not have to wait for it."""

    golden: str
    digest: str
    is_warm: bool


@dataclass(frozen=True, slots=True)
class Pulling:
    """The pull is in progress; the percentage is unknown while it is queued, reads the manifest, or makes the base."""

    percent: int | None
    since: datetime


@dataclass(frozen=True, slots=True)
class Failed:
    """The pull failed; a request after `retry_after` tries again, an earlier one returns this state."""

    error: errors.BramleyError
    retry_after: timedelta


ImageState = Ready | Pulling | Failed


def request_of(pod: Pod) -> ImageRequest:
    """Return the request of a Pod with one container."""
    container = pod.spec.containers[0]
    return ImageRequest(
        image=container.image,
        owner=pod.metadata.uid,
        policy=policy_of(container.image, container.image_pull_policy),
        namespace=pod.metadata.namespace or "",
        pull_secrets=tuple(secret.name for secret in pod.spec.image_pull_secrets if secret.name),
    )


def policy_of(image: str, requested: str) -> PullPolicy:
    """Return the pull policy; the default is Always for `latest` and IfNotPresent for other tags, as in Kubernetes."""
    if requested in set(PullPolicy):
        return PullPolicy(requested)
    reference = references.parse(image)
    is_latest = reference and not reference.digest and reference.tag == references.DEFAULT_TAG
    return PullPolicy.ALWAYS if is_latest else PullPolicy.IF_NOT_PRESENT
