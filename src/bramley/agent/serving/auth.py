"""Authentication and authorization of the kubelet endpoints, as in a kubelet: client certificate or token, decided by the API.

The subject of a verified client certificate is the user; a token is authenticated by a TokenReview. Requests are authorized by a
SubjectAccessReview for this Node. Results are cached for a short time and in bounded number, tokens only as hashes.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar

from bramley.api.auth import TokenReview, TokenReviewSpec
from bramley.api.authorization import (
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
)
from bramley.api.meta import K
from bramley.base import errors, log
from bramley.base.clock import Clock
from bramley.kube.client import Client

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


logger = log.get(__name__)

_BEARER = "bearer "
_MAX_TOKEN_LENGTH = 16 * 1024
_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "DELETE": "delete"}
# The subresource of the Node for a path; every other path, logs of containers included, is `nodes/proxy`.
_SUBRESOURCES = {"stats": "stats", "metrics": "metrics", "logs": "log"}
_PROXY = "proxy"


class TtlCache(Generic[_Key, _Value]):
    """A bounded cache; when it is full the oldest entry is evicted."""

    def __init__(self, max_entries: int, now: Callable[[], float]) -> None:
        self._max_entries = max_entries
        self._now = now
        self._entries: OrderedDict[_Key, tuple[float, _Value]] = OrderedDict()

    def find(self, key: _Key) -> _Value | None:
        """Return the value, or None if it is missing or has expired."""
        expires, value = self._entries.get(key, (0.0, None))
        return value if self._now() < expires else None

    def put(self, key: _Key, value: _Value, ttl: timedelta) -> None:
        """Store a value for this long."""
        self._entries.pop(key, None)
        self._entries[key] = (self._now() + ttl.total_seconds(), value)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """How long results of the API are cached, how many are, and the limits of requests to it."""

    authenticated_ttl: timedelta = timedelta(minutes=1)
    unauthenticated_ttl: timedelta = timedelta(seconds=10)
    allowed_ttl: timedelta = timedelta(minutes=1)
    denied_ttl: timedelta = timedelta(seconds=10)
    max_cached: int = 1000
    max_concurrent: int = 4
    timeout: timedelta = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class RequestAttributes:
    """The verb and the Node's subresource of a request."""

    verb: str
    subresource: str


def request_attributes(method: str, path: str) -> RequestAttributes:
    """Return the attributes of a request as a kubelet derives them."""
    first = path.removeprefix("/").partition("/")[0]
    return RequestAttributes(_VERBS.get(method, method.lower()), _SUBRESOURCES.get(first, _PROXY))


def certificate_user(certificate: Mapping[str, Any] | None, now: float) -> User | None:
    """Return the user of a verified client certificate; None if there is none, or it has expired meanwhile."""
    if not certificate or ssl.cert_time_to_seconds(certificate["notAfter"]) <= now:
        return None
    subject: dict[str, list[str]] = {}
    for relative_name in certificate.get("subject", ()):
        for key, value in relative_name:
            subject.setdefault(key, []).append(value)
    names = subject.get("commonName", [])
    if len(names) != 1 or not names[0]:
        return None
    groups = (*subject.get("organizationName", ()), "system:authenticated")
    return User(names[0], groups)


@dataclass(slots=True)
class KubeletAuth:
    """Authenticates and authorizes the callers of one Node's agent."""

    node: str
    kube: Client
    clock: Clock
    settings: Settings = field(default_factory=Settings)
    _users: TtlCache[bytes, User | bool] = field(init=False)
    _decisions: TtlCache[tuple[User, RequestAttributes], bool] = field(init=False)
    _semaphore: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        max_cached, now = self.settings.max_cached, self.clock.monotonic
        self._users, self._decisions = TtlCache(max_cached, now), TtlCache(max_cached, now)
        self._semaphore = asyncio.Semaphore(self.settings.max_concurrent)

    async def authenticate(
        self, authorization: str, certificate: Mapping[str, Any] | None
    ) -> User | None:
        """Return the user of a request; None if it is not authenticated, also if the API is not reachable."""
        user = certificate_user(certificate, self.clock.now().timestamp())
        if user is not None:
            return user
        token = authorization[len(_BEARER) :].strip()
        is_bearer = authorization[: len(_BEARER)].lower() == _BEARER
        if not is_bearer or not token or len(token) > _MAX_TOKEN_LENGTH:
            return None
        return await self._token_user(token)

    async def is_allowed(self, user: User, attributes: RequestAttributes) -> bool:
        """Return whether a user may do this with our Node; raises Unavailable if the API is not reachable."""
        cached = self._decisions.find((user, attributes))
        if cached is not None:
            return cached
        spec = SubjectAccessReviewSpec(
            user=user.name,
            groups=list(user.groups),
            uid=user.uid,
            extra={key: list(values) for key, values in user.extra},
            resource_attributes=ResourceAttributes(
                verb=attributes.verb,
                version="v1",
                resource="nodes",
                subresource=attributes.subresource,
                name=self.node,
            ),
        )
        review = await self._create_review(SubjectAccessReview(spec=spec))
        allowed = review.status.allowed and not review.status.denied
        ttl = self.settings.allowed_ttl if allowed else self.settings.denied_ttl
        self._decisions.put((user, attributes), allowed, ttl)
        return allowed

    async def _token_user(self, token: str) -> User | None:
        key = hashlib.sha256(token.encode()).digest()
        cached = self._users.find(key)
        if cached is None:
            try:
                review = await self._create_review(TokenReview(spec=TokenReviewSpec(token=token)))
            except errors.BramleyError as error:
                # Not cached: the token may be valid, and the API may be reachable for the next request.
                logger.warning("TokenReview failed", reason=error.reason)
                return None
            cached = _reviewed_user(review)
            ttl = self.settings.authenticated_ttl if cached else self.settings.unauthenticated_ttl
            self._users.put(key, cached, ttl)
        return cached if isinstance(cached, User) else None

    async def _create_review(self, review: K) -> K:
        # The timeout must include the wait for the semaphore: a flood of unknown tokens must not delay requests without a bound.
        limit = self.settings.timeout
        try:
            async with asyncio.timeout(limit.total_seconds()), self._semaphore:
                return await self.kube.within(limit).create(review)
        except TimeoutError as error:
            raise errors.TimedOut(f"the API did not respond within {limit}") from error


def _reviewed_user(review: TokenReview) -> User | bool:
    status, user = review.status, review.status.user
    if not status.authenticated or status.error or not user.username:
        return False
    extra = tuple(sorted((key, tuple(values or ())) for key, values in user.extra.items()))
    return User(user.username, tuple(user.groups), user.uid, extra)
