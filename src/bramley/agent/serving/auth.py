"""Who asks the agent, and whether they may: as a kubelet finds it out, by client certificate or token, and by the API.

A certificate of the client authority names its owner; a token is shown to the API in a TokenReview. What a caller may do the
API decides in a SubjectAccessReview about this Node. Answers are kept briefly and in bounded number, tokens only as hashes.
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


class TtlCache(Generic[_Key, _Value]):
    """A bounded memory; the one that was put first is forgotten first."""

    def __init__(self, most: int, now: Callable[[], float]) -> None:
        self._most = most
        self._now = now
        self._kept: OrderedDict[_Key, tuple[float, _Value]] = OrderedDict()

    def find(self, key: _Key) -> _Value | None:
        """Return what is known and still holds."""
        ends, value = self._kept.get(key, (0.0, None))
        return value if self._now() < ends else None

    def put(self, key: _Key, value: _Value, lasts: timedelta) -> None:
        """Keep an answer for this long."""
        self._kept.pop(key, None)
        self._kept[key] = (self._now() + lasts.total_seconds(), value)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


logger = log.get(__name__)

_BEARER = "bearer "
_LONGEST_TOKEN = 16 * 1024
_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "DELETE": "delete"}
# Which part of the Node a path belongs to; every other path, logs of containers included, is its proxy.
_PARTS = {"stats": "stats", "metrics": "metrics", "logs": "log"}
_PROXY = "proxy"


@dataclass(frozen=True, slots=True)
class Settings:
    """How long answers of the API are believed, how many are kept, and how long one may take."""

    known_for: timedelta = timedelta(minutes=1)
    unknown_for: timedelta = timedelta(seconds=10)
    allowed_for: timedelta = timedelta(minutes=1)
    refused_for: timedelta = timedelta(seconds=10)
    kept: int = 1000
    asked_at_once: int = 4
    answer_within: timedelta = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who proved who they are."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class RequestAttributes:
    """What a request wants of the Node."""

    verb: str
    part: str


def request_attributes(method: str, path: str) -> RequestAttributes:
    """Return what a request wants, as a kubelet reads it."""
    first = path.removeprefix("/").partition("/")[0]
    return RequestAttributes(_VERBS.get(method, method.lower()), _PARTS.get(first, _PROXY))


def of_certificate(certificate: Mapping[str, Any] | None, now: float) -> Caller | None:
    """Return the owner of a verified client certificate; None if there is none, or it has ended meanwhile."""
    if not certificate or ssl.cert_time_to_seconds(certificate["notAfter"]) <= now:
        return None
    named: dict[str, list[str]] = {}
    for part in certificate.get("subject", ()):
        for key, value in part:
            named.setdefault(key, []).append(value)
    names = named.get("commonName", [])
    if len(names) != 1 or not names[0]:
        return None
    groups = (*named.get("organizationName", ()), "system:authenticated")
    return Caller(names[0], groups)


@dataclass(slots=True)
class KubeletAuth:
    """Asks the API about the callers of one Node's agent."""

    node: str
    kube: Client
    clock: Clock
    settings: Settings = field(default_factory=Settings)
    _known: TtlCache[bytes, Caller | bool] = field(init=False)
    _judged: TtlCache[tuple[Caller, RequestAttributes], bool] = field(init=False)
    _asking: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        kept, now = self.settings.kept, self.clock.monotonic
        self._known, self._judged = TtlCache(kept, now), TtlCache(kept, now)
        self._asking = asyncio.Semaphore(self.settings.asked_at_once)

    async def identify(
        self, authorization: str, certificate: Mapping[str, Any] | None
    ) -> Caller | None:
        """Return who asks; None for nobody known, also when the API cannot be asked."""
        owner = of_certificate(certificate, self.clock.now().timestamp())
        if owner is not None:
            return owner
        token = authorization[len(_BEARER) :].strip()
        is_bearer = authorization[: len(_BEARER)].lower() == _BEARER
        if not is_bearer or not token or len(token) > _LONGEST_TOKEN:
            return None
        return await self._owner(token)

    async def may(self, caller: Caller, wanted: RequestAttributes) -> bool:
        """Tell whether a caller may do this with our Node; Unavailable when the API cannot be asked."""
        known = self._judged.find((caller, wanted))
        if known is not None:
            return known
        spec = SubjectAccessReviewSpec(
            user=caller.name,
            groups=list(caller.groups),
            uid=caller.uid,
            extra={key: list(values) for key, values in caller.extra},
            resource_attributes=ResourceAttributes(
                verb=wanted.verb,
                version="v1",
                resource="nodes",
                subresource=wanted.part,
                name=self.node,
            ),
        )
        answer = await self._ask(SubjectAccessReview(spec=spec))
        allowed = answer.status.allowed and not answer.status.denied
        lasts = self.settings.allowed_for if allowed else self.settings.refused_for
        self._judged.put((caller, wanted), allowed, lasts)
        return allowed

    async def _owner(self, token: str) -> Caller | None:
        key = hashlib.sha256(token.encode()).digest()
        known = self._known.find(key)
        if known is None:
            try:
                answer = await self._ask(TokenReview(spec=TokenReviewSpec(token=token)))
            except errors.BramleyError as error:
                logger.warning("A caller's token cannot be checked", reason=error.reason)
                return None
            known = _reviewed(answer)
            lasts = self.settings.known_for if known else self.settings.unknown_for
            self._known.put(key, known, lasts)
        return known if isinstance(known, Caller) else None

    async def _ask(self, review: K) -> K:
        # Waiting for one's turn counts, too: a flood of strangers must not keep known callers waiting without an end.
        limit = self.settings.answer_within
        try:
            async with asyncio.timeout(limit.total_seconds()), self._asking:
                return await self.kube.within(limit).create(review)
        except TimeoutError as error:
            raise errors.TimedOut(f"the API did not answer within {limit}") from error


def _reviewed(answer: TokenReview) -> Caller | bool:
    found = answer.status
    if not found.authenticated or found.error or not found.user.username:
        return False
    user = found.user
    extra = tuple(sorted((key, tuple(values or ())) for key, values in user.extra.items()))
    return Caller(user.username, tuple(user.groups), user.uid, extra)
