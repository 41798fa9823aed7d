"""Who calls: runner Pods by tokens with dispatch's audience, controllers and people by tokens of the API server.

Tokens are reviewed by the API server. The result of a Pod's token is cached until the token expires, because the Pod and its
ServiceAccount are looked up for each request; others are cached for a minute. Only hashes of tokens are kept.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from bramley.api.auth import TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo
from bramley.api.authorization import (
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
)
from bramley.api.meta import Resource, to_wire
from bramley.api.names import dispatch
from bramley.api.runner_pool import RunnerPool
from bramley.base import errors, jwt_claims
from bramley.base.clock import Clock
from bramley.base.secret import Secret
from bramley.kube.client import Client

K = TypeVar("K")
V = TypeVar("V")

# The kind of caller and the hash of the token.
_Key = tuple[str, bytes]
_Right = tuple[str, tuple[str, ...], str, str]

MAX_TOKEN_CHARACTERS = 8 * 1024
_MAX_CACHED = 20_000
_CALLER_LIFE = timedelta(minutes=1)
# A refused token is not reviewed again for this long: a guest that repeats it must not cost a review per request.
_REFUSAL_LIFE = timedelta(seconds=10)
# Reviews at the same time; requests with tokens that are not known yet wait for each other.
_MAX_REVIEWS = 32
_SERVICE_ACCOUNT = "system:serviceaccount:"
_POD_NAME, _POD_UID = (
    "authentication.kubernetes.io/pod-name",
    "authentication.kubernetes.io/pod-uid",
)


@dataclass(frozen=True, slots=True)
class RunnerIdentity:
    """The Pod that a token is bound to; its ServiceAccount has the same name."""

    namespace: str
    pod_name: str
    pod_uid: str


class _Claims(msgspec.Struct):
    exp: float = 0


@dataclass(frozen=True, slots=True)
class _Entry:
    until: datetime
    runner: RunnerIdentity | None = None
    user: UserInfo | None = None


@dataclass(slots=True)
class Authentication:
    """Authenticates and authorizes callers. Errors: Unauthorized, Forbidden, or Unavailable if the API server does not answer."""

    kube: Client
    namespace: str
    clock: Clock
    deadline: timedelta = timedelta(seconds=3)
    _entries: OrderedDict[_Key, _Entry] = field(default_factory=OrderedDict)
    # Apart from the accepted ones, which invented tokens must not displace.
    _refusals: OrderedDict[_Key, _Entry] = field(default_factory=OrderedDict)
    _rights: OrderedDict[_Right, tuple[datetime, bool]] = field(default_factory=OrderedDict)
    _reviews: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_REVIEWS))

    async def runner(self, header: str | None) -> RunnerIdentity:
        """Return the runner Pod of an Authorization header."""
        token = bearer(header)

        async def review() -> _Entry:
            identity = self._runner_of(await self._review(token, [dispatch.TOKEN_AUDIENCE]))
            until = self._until(token) if identity else self.clock.now() + _REFUSAL_LIFE
            return _Entry(until, runner=identity)

        entry = await self._entry(("runner", _digest(token)), review)
        if entry.runner is None:
            raise errors.Unauthorized("the token is not one of a runner Pod")
        return entry.runner

    def refuse(self, header: str | None) -> None:
        """Refuse an accepted runner's token for a while without a review, because its Pod or ServiceAccount does not exist."""
        key = ("runner", _digest(bearer(header)))
        self._entries.pop(key, None)
        _put(self._refusals, key, _Entry(self.clock.now() + _REFUSAL_LIFE))

    async def caller(self, header: str | None, verb: str, subresource: str = "") -> UserInfo:
        """Return the user of an Authorization header who may use this verb on the RunnerPools of the namespace."""
        token = bearer(header)

        async def review() -> _Entry:
            status = await self._review(token, [])
            user = status.user if status.authenticated else None
            now = self.clock.now()
            if user is None:
                return _Entry(now + _REFUSAL_LIFE)
            return _Entry(min(self._until(token), now + _CALLER_LIFE), user=user)

        entry = await self._entry(("user", _digest(token)), review)
        if entry.user is None:
            raise errors.Unauthorized("the token is not valid for the API server")
        if not await self._is_allowed(entry.user, verb, subresource):
            resource = f"runnerpools/{subresource}" if subresource else "runnerpools"
            raise errors.Forbidden(
                f"{entry.user.username} may not {verb} {resource} in namespace {self.namespace}"
            )
        return entry.user

    def _runner_of(self, status: TokenReviewStatus) -> RunnerIdentity | None:
        if not status.authenticated or status.error:
            return None
        # A server that does not know audiences returns none; such a token could be one for the API server itself.
        if dispatch.TOKEN_AUDIENCE not in status.audiences:
            return None
        user = status.user
        namespace, _, name = user.username.removeprefix(_SERVICE_ACCOUNT).partition(":")
        pod_name, pod_uid = _first(user, _POD_NAME), _first(user, _POD_UID)
        is_runner = user.username.startswith(_SERVICE_ACCOUNT) and namespace == self.namespace
        if not is_runner or pod_name != name or not pod_uid:
            return None
        return RunnerIdentity(namespace, pod_name, pod_uid)

    async def _review(self, token: Secret, audiences: list[str]) -> TokenReviewStatus:
        review = TokenReview(spec=TokenReviewSpec(token=token.reveal(), audiences=audiences))
        created = await self._create(TokenReview.resource, to_wire(review))
        return msgspec.convert(created.get("status", {}), TokenReviewStatus)

    async def _create(self, resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self.kube.within(self.deadline).create_wire(resource, body)
        except errors.Unavailable:
            raise
        except errors.BramleyError as error:
            # This server was refused and not its caller: existing pollers end their VM at 401 and 403.
            raise errors.ApiUnavailable(str(error)) from error

    async def _is_allowed(self, user: UserInfo, verb: str, subresource: str) -> bool:
        # With the groups: another token of the same user may have others.
        key = (user.username, tuple(user.groups), verb, subresource)
        now = self.clock.now()
        known = self._rights.get(key)
        if known is not None and known[0] > now:
            return known[1]
        attributes = ResourceAttributes(
            verb=verb,
            group=RunnerPool.resource.group,
            resource=RunnerPool.resource.plural,
            subresource=subresource,
            namespace=self.namespace,
        )
        extra = {name: values or [] for name, values in user.extra.items()}
        spec = SubjectAccessReviewSpec(
            user=user.username,
            groups=user.groups,
            uid=user.uid,
            extra=extra,
            resource_attributes=attributes,
        )
        created = await self._create(
            SubjectAccessReview.resource, to_wire(SubjectAccessReview(spec=spec))
        )
        allowed = bool(created.get("status", {}).get("allowed"))
        _put(self._rights, key, (now + _CALLER_LIFE, allowed))
        return allowed

    async def _entry(self, key: _Key, review: Callable[[], Awaitable[_Entry]]) -> _Entry:
        """Return what is known of a token, after a review if nothing is."""
        if known := self._cached(key):
            return known
        try:
            async with asyncio.timeout(self.deadline.total_seconds()), self._reviews:
                # Another request may have brought the same token.
                if known := self._cached(key):
                    return known
                entry = await review()
        except TimeoutError:
            raise errors.TimedOut(f"no review of the token within {self.deadline}") from None
        is_refused = entry.runner is None and entry.user is None
        _put(self._refusals if is_refused else self._entries, key, entry)
        return entry

    def _cached(self, key: _Key) -> _Entry | None:
        for entries in (self._entries, self._refusals):
            entry = entries.get(key)
            if entry is None:
                continue
            if entry.until > self.clock.now():
                entries.move_to_end(key)
                return entry
            del entries[key]
        return None

    def _until(self, token: Secret) -> datetime:
        claims = jwt_claims.decode(token.reveal(), _Claims)
        now = self.clock.now()
        # A token without an expiry is reviewed again every minute.
        if claims is None or not 0 < claims.exp < 2**40:
            return now + _CALLER_LIFE
        return datetime.fromtimestamp(claims.exp, tz=UTC)


def bearer(header: str | None) -> Secret:
    """Return the token of an Authorization header; existing pollers also write `bearer`."""
    scheme, _, token = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise errors.Unauthorized("the request has no bearer token")
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise errors.Unauthorized("the token is too long")
    return Secret(token)


def _digest(token: Secret) -> bytes:
    return hashlib.sha256(token.reveal().encode()).digest()


def _first(user: UserInfo, name: str) -> str:
    values = user.extra.get(name) or []
    return values[0] if values else ""


def _put(entries: OrderedDict[K, V], key: K, value: V) -> None:
    entries[key] = value
    while len(entries) > _MAX_CACHED:
        entries.popitem(last=False)
